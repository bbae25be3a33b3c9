"""Which clusters a report's intervals were drawn over, as a value: prompts, rollouts, or what else was asked for."""

from dataclasses import dataclass
from typing import Any

from rlcorr_cli.errors import plural
from rlcorr_cli.metrics.interval import FEW_CLUSTERS, FEWEST_CLUSTERS
from rlcorr_cli.reading.names import NO_CLUSTERS, PROMPTS, ROLLOUTS
from rlcorr_cli.records import Record
from rlcorr_cli.totals.replicates import Replicates


@dataclass(frozen=True, kw_only=True)
class Clusters(Record):
    """by: the column whose rows of one value were drawn together, ROLLOUTS for rows of one rollout, NO_CLUSTERS for
    every row by itself.  n: how many; exact: whether they were counted, else it is an estimate, to 0.3 %."""

    by: str
    n: int
    exact: bool = True

    @classmethod
    def of(cls, by: Any, replicates: Replicates | None) -> "Clusters | None":
        """From the replicates; None where nothing was resampled."""
        if replicates is None:
            return None
        return cls(by=str(by), n=replicates.clusters.n, exact=replicates.clusters.exact)

    @property
    def too_few(self) -> bool:
        """Whether they are too few for an interval, a test or a verdict."""
        return self.n < FEWEST_CLUSTERS

    @property
    def few(self) -> bool:
        """Whether they are too few for intervals to be fully trusted; too_few is a part of that."""
        return self.n < FEW_CLUSTERS

    @property
    def notes(self) -> tuple[str, ...]:
        """That they are few, in a sentence; nothing where they are not."""
        if self.too_few:
            return (f"{self.words}: too few for intervals, which take {FEWEST_CLUSTERS} (`rlcorr help intervals`).",)
        if self.few:
            return (
                f"Intervals rest on {self.words}. Below {FEW_CLUSTERS} they may hold the truth less often than 95 % of "
                "the time (`rlcorr help intervals`).",
            )
        return ()

    @property
    def counted(self) -> str:
        """'8 prompts', 'about 250,000 rollouts'."""
        of_column = "prompt" if self.by in PROMPTS else "cluster"
        unit = {ROLLOUTS: "rollout", NO_CLUSTERS: "sequence"}.get(self.by, of_column)
        return plural(self.n, unit) if self.exact else f"about {self.n:,} {unit}s"

    @property
    def words(self) -> str:
        """The count, with the column's name: '8 prompts (group_id)'."""
        return self.counted if self.by in (ROLLOUTS, NO_CLUSTERS) else f"{self.counted} ({self.by})"
