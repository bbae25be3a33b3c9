"""The types of numbers that Arrow and NumPy share.

`DataType.to_pandas_dtype` would say it, too, but needs pandas before pyarrow 26, though the answer is NumPy's.
"""

from typing import Any

import numpy as np
import pyarrow as pa

NUMPY_DTYPES: dict[pa.DataType, np.dtype[Any]] = {
    pa.from_numpy_dtype(np.dtype(name)): np.dtype(name)
    for name in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
}
"""Arrow's booleans, whole numbers and floats -> NumPy's of the same width."""
