"""Batches in, totals out: arithmetic on arrays, free of files and of printing."""
