"""Where work on shards runs.  An engine decides only that; results are the same whichever one it is."""
