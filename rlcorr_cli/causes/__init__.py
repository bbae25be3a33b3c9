"""Why two policies differ: what was wrong with a dump's files, and the causes of a gap in its totals."""
