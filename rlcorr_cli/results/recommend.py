"""Which of several plans to take, by a rule of four steps, and why; or why a dump cannot tell.

Flags say what kind of gap there is, the first that holds being the headline.  The plan of the largest `worth` is
taken; of plans within a hair of it, the one with the fewest records.  The rule was found in simulation (tabular
policies, exact gradients: `rlcorr help choosing`), where it lost 0.014 of the best plan's progress on average at 16,384
sequences, no correction 0.034.  Its words are here, too, because the JSON report holds them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Annotated, Literal

from rlcorr_cli.errors import plural
from rlcorr_cli.frozen import frozen
from rlcorr_cli.metrics.comparison import COMPARISON
from rlcorr_cli.metrics.interval import FEWEST_CLUSTERS
from rlcorr_cli.plans.plan import Mode, Plan, Rejection
from rlcorr_cli.records.fields import HIDDEN, Form, Key, Number
from rlcorr_cli.records.record import Record
from rlcorr_cli.results.course import BREAKS_AT_END
from rlcorr_cli.results.groups import Clusters, Intervals
from rlcorr_cli.results.objective import ObjectiveReport
from rlcorr_cli.results.story import Story
from rlcorr_cli.results.suggest import GeometricBounds
from rlcorr_cli.results.usable import Usable, tail_answer
from rlcorr_cli.totals.view import Value

Flag = Literal["moved", "outliers", "far", "near", "weight"]
FLAGS: tuple[Flag, ...] = ("moved", "outliers", "far", "near", "weight")

MOVED = 0.2
"""A shift of the advantages, in standard deviations, that is more than noise of the engine."""
ERRORS = 3.0
"""Standard errors beyond which a shift is no chance."""
USABLE_TOKEN_ESS = 0.9
FEW_TOKENS_TV = 0.05
"""Below this total variation of tokens, a low token_ess is the doing of a few of them."""
FAR_TOKEN_TV = 0.1
NEAR_SEQ_TV = 0.05
TIE, NEAR_TIE = 0.01, 0.02
FEWEST_SEQUENCES = 32
"""Fewer sequences cannot tell plans apart."""
LEAST_WORTH = 0.3
USABLE_INFO = 0.5
"""A plan that leaves less of the batch loses more than half of it."""
HARMLESS_INFO = 0.99
STALE = ("", "stale_policy", "drift")
"""Causes beside which policies that earn different rewards are stale; the first stands for none that is known."""
KEEP = 0.95
"""The share of sequences that suggested bounds keep."""
MANY_SEQUENCES = 5000
"""Gradients averaged over more sequences can afford sequence weights."""
MOST_REASONS = 4
FEWEST_KEPT = 20
"""Sequences kept from which on what a rejection prefers is told: with 2 to 7, 7 of 60 null dumps had 3 errors."""


PlanColumns = Annotated[
    Mapping[str, Number],
    Form(
        name="plan_columns",
        about="What a plan leaves of the dump and what it costs; `rlcorr explain NAME` defines each.",
        keys=tuple(metric.name for metric in COMPARISON),
    ),
]


@frozen(kw_only=True)
class PlanValues(Record):
    """A plan that was compared.  also: other names of it.  values: its columns.  intervals: 95% ones of some.

    is_named: whether it was asked for by name.  objective: what a policy objective makes of it, if one was asked for;
    of a group there are its numbers alone, objective_metrics, by full name.
    """

    name: str
    also: tuple[str, ...] = ()
    plan: Plan
    values: PlanColumns
    intervals: Intervals = field(default_factory=dict[str, tuple[float, float]])
    objective: ObjectiveReport | None = None

    is_named: Annotated[bool, HIDDEN] = False
    objective_metrics: Annotated[Mapping[str, Value], HIDDEN] = field(default_factory=dict[str, Value])

    @property
    def worth(self) -> float:
        """Its worth; 0 where there is none."""
        return self.values["worth"] or 0.0

    @property
    def info(self) -> float:
        """Its info; 0 where there is none."""
        return self.values["info"] or 0.0


@frozen(kw_only=True)
class Reason(Record):
    """A sentence or two, what they are about, their numbers, and an option to copy where they end in one."""

    code: str
    text: str
    option: Annotated[str, Key(about="To copy; empty where there is none.")] = ""
    values: Mapping[str, Number] = field(default_factory=dict[str, Value])


@frozen(kw_only=True)
class Recommendation(Record):
    """The plan to take (None where the dump cannot tell), in a sentence; all flags that hold; plans that do as well.

    usable: which weights leave a usable sample, as the verdict of `analyze` has it.  far_end: the last step, where it
    is outside limits that fail `check`.
    """

    plan: str | None
    headline: str
    flags: tuple[Flag, ...]
    usable: Usable
    ties: tuple[str, ...]
    reasons: tuple[Reason, ...]
    far_end: Annotated[str, Key(omit=True)] = ""


@frozen(kw_only=True)
class Evidence:
    """What a recommendation is made of.

    n_sequences: of at least one valid token.  metrics: the dump's diagnostics in the mode of the first plan, with
    advantage_shift and its standard error advantage_shift_se, None where they cannot be told.  plans: in the order of
    preference.  advantages_differ: whether there are any that are not all equal.  bounds: by mode, geometric bounds
    that keep KEEP of the sequences.  usable: which weights are, as the verdict has it.  story: what is wrong with the
    dump, which is said before any plan.  far_end: as of Recommendation.
    """

    n_sequences: int
    metrics: Mapping[str, Value]
    plans: Sequence[PlanValues]
    advantages_differ: bool
    usable: Usable
    bounds: Mapping[Mode, GeometricBounds] = field(default_factory=dict[Mode, GeometricBounds])
    story: Story = field(default_factory=Story)
    far_end: str = ""
    clusters: Clusters | None = None


def recommend(evidence: Evidence) -> Recommendation:
    """The plan to take, with its reasons."""
    flags = flags_of(evidence.metrics)
    ranked = _ranked(evidence, flags)
    unknown = _cannot_tell(evidence, flags)
    if unknown is not None:
        reasons = _reasons(evidence, flags, None)
        if evidence.story.is_fault and not evidence.story.voids:
            unknown = f"{evidence.story.headline} Fix this first. {unknown}"
        return Recommendation(
            plan=None, headline=unknown, flags=flags, usable=evidence.usable, ties=(), reasons=reasons
        )
    chosen, *ties = ranked
    return Recommendation(
        plan=chosen.name,
        headline=_headline(chosen, flags, evidence),
        flags=flags,
        usable=evidence.usable,
        ties=tuple(plan.name for plan in ties),
        reasons=_reasons(evidence, flags, chosen),
        far_end=evidence.far_end,
    )


def flags_of(metrics: Mapping[str, Value]) -> tuple[Flag, ...]:
    """Every flag that holds, the headline first."""
    shift, error = metrics.get("advantage_shift"), metrics.get("advantage_shift_se")
    token_ess, token_tv, seq_tv = (metrics.get(name) for name in ("token_ess", "token_tv", "seq_tv"))
    flags: list[Flag] = []
    if shift is not None and error is not None and abs(shift) > max(MOVED, ERRORS * error):
        flags.append("moved")
    # A sample size that float64 cannot hold is none.
    is_spread = token_ess is None or token_ess < USABLE_TOKEN_ESS
    if is_spread and token_tv is not None and token_tv < FEW_TOKENS_TV:
        flags.append("outliers")
    elif is_spread or token_tv is None or token_tv > FAR_TOKEN_TV:
        flags.append("far")
    if not flags:
        flags.append("near" if seq_tv is not None and seq_tv < NEAR_SEQ_TV else "weight")
    return tuple(flags)


def _ranked(evidence: Evidence, flags: Sequence[Flag]) -> list[PlanValues]:
    """The plans that do as well as the best, the one to take first."""
    plans = list(evidence.plans)
    if "outliers" in flags:
        bounded = [plan for plan in plans if _bounds_tokens(plan.plan)]
        plans = bounded if any(plan.info >= USABLE_INFO for plan in bounded) else plans
    reach = NEAR_TIE if flags[0] == "near" else TIE
    best = max((plan.worth for plan in plans), default=0.0)
    tied = [plan for plan in plans if plan.worth >= best - reach]
    # Sorting is stable: the list's order decides among equals.
    return sorted(tied, key=lambda plan: (_n_records(plan.plan) == 0, _n_records(plan.plan)))


def _bounds_tokens(plan: Plan) -> bool:
    """Whether tokens outside bounds count for nothing under a plan."""
    weighting = plan.applied_weighting
    zeroes = weighting is not None and weighting.scope == "token" and weighting.outside == "zero"
    return zeroes or any(rule.takes_tokens and rule.applied for rule in plan.rules)


def _n_records(plan: Plan) -> int:
    return (plan.applied_weighting is not None) + sum(rule.applied for rule in plan.rules)


def _cannot_tell(evidence: Evidence, flags: Sequence[Flag]) -> str | None:
    """Why no plan is named, and what would settle it; None where one is."""
    if evidence.story.voids:
        return f"{evidence.story.headline} Fix this first: no plan can be named before."
    n = evidence.n_sequences
    if n < FEWEST_SEQUENCES:
        counted = "One sequence is" if n == 1 else f"{n} sequences are"
        return f"{counted} too few to compare plans: use at least {FEWEST_SEQUENCES}, better several hundred."
    if evidence.clusters is not None and evidence.clusters.too_few:
        are = "is" if evidence.clusters.n == 1 else "are"
        return (
            f"{evidence.clusters.words} {are} too few to compare plans, however many sequences there are: use at "
            f"least {FEWEST_CLUSTERS}, better several hundred."
        )
    if all(plan.values.get("info") is None for plan in evidence.plans):
        return (
            "There is nothing to weight: every advantage is 0 or too large to be squared, or every token was certain."
        )
    best = max(plan.worth for plan in evidence.plans)
    # What no correction is worth: where that is enough, the gap is not what is wrong.
    untouched = 1 - (1.0 if (seq_tv := evidence.metrics.get("seq_tv")) is None else seq_tv)
    if best < LEAST_WORTH <= untouched:
        return (
            f"None of these plans helps: the best is worth {share(best)} of the batch, and no correction at all is "
            f"worth {share(untouched)}. Compare others: without a preset or a plan, `compare` uses its own "
            "list."
        )
    if best < LEAST_WORTH:
        act = f"Fix {evidence.story.to_fix or 'the cause of the gap'}"
        return (
            f"No plan is safe: the best is worth {share(best)} of the batch. {act}, or sample "
            "again with the current weights."
        )
    # Advantages whose shift rests on too few effective sequences still tell plans apart, as they did in simulation.
    if flags[0] == "far" and not evidence.advantages_differ:
        return (
            "The gap is too large to recommend a plan without advantages, which would show whether the policies earn "
            f"different rewards. Name their column (map advantages=COLUMN), and {evidence.story.act} first."
        )
    return None


_STARTS: Mapping[Flag, str] = {
    "near": "There is almost nothing to correct. ",
    "far": "No correction makes up for a gap of this size. {act} first. Least harmful meanwhile: ",
    "moved": "No plan is safe: the policies earn different rewards. {act}. Least harmful meanwhile: ",
}
"""Headline flag -> what stands before the plan."""


def _headline(chosen: PlanValues, flags: Sequence[Flag], evidence: Evidence) -> str:
    if evidence.story.is_fault:
        return f"{evidence.story.headline} Fix this first. Least harmful meanwhile: {chosen.name}."
    acts = _acts(chosen.plan)
    act = "shorten the lag" if flags[0] == "moved" and evidence.story.to_fix in STALE else evidence.story.act
    start = _STARTS.get(flags[0], "").format(act=act.capitalize())
    if evidence.far_end and flags[0] != "far":
        step = f"{evidence.far_end[0].upper()}{evidence.far_end[1:]}, the last, breaks"
        start = f"{BREAKS_AT_END.format(step=step, act=evidence.story.act)} {start}"
    use = "use" if start.endswith(": ") else "Use"
    if not acts:
        return f"{start}{use} {chosen.name}: no other of these plans is better than correcting nothing."
    return f"{start}{use} {chosen.name}: it {', '.join(acts)}; {share(chosen.info)} of the batch counts."


_WEIGHTS = {
    "token": "weights every token",
    "sequence": "weights whole sequences",
    "geometric": "weights sequences by their mean ratio",
}


def _acts(plan: Plan) -> list[str]:
    """What a plan does, as predicates; nothing of no correction."""
    weighting = plan.applied_weighting
    parts = [] if weighting is None else [_WEIGHTS[weighting.scope]]
    applied = [rule for rule in plan.rules if rule.applied]
    if any(rule.takes_tokens for rule in applied) or (weighting is not None and weighting.outside == "zero"):
        parts.append("drops tokens outside its bounds")
    elif applied:
        parts.append("drops sequences outside its bounds")
    return parts


def _reasons(evidence: Evidence, flags: Sequence[Flag], chosen: PlanValues | None) -> tuple[Reason, ...]:
    """What to know beside the headline, the most important first."""
    if evidence.story.voids:
        return ()
    reasons = [_gap(evidence, flag) for flag in flags]
    if evidence.story.is_fault:  # which is to be fixed first, and all else of a plan is of other numbers then
        return tuple(reasons)
    if flags[0] == "weight" and chosen is not None and chosen.plan.corrects_mismatch and not evidence.story.to_fix:
        cost = 1 - chosen.info
        text = (
            "A dump cannot show whether the gap is systematic (it biases training) or random (it does not). If it "
            f"is random, these weights cost {share(cost)} of the batch in vain."
        )
        reasons.append(Reason(code="noise", text=text, values={"cost": cost}))
    if flags == ("moved",) or flags == ("moved", "far"):
        reasons += _sequence_weights(evidence)
    reasons += _unsure(evidence, chosen)
    reasons += _losing(evidence, chosen)
    reasons += _heavy_tails(evidence)
    reasons += _selective(evidence)
    return tuple(reasons[:MOST_REASONS])


def _gap(evidence: Evidence, flag: Flag) -> Reason:
    """What a flag says, with its numbers."""
    metrics = evidence.metrics
    shift = metrics.get("advantage_shift") or 0.0
    seq_tv, token_tv, token_ess = (metrics.get(name) for name in ("seq_tv", "token_tv", "token_ess"))
    distances = (
        f"The two policies differ by {share(seq_tv)} on whole sequences and by {share(token_tv)} on single tokens "
        "(total variation)."
    )
    drop, choice, harmless = "", "", ""
    if not evidence.story.is_fault:
        drop = " Zero or drop them."
        stale, token = ("That is staleness; ", "token") if evidence.story.to_fix in STALE else ("", "Token")
        choice = f" {stale}{token} weights are the least bad choice."
        if any(plan.info >= HARMLESS_INFO for plan in evidence.plans):
            harmless = f" Every plan with info of at least {HARMLESS_INFO} is as good."
    text = {
        "moved": f"The policies earn different rewards: training's earns {abs(shift):.2f} standard deviations of the "
        f"advantages {'more' if shift > 0 else 'less'}.{choice}",
        "outliers": f"A few tokens carry the gap (token_ess {number(token_ess)}): `rlcorr inspect DUMP --worst 5` "
        f"shows them.{drop} {distances}",
        "far": distances,
        "near": f"{distances}{harmless}",
        "weight": distances,
    }[flag]
    of = ("advantage_shift", "advantage_shift_se") if flag == "moved" else ("seq_tv", "token_tv", "token_ess")
    return Reason(code=flag, text=text, values={name: metrics.get(name) for name in of})


def _sequence_weights(evidence: Evidence) -> list[Reason]:
    """Where drift is what is wrong and the sample large, sequence weights repair more."""
    if evidence.usable.sequence == "no":
        return []
    text = (
        f"Where gradients average over more than {MANY_SEQUENCES:,} sequences, sequence weights with a cap of 10 do "
        "better (in simulation):"
    )
    option = "--is sequence:,10"
    values = {"seq_ess": evidence.metrics.get("seq_ess")}
    return [Reason(code="sequence_weights", text=text, option=option, values=values)]


def _unsure(evidence: Evidence, chosen: PlanValues | None) -> list[Reason]:
    """That the plan to take weights whole sequences, whose weights are not known to be usable."""
    if chosen is None or not _weights_at(chosen.plan, "sequence") or evidence.usable.sequence == "yes":
        return []
    n, clusters = evidence.n_sequences, evidence.clusters
    counted, why = (plural(n, "sequence"), "") if clusters is None else (clusters.counted, clusters.why_too_few)
    few = f"{counted} are too few to tell if such weights are usable{why}"
    text = {
        "no": f"{chosen.name} weights whole sequences, and sequence weights are not usable on this dump.",
        "unsure": f"{chosen.name} weights whole sequences; {few}.",
    }[evidence.usable.sequence]
    return [Reason(code="usable", text=text, values={"seq_ess": evidence.metrics.get("seq_ess")})]


def _losing(evidence: Evidence, chosen: PlanValues | None) -> list[Reason]:
    """Plans that lose more than half of the batch, those asked for by name first; with bounds that keep it if known."""
    weighed = [plan for plan in evidence.plans if plan.values.get("info") is not None]
    losing = [plan for plan in weighed if plan is not chosen and plan.info < USABLE_INFO]
    losing = [plan for plan in losing if plan.is_named] or losing
    losing = sorted(losing, key=lambda plan: float(f"{plan.info:.12g}"))[:1]  # of equals but for rounding the first
    reasons: list[Reason] = []
    for plan in losing:
        counts, bounds = f"only {share(plan.info)}" if plan.info else "nothing", evidence.bounds.get(plan.plan.mode)
        text, option = f"Under {plan.name} {counts} of the batch counts.", ""
        if bounds is not None and any(map(_bounds_geometric_ratio, plan.plan.rejections)):
            at_least = "" if bounds.exact else "at least "
            text += f" To keep {at_least}{share(bounds.kept_fraction)} of the sequences:"
            option = bounds.option
        reasons.append(Reason(code="loses", text=text, option=option, values={"info": plan.info}))
    return reasons


def _bounds_geometric_ratio(rejection: Rejection) -> bool:
    """Whether it drops all sequences whose geometric ratio lies too far out; k1 is -l, and its mean the log of that."""
    is_ratio = rejection.statistic in ("ratio", "k1") and rejection.scope == "seq_mean"
    return is_ratio and rejection.of == "mismatch" and rejection.gate == "any"


def _heavy_tails(evidence: Evidence) -> list[Reason]:
    """A plan that weights at a scope whose weights have too heavy a tail, in the mode that the metrics are of.

    Too heavy by more than the standard error of its shape, as for `usable`.
    """
    plans = [plan for plan in evidence.plans if plan.plan.mode == evidence.plans[0].plan.mode]
    for scope, at in (("sequence", "seq"), ("token", "token")):
        name = f"pareto_k_{at}"
        shape, limit = evidence.metrics.get(name), evidence.metrics.get(f"{name}_limit")
        plan = next((plan for plan in plans if _weights_at(plan.plan, scope)), None)
        if shape is None or limit is None or plan is None or tail_answer(evidence.metrics, at) != "no":
            continue
        if plan.info >= HARMLESS_INFO:
            continue
        above = "{} is above {}".format(*apart(shape, limit))
        carry = f"Under {plan.name} a few {scope}s carry most of the weight ({name} {above})"
        text = f"{carry}: the batch is worth {share(1 - plan.info)} less."
        return [Reason(code="heavy_tail", text=text, values={name: shape, f"{name}_limit": limit, "info": plan.info})]
    return []


def _weights_at(plan: Plan, scope: str) -> bool:
    return plan.applied_weighting is not None and plan.applied_weighting.scope == scope


def _selective(evidence: Evidence) -> list[Reason]:
    """A rejection that prefers an advantage or a length beyond chance."""
    if evidence.n_sequences < FEWEST_SEQUENCES:
        return []
    for plan in evidence.plans:
        drops = (plan.values.get("kept") or 0.0) < 1 and any(rule.applied for rule in plan.plan.rules)
        n_kept = (plan.values.get("kept_sequence_fraction") or 0.0) * evidence.n_sequences
        if not drops or n_kept < FEWEST_KEPT:
            continue
        shift, error = plan.values.get("shift"), plan.values.get("shift_se")
        if shift is not None and error and abs(shift) > ERRORS * error:
            kind = "higher" if shift > 0 else "lower"
            text = f"{plan.name} keeps sequences of {kind} advantage: {shift:+.2f} standard deviations."
            return [Reason(code="shift", text=text, values={"shift": shift, "shift_se": error})]
        length, ends = plan.values.get("length"), plan.intervals.get("length")
        # The half-width of a 95% interval is 1.96 standard errors.
        if length is not None and ends is not None and abs(length - 1) > ERRORS * (ends[1] - ends[0]) / (2 * 1.96) > 0:
            kind = "longer" if length > 1 else "shorter"
            text = f"{plan.name} keeps {kind} sequences: {length:.2f} times the mean length."
            return [Reason(code="length", text=text, values={"length": length})]
    return []


def share(value: Value) -> str:
    """A percentage, with the digits of what is left to 0% or 100%, which only 0 and 1 are, but for rounding."""
    if value is None:
        return "an unknown share"
    percent = 100 * value
    if percent == 0 or abs(percent - 100) < 1e-10:
        return f"{percent:.0f}%"
    if not 0.05 <= percent < 99.95:
        return "under 0.1%" if percent < 1 else "over 99.9%"
    return f"{percent:.{1 if percent < 9.95 or percent > 90.05 else 0}f}%"


def number(value: Value) -> str:
    """Two digits, or whole thousands."""
    return "unknown" if value is None else f"{value:.2g}" if abs(value) < 10 else f"{value:,.0f}"


def apart(value: float, limit: float) -> tuple[str, str]:
    """Two numbers with as many decimals as tell them apart."""
    texts = ((f"{value:.{decimals}f}", f"{limit:.{decimals}f}") for decimals in (2, 3, 4))
    return next((pair for pair in texts if pair[0] != pair[1]), (repr(value), repr(limit)))
