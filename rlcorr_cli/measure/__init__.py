"""Batches in, totals out: arithmetic on arrays, free of files and of printing."""

from rlcorr_cli.errors import require_address_space

LEAST_BYTES = 700_000_000
"""Of address space, which NumPy, its BLAS and Arrow take with their threads: with less some runs ended by a signal, as
libraries do that find no memory."""
require_address_space(LEAST_BYTES)
