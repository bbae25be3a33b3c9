"""File formats: one module turns the bytes of a shard into Arrow record batches."""
