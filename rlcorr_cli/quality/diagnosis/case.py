"""A Case: everything that the rules of a diagnosis look at, worked out once."""

from dataclasses import dataclass
from functools import cached_property

from rlcorr_cli.quality.diagnosis.features import Features, features_of
from rlcorr_cli.quality.diagnosis.step import Step, step_of
from rlcorr_cli.quality.diagnosis.vocabulary import ByToken, Repetition, by_token, repetition
from rlcorr_cli.totals.gap import PARTS, PLACE_SUMS, GapTotals


@dataclass(frozen=True)
class Context:
    """What a dump calls its columns: of rollout's log-probs and training's, and of the advantages, else rewards, that
    went into the totals (None without either)."""

    rollout: str = "rollout_log_probs"
    train: str = "old_log_probs"
    advantage: str | None = None


@dataclass(frozen=True)
class Case:
    """The totals of a dump with their context, and what follows from them."""

    totals: GapTotals
    context: Context

    @cached_property
    def features(self) -> Features:
        """See Features."""
        return features_of(self.totals)

    @cached_property
    def step(self) -> Step | None:
        """See Step."""
        return step_of(self.totals)

    @cached_property
    def by_token(self) -> ByToken | None:
        """None without token ids."""
        return None if self.totals.vocabulary is None else by_token(self.totals.vocabulary)

    @cached_property
    def repetition(self) -> Repetition | None:
        """None without token ids, or with too few repeated tokens."""
        return None if self.totals.vocabulary is None else repetition(self.totals.vocabulary)

    @property
    def goes_with_token(self) -> bool:
        """Whether d goes with the token, as it does where weights differ."""
        return self.by_token is not None and self.by_token.holds

    def place(self, *parts: str) -> dict[str, float]:
        """PLACE_SUMS by name over some parts."""
        sums = self.totals.places[[PARTS.index(part) for part in parts]].sum(axis=0)
        return dict(zip(PLACE_SUMS, map(float, sums), strict=True))
