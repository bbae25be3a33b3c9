"""Whether files come in the order of their steps."""

from math import isfinite

from rlcorr_cli.quality.anomalies.sample import Sample


def steps_out_of_order(sample: Sample, before: Sample | None) -> str | None:
    """max(steps of this file's sample) < min(steps of the file before); a file without steps is no evidence.

    Ranges that overlap are no evidence (several ranks of one step), nor are steps that fall within a sample: such rows
    were shuffled, and files of shuffled rows have no order.
    """
    steps, earlier = _range(sample), None if before is None else _range(before)
    if before is None or steps is None or earlier is None or steps[1] >= earlier[0]:
        return None
    return f"its rows start at step {steps[0]:.15g}, after step {earlier[1]:.15g} in {before.path}"


def _range(sample: Sample) -> tuple[float, float] | None:
    first, last = sample.step
    if first is None or last is None or not (isfinite(first) and isfinite(last)) or first > last:
        return None
    return first, last
