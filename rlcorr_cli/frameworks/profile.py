"""What a profile is: one framework release whose own metrics rlcorr reports, under its names."""

from collections.abc import Callable
from dataclasses import dataclass, field

from rlcorr_cli.frameworks.config import Config
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.totals.families import Values
from rlcorr_cli.totals.normalize import BatchMean
from rlcorr_cli.totals.view import Numbers


def _nothing(*_: object) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One framework release: its config -> Plan, our totals -> its metrics.

    keys: its config keys (a file with any of them under one of `blocks`, or at top level, is its config).
    write: totals and a plan that `read` made -> the framework's metrics, by its names.
    batch_mean: what it divides weights by where the plan normalises them.
    by_rollout: whether it averages over rollouts, where a dump tells which sample is of which.
    Three kinds of notes.  notes: what a user of such a plan should know about the framework.  ignored: options of the
    config that the framework reads and does nothing with.  remarks: what a report of its
    numbers should say: what the data made of them, and how far the release's own may lie from them.
    """

    name: str
    keys: tuple[str, ...]
    blocks: tuple[tuple[str, ...], ...]
    read: Callable[[Config], Plan]
    write: Callable[[Numbers, Plan], Values]
    batch_mean: BatchMean = field(default_factory=BatchMean)
    by_rollout: bool = False
    notes: Callable[[Plan], tuple[str, ...]] = _nothing
    ignored: Callable[[Config], tuple[str, ...]] = _nothing
    remarks: Callable[[Numbers, Plan], tuple[str, ...]] = _nothing
