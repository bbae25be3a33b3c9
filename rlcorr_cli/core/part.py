"""What is measured of some sequences, ready to be folded by group."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from rlcorr_cli.core.fold import Fold
from rlcorr_cli.core.quantities import Columns
from rlcorr_cli.totals.histogram import Floats
from rlcorr_cli.totals.tail import WHOLE_SIZE, Tail


@dataclass(frozen=True, kw_only=True)
class Part:
    """Columns of some sequences with the group of each, under one prefix; beside: more that are not resampled.

    counted: name -> values to make a histogram of.  log_weights: name -> those, logs, masses or distances, whose
    largest are kept.
    Either has one value for each token [V] or for each sequence [B].
    """

    columns: Columns
    fold: Fold
    beside: Columns = field(default_factory=Columns)
    counted: Mapping[str, Floats] = field(default_factory=dict[str, Floats])
    log_weights: Mapping[str, Floats] = field(default_factory=dict[str, Floats])
    prefix: str = ""

    @classmethod
    def of_tokens(cls, columns: Columns, fold: Fold, log_ratio: Floats, prefix: str = "") -> "Part":
        """With the histogram of the tokens' log-ratios, and the upper tails of rho and of e^S."""
        weights = {"token": log_ratio, "sequence": columns.sums["log_ratio"]}
        return cls(columns=columns, fold=fold, counted={"log_ratio": log_ratio}, log_weights=weights, prefix=prefix)

    @property
    def all_columns(self) -> Columns:
        """With those beside."""
        return self.columns | self.beside

    @cached_property
    def tails(self) -> dict[str, Tail]:
        """The largest of all these sequences', whatever their groups."""
        return {name: Tail.of(values, WHOLE_SIZE) for name, values in self.log_weights.items()}
