"""DIR.tb: scalars per step, under the names of the profile, so that they lie beside the trainer's own curves.

Takes the extra `tensorboard` (tensorboardX).  Without a profile the names are rlcorr/METRIC.
"""

from pathlib import Path

from rlcorr_cli.errors import OutputError, UsageError
from rlcorr_cli.report.report import Group, Report


def write(report: Report, path: Path) -> None:
    """Write one event file into the directory."""
    steps = [(_step(group), group) for group in report.groups]
    if not steps or any(step is None for step, _ in steps):
        raise UsageError("TensorBoard needs steps: groups by one column of whole numbers.", "Add --group-by step.")
    from tensorboardX import SummaryWriter

    prefix = "rlcorr/" if report.profile == "canonical" else ""
    try:
        with SummaryWriter(str(path)) as out:
            for step, group in steps:
                for name, value in group.metrics.items():
                    if value is not None:
                        out.add_scalar(f"{prefix}{name}", value, step)
    except OSError as error:
        raise OutputError(f"Cannot write {path}: {error.strerror}.", "Name another place with -o.") from None


def _step(group: Group) -> int | None:
    values = list(group.key.values())
    whole = len(values) == 1 and isinstance(values[0], int) and not isinstance(values[0], bool)
    return values[0] if whole else None
