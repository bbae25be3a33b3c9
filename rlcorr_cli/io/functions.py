"""Arrow's functions, called by name.

`pyarrow.compute` writes a Python function with a page of documentation for each of the three hundred that there are,
every time that it is imported, and pyarrow's own methods (`take`, `cast`, `is_valid`, ...) import it: a fifth of all
that a command does on a small dump.  What it writes them over is all that is needed.
"""

from typing import Any

import pyarrow as pa
from pyarrow._compute import CastOptions, call_function  # noqa: PLC2701


def call(name: str, *values: Any) -> Any:
    """A function of Arrow's (arrow.apache.org/docs/cpp/compute.html) with its default options."""
    return call_function(name, list(values))


def cast(values: Any, type: pa.DataType, *, lossy: bool = False) -> Any:
    """The values in another type; an ArrowInvalid where it cannot hold one, unless it may be lossy."""
    return call_function("cast", [values], CastOptions.unsafe(type) if lossy else CastOptions.safe(type))
