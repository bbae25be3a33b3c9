"""A saved report in the place of a dump: what cannot be asked of it."""

from collections.abc import Sequence

from rlcorr_cli.cli.option_groups import PlanOptions, ReadingOptions
from rlcorr_cli.errors import UsageError


def check_alone(
    read: ReadingOptions, plan: PlanOptions, group_by: Sequence[str] | None, profile: str = "canonical"
) -> None:
    """A saved report has its plan and its groups already."""
    if read != ReadingOptions() or plan != PlanOptions() or group_by or profile != "canonical":
        raise UsageError("A saved report cannot be read under another plan or grouping.", "Name the dump itself.")
