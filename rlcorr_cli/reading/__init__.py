"""Dumps in, token-bounded batches out: the home of pyarrow, free of torch and of formulas."""
