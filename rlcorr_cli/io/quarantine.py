"""Rows set aside, as they are written apart: untouched, with the reason beside them."""

from base64 import b64encode
from typing import Any

import pyarrow as pa

from rlcorr_cli.io.batches import SetAside
from rlcorr_cli.io.containers.lines import row_of
from rlcorr_cli.io.corrected import Rows

REASON, LINE, BYTES = "rlcorr_problem", "rlcorr_line", "rlcorr_line_base64"


def quarantined(aside: SetAside) -> Rows:
    """Arrow rows get a column REASON.  So do the objects of JSON lines; a line that is none stands whole in LINE, or in
    BYTES where it is no UTF-8."""
    if aside.lines is not None:
        return [{**_object(line), REASON: why} for line, why in zip(aside.lines, aside.reasons, strict=True)]
    assert aside.data is not None
    table = pa.Table.from_batches([aside.data])
    if REASON in table.column_names:
        table = table.drop_columns([REASON])
    return table.append_column(REASON, pa.array(aside.reasons, pa.string()))


def _object(line: bytes) -> dict[str, Any]:
    row = row_of(line)
    if isinstance(row, dict):
        return row
    try:
        return {LINE: line.decode("utf-8")}
    except UnicodeDecodeError:
        return {BYTES: b64encode(line).decode()}
