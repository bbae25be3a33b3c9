"""Batches in, summaries out: the home of torch, free of files and of printing."""

from rlcorr_cli.errors import require_address_space

TORCH_BYTES = 900_000_000
"""Of address space, which torch and what is loaded with it take; measured with torch 2.13 for CPUs."""
require_address_space(TORCH_BYTES)
