"""What stands around the tokens of checked rows: their ids, the masked ones between them, the levels of their rows."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rlcorr_cli.batch import Surroundings
from rlcorr_cli.io.batches import CheckedRows
from rlcorr_cli.io.checks import Lists
from rlcorr_cli.io.columns import Roles
from rlcorr_cli.io.duplicates import keys
from rlcorr_cli.io.plain_values import coded, texts


def surroundings(rows: CheckedRows, roles: Roles) -> Surroundings:
    """Of a batch's rows, by the roles that they were read with."""
    data, levels = rows.data, dict(roles.levels)
    coded_levels = {name: coded(data.column(column)) for name, column in levels.items()}
    prompts = levels.get("group_id")
    return Surroundings(
        offsets=rows.offsets,
        valid=rows.valid,
        token_ids=None if roles.token_ids is None else _token_ids(data.column(roles.token_ids), rows.offsets),
        levels={name: (codes, tuple(values)) for name, (codes, values) in coded_levels.items()},
        prompts=None if prompts is None else keys([data.column(prompts)]),
    )


def row_id(rows: CheckedRows, roles: Roles, row: int) -> str | None:
    """A row's sample_id as text; None where it has none."""
    return texts(rows.data.column(roles.ids[0]).slice(row, 1))[0].as_py() if roles.ids else None


def _token_ids(column: pa.Array, offsets: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Ids of rows that have as many as log-probs; what has another number of them names other tokens, too."""
    lists = Lists.of("token_ids", column)
    known = np.diff(lists.offsets) == np.diff(offsets)
    if not known.any():
        return None
    ids = np.full(int(offsets[-1]), -1, np.int64)
    of_known_rows, of_known_ids = (np.repeat(known, np.diff(ends)) for ends in (offsets, lists.offsets))
    # A null among ids, which makes floats of them, is no id.
    ids[of_known_rows] = np.nan_to_num(lists.values[of_known_ids], nan=-1).astype(np.int64)
    return ids
