"""Rows set aside, as they are written apart: untouched, with the reason beside them."""

from rlcorr_cli.io.as_numpy import as_texts
from rlcorr_cli.io.batches import SetAside
from rlcorr_cli.io.original_rows import OriginalRows

REASON = "rlcorr_problem"


def quarantined(aside: SetAside) -> OriginalRows:
    """The rows with a column REASON, which may have been set aside before and then have one."""
    assert aside.original is not None
    return aside.original.replacing(REASON, as_texts(aside.reasons))
