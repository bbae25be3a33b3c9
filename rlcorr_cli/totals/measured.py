"""Measured: the totals of any number of shards, which is what a worker sends back and what adds."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rlcorr_cli.totals.binned import Pictures
from rlcorr_cli.totals.summary import GroupKey, Replicates, Summary
from rlcorr_cli.totals.whole import Whole


@dataclass(frozen=True)
class Measured:
    """Totals of any number of shards: summaries by leaf key, bootstrap replicates, pictures, rows per input path, and
    what is kept of the dump as a whole."""

    leaves: Mapping[GroupKey, Summary] = field(default_factory=dict[GroupKey, Summary])
    replicates: Replicates | None = None
    pictures: Pictures | None = None
    rows: Mapping[str, int] = field(default_factory=dict[str, int])
    whole: Whole | None = None

    def __add__(self, other: "Measured") -> "Measured":
        return gather((self, other))


def gather(parts: Iterable[Measured]) -> Measured:
    """The sum of any number of Measureds, none included; one pass, whatever the number of leaves."""
    leaves: dict[GroupKey, Summary] = {}
    replicates: Replicates | None = None
    pictures: Pictures | None = None
    whole: Whole | None = None
    rows: Counter[str] = Counter()
    for part in parts:
        for key, summary in part.leaves.items():
            leaves[key] = leaves[key] + summary if key in leaves else summary
        if part.replicates is not None:
            replicates = part.replicates if replicates is None else replicates + part.replicates
        if part.pictures is not None:
            pictures = part.pictures if pictures is None else pictures + part.pictures
        if part.whole is not None:
            whole = part.whole if whole is None else whole + part.whole
        rows.update(part.rows)
    return Measured(leaves, replicates, pictures, dict(rows), whole)
