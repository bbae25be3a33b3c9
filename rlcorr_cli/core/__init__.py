"""Batches in, summaries out: the home of torch, free of files and of printing."""
