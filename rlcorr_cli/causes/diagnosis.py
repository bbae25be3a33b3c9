"""A Diagnosis: which causes explain the gap between two policies, and where it sits; and what is suspected of files.

Records: their fields are the keys of their JSON.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Annotated, Any, Literal, Self

from rlcorr_cli.causes.table import ALL_CAUSES, CAUSES
from rlcorr_cli.causes.wording import percent
from rlcorr_cli.frozen import frozen
from rlcorr_cli.records.fields import HIDDEN, Interval, Key, Number, Scalar
from rlcorr_cli.records.record import Record

Parameter = float | str
Bound = Literal["at_least", "at_most"]
Certainty = Literal["proven", "likely", "one of", "unclear"]
"""proven: a bound or an identity is broken.  likely: the statistics of its rule say so.  one of: another reading is as
good.  unclear: none stands out."""
UNCLEAR, CLEAN, TOO_FEW = "no_cause", "none", "too_few"
"""Verdicts that name no cause: nothing stands out, the policies are equal, there is too little to say."""


@frozen
class SampledRows(Record):
    """The rows of a dump that a cause was sought in, and their valid tokens."""

    rows: int
    tokens: int


@frozen(kw_only=True)
class CauseFinding(Record):
    """A cause that the data show.

    cause: its name in CAUSES.  share: of the gap, the sum of l^2, which it explains, at least or at most (a bound).
    token_share: the share of all tokens on which it sits, None where that is all or most of them.
    parameters: what it comes to, such as {"top_p": 0.8}, the telling one first; of a column its name and its guilty
    levels, {"column": "worker", "levels": "w3"}.  intervals: 95% intervals of those that have one.  is_minor: whether
    it explains too little to be a verdict.  explains: anomalies of files that this cause makes by itself, which are no
    fault then.  headline: what it is, in a clause that starts with a noun.  evidence: sentences with the numbers that
    say so.  advice: what to do; the judge takes it from CAUSES where a rule gives none.
    certainty: see Certainty.  alternatives: the other readings of a cause that is one of several, by their names.
    sample: the rows in which it was found, where these are not all.
    """

    cause: str
    share: float
    bound: Annotated[Bound, Key(name="share_bound")] = "at_least"
    share_interval: Interval | None = None
    token_share: float | None = None
    parameters: Mapping[str, Parameter] = field(default_factory=dict[str, Parameter])
    intervals: Mapping[str, Interval] = field(default_factory=dict[str, Interval])
    is_minor: bool = False
    explains: Annotated[tuple[str, ...], HIDDEN] = ()
    headline: str
    evidence: tuple[str, ...]
    advice: str = ""
    certainty: Certainty = "likely"
    alternatives: tuple[str, ...] = ()
    sample: Annotated[SampledRows | None, HIDDEN] = None

    @classmethod
    def of_keys(cls, values: dict[str, Any]) -> Self:
        """What JSON has; a ValueError of a cause that this release does not know."""
        if unknown := {values["cause"], *values["alternatives"]} - set(CAUSES):
            raise ValueError(f"cause: this release knows no {min(unknown)}")
        return super().of_keys(values)

    @property
    def claim(self) -> str:
        """The headline, and what else it may be: 'rounding noise, or changed weights'."""
        return ", or ".join([self.headline, *(CAUSES[name].reading for name in self.alternatives)])

    @property
    def share_words(self) -> str:
        """'It explains at least 61% of the gap (the sum of squared log-ratios), on 23% of the tokens'; no more than all
        of it."""
        part = percent(self.share)
        bound = "" if part == "100%" else {"at_least": "at least ", "at_most": "at most "}[self.bound]
        words = f"It explains {bound}{part} of the gap (the sum of squared log-ratios)"
        words += "" if self.token_share is None else f", on {percent(self.token_share)} of the tokens"
        return words if self.sample is None else f"{words}, in a sample of {self.sample.rows:,} rows"


@frozen
class Impossible(Record):
    """A metric that cannot have its value, its 95% interval, and the sentences of what that proves."""

    metric: str
    value: float
    interval: Interval
    proves: str

    def follows_from(self, cause: str) -> bool:
        """Whether the cause of a gap explains the value, so that there is nothing else to look for."""
        moves = ALL_CAUSES[cause].moves_mean
        return moves in ("either", "below" if self.value < 1 else "above")


@frozen
class Fact(Record):
    """What is always told, cause or not: the grid that a column is stored on."""

    name: str
    sentence: str


@frozen(kw_only=True)
class LevelGap(Record):
    """What one level of a column holds of all tokens, of k3 and of the gap (shares, with 95% intervals of k3's and the
    gap's), and the share of the gap that its tokens' surprise alone would give.

    size: the typical |r| of its rows over the others'; z: of that; None where there are too few.  is_hot: whether it
    stands out, in size and beyond chance among all levels that were tried.
    """

    level: Scalar
    rows: int
    tokens: int
    token_share: float
    k3: float
    k3_interval: Interval | None
    gap: float
    gap_interval: Interval | None
    expected: float
    size: float | None = None
    z: float | None = None
    is_hot: Annotated[bool, Key(name="hot")] = False


@frozen(kw_only=True)
class ColumnGap(Record):
    """The levels of a column, in order.  trend, trend_z: of a column of numbers, the factor by which |r| grows from its
    lowest to its highest value, along a line; grows: whether that stands out.  too_many: more levels than are kept."""

    column: str
    levels: tuple[LevelGap, ...]
    trend: float | None = None
    trend_z: float | None = None
    grows: bool = False
    too_many: bool = False


@frozen
class PlaceGap(Record):
    """Tokens of a row from this place on, to the next one: how many, and the typical |r|."""

    first: Annotated[int, Key(name="from")]
    tokens: int
    size: float | None


@frozen(kw_only=True)
class Leg(Record):
    """What lies between two of three policies' log-probs, by their columns.

    share: of the gap between the first policy and the last, sum l_leg l / sum l^2; those of all legs add to 1, and one
    that undoes another's is below 0.  k3, sum_sq: of the leg alone.  verdict, words: what was found on it.
    """

    first: Annotated[str, Key(name="from")]
    last: Annotated[str, Key(name="to")]
    share: float
    k3: float | None
    sum_sq: float
    verdict: str
    words: str


def legs_words(legs: tuple[Leg, ...]) -> str:
    """'Of the gap between rollout_log_probs and old_log_probs, 97% lies between rollout_log_probs and
    prefill_log_probs, and 3% between prefill_log_probs and old_log_probs.'; empty of none."""
    if not legs:
        return ""
    if min(leg.share for leg in legs) < -1:
        return f"{legs[0].first} and {legs[-1].last} agree, and {legs[0].last} lies apart from both."
    first, *others = [f"between {leg.first} and {leg.last}" for leg in legs]
    shares = [percent(leg.share) for leg in legs]
    rest = "".join(f", and {share} {words}" for share, words in zip(shares[1:], others, strict=True))
    return f"Of the gap between {legs[0].first} and {legs[-1].last}, {shares[0]} lies {first}{rest}."


LEAST, LITTLE, OPPOSED = 0.02, 0.1, 1.5
"""A smaller share of a change is not told beside others, nor by itself; nor are shares that cancel beyond this."""


@frozen(kw_only=True)
class StepChange(Record):
    """What the change of the mean l^2 from the first steps to the last is made of, as shares of it that add to 1.

    error: a larger or smaller gap of tokens of equal surprise and place.  surprise, length: more or fewer surprised
    tokens, and later ones.  established: whether the gap of clusters rises or falls likewise by more than chance.
    """

    first: Annotated[Scalar, Key(name="from")]
    last: Annotated[Scalar, Key(name="to")]
    mean_before: float
    mean_after: float
    error: float
    surprise: float
    length: float
    established: bool

    @property
    def words(self) -> str:
        """'The rise is real: tokens of the same rollout probability differ more than before.'"""
        rises = self.mean_after > self.mean_before
        rise, more, less = ("rise", "more", "less") if rises else ("fall", "less", "more")
        if max(map(abs, (self.error, self.surprise, self.length))) > OPPOSED:
            return (
                "The difference of similar tokens and the kinds of tokens changed in opposite directions: no shares of "
                f"the {rise} are told."
            )
        if self.error >= self.surprise + self.length and max(abs(self.surprise), abs(self.length)) < LITTLE:
            return f"The {rise} is real: tokens of the same rollout probability differ {more} than before."
        surprise, length = round(self.surprise, 2), round(self.length, 2)
        few, short = ("fewer", "shorter") if rises else ("more", "longer")
        many, long = ("more", "longer") if rises else ("fewer", "shorter")
        parts = (
            (1 - surprise - length, f"similar tokens now differ {more}", f"similar tokens now differ {less}"),
            (surprise, f"{many} unlikely tokens are sampled", f"{few} unlikely tokens are sampled"),
            (length, f"responses are {long}", f"responses are {short}"),
        )
        with_it = [(share, why) for share, why, _ in sorted(parts, reverse=True) if share >= LEAST]
        against = "".join(f"; that {why} takes {percent(-share)} off" for share, _, why in parts if share <= -LEAST)
        (first, why), *others = with_it
        more_parts = "".join(f", {percent(share)} because {why}" for share, why in others)
        return f"{percent(first)} of the {rise} is because {why}{more_parts}{against}."


@frozen
class NotLookedFor(Record):
    """A cause that takes what the dump lacks."""

    cause: str
    needs: str


@frozen(kw_only=True)
class VersionGap(Record):
    """Tokens that were sampled so many versions behind the newest weights of their row: how many, their share of all
    such tokens, their mean k3, and their share of the gap."""

    behind: int
    tokens: int
    token_share: float
    k3: float | None
    gap: float


@frozen
class HeadGap(Record):
    """Distances of the two policies over recorded heads, all other tokens of the vocabulary as one: of so many tokens,
    the mean total variation, the mean KL(rollout || training) in nats, and the mean k3 of the tokens sampled there."""

    tokens: int
    tv: float
    kl: float
    k3: float | None


@frozen(kw_only=True)
class KeptGap(Record):
    """The policies over the sampler's kept sets, each log-prob less the log of what its policy gives to the set: of so
    many tokens, the mean k3 and the standard deviation of the log-ratio; rollout_mass, train_mass: the mean probability
    that each policy's column has in the set."""

    tokens: int
    k3: float | None
    sd: float
    rollout_mass: float
    train_mass: float


@frozen(kw_only=True)
class Gap(Record):
    """sum_sq: of the log-ratios, which shares are of; sd: their standard deviation; core: the root mean square of the
    difference in log-odds, without rare tokens that are far off.  sample: the rows that all of these are of, where they
    are not all.  by_version: by versions of the weights within rows, where each token's is known.  head: over top-k
    heads, where both sides recorded them.  kept: over the sampler's kept sets, where both log-probs can be had over
    them."""

    sum_sq: float
    k3_kl: float | None
    sd: float | None
    core: float | None
    sample: Annotated[SampledRows | None, Key(omit=True)] = None
    by_version: Annotated[tuple[VersionGap, ...], Key(omit=True)] = ()
    head: Annotated[HeadGap | None, Key(omit=True)] = None
    kept: Annotated[KeptGap | None, Key(omit=True)] = None


@frozen(kw_only=True)
class AnomalyFinding(Record):
    """An anomaly of a dump: the first file that shows it, the evidence there, and how many files show it."""

    name: str
    path: str
    evidence: str
    fix: Annotated[str, Key(name="cure")]
    n_files: int
    certainty: Annotated[Certainty, HIDDEN] = "proven"

    @property
    def voids(self) -> bool:
        """Whether no number of such a file means what its name says."""
        return self.name in ALL_CAUSES and ALL_CAUSES[self.name].voids


@frozen(kw_only=True)
class Diagnosis(Record):
    """Of a whole dump or a group of its rows.

    verdict: the name of the first cause, or UNCLEAR, CLEAN, TOO_FEW; conclusion: that in a sentence where it names no
    cause.  causes: all that hold, in order.  columns: by column, `length` among them; turns, surprise: the same by run
    of the mask and by the bins of u, whose levels are the bins' lower ends.  features: the numbers that the rules look
    at.  impossible: a mean ratio that proves a column wrong.
    """

    gap: Gap
    verdict: str
    conclusion: str
    causes: tuple[CauseFinding, ...]
    facts: tuple[Fact, ...] = ()
    columns: tuple[ColumnGap, ...] = ()
    turns: tuple[LevelGap, ...] = ()
    surprise: tuple[LevelGap, ...] = ()
    places: Annotated[tuple[PlaceGap, ...], Key(name="positions")] = ()
    features: Mapping[str, Number] = field(default_factory=dict[str, float | None])
    not_looked_for: tuple[NotLookedFor, ...] = ()
    impossible: Impossible | None = None
    between_steps: Annotated[StepChange | None, Key(omit=True)] = None
    legs: Annotated[tuple[Leg, ...], Key(omit=True)] = ()
    """Where the dump has a third policy's log-probs."""
    exact: Annotated[tuple[AnomalyFinding, ...], HIDDEN] = ()
    """What columns show exactly, whatever the gap: no cause is looked for beside it."""

    @property
    def cause(self) -> CauseFinding | None:
        """The cause that the verdict names, if it names one."""
        return next((each for each in self.causes if each.cause == self.verdict), None)

    @property
    def certainty(self) -> Certainty:
        """Of the verdict."""
        if self.cause is None:
            return "likely" if self.verdict == CLEAN else "unclear"
        return self.cause.certainty


ENDS = ("unmasked_prompt", "unmasked_padding")


def unexplained(anomalies: Iterable[AnomalyFinding], diagnosis: Diagnosis) -> tuple[AnomalyFinding, ...]:
    """What columns show exactly, and the anomalies without those that this or the likely cause makes by itself."""
    known = {each.name: each for each in anomalies}
    # Zeros at the ends of rows are of a prompt or of padding; values that are none of tokens may look like those.
    exact = {each.name: each for each in diagnosis.exact if each.name != "unscored_zeros" or not known.keys() & {*ENDS}}
    explained = {*exact, *(() if diagnosis.cause is None else diagnosis.cause.explains)}
    if exact:
        explained |= {"swapped_columns", *(ENDS if exact.keys() - {"floor_value", "unscored_zeros"} else ())}
    return (*exact.values(), *(each for each in known.values() if each.name not in explained))


def standing(
    anomalies: Iterable[AnomalyFinding], diagnosis: Diagnosis
) -> tuple[tuple[AnomalyFinding, ...], CauseFinding | None]:
    """The anomalies that stay unexplained, and the likely cause; None where one of them voids the numbers that it was
    read from, which is the verdict then."""
    left = unexplained(anomalies, diagnosis)
    return left, None if any(each.voids for each in left) else diagnosis.cause
