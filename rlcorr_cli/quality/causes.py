"""ALL_CAUSES: anomalies of files and causes of a gap in one table, as `rlcorr explain causes` lists them."""

from collections.abc import Mapping

from rlcorr_cli.quality.anomalies import ANOMALIES
from rlcorr_cli.quality.cause import Cause
from rlcorr_cli.quality.diagnosis.causes import CAUSES

ALL_CAUSES: Mapping[str, Cause] = {**{row.name: row for row in ANOMALIES}, **CAUSES}
"""Name -> the row, those of files first: one that holds voids what else a dump seems to say."""

NOISE = "noise"
"""The one cause that nothing has to be done about."""
ANY_CAUSE = "cause"
"""What stands for every cause but noise, where a run is to fail on some."""
