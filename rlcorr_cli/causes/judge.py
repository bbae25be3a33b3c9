"""diagnose: all causes that hold, in the order of how much each says, and the verdict.

The rules are tried, family by family (`_causes`).  Staleness and a gap that grows with the lag become one cause
(`_with_lag`); each cause gets the share of the gap that it has beside the others (`_side_by_side`), and how sure it is
(`_with_certainty`).  Then they are put in order (`in_order`), and the first is the verdict if it is no minor one.

A rule gives a cause the share of the gap that it would explain alone, and two such shares overlap where the causes sit
on the same tokens.  So the causes are taken in one order, and each in turn explains the same fraction of what is left
of its tokens' gap as it explained of all of it.  What sits on other tokens takes nothing away.  A cause that claims
all that its tokens differ by then has what is left at most.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf, sqrt

from rlcorr_cli.causes import columns, curves, positions, rows, weights
from rlcorr_cli.causes.diagnosis import CLEAN, TOO_FEW, UNCLEAR, CauseFinding, Diagnosis, Gap, NotLookedFor
from rlcorr_cli.causes.features import OTHER_CORE, SITS_ON, Case, Context, Rule, listed_features
from rlcorr_cli.causes.gap import BODY, ODD, PARTS, PLACE_SUMS
from rlcorr_cli.causes.numbers import ratio
from rlcorr_cli.causes.table import CAUSES, LEAST, Cause, Family
from rlcorr_cli.causes.weights import CLEAN_CORE, VERDICT_SHARE
from rlcorr_cli.causes.where import LAG, PlaceOfGap
from rlcorr_cli.causes.wording import count_noun, figures, percent
from rlcorr_cli.totals.row_sample import RowSample

MIN_SEQUENCES, MIN_TOKENS = 16, 1000
"""Below these no cause is named; measured on random rows of dumps of known cause: 16 rows, 84% of verdicts right."""
FEWEST_IN_PART = 8, 400
"""The same, rows and tokens, where a place was found: of it, and of all that lies outside of it."""
LEAST_ALONG = 0.3
"""Beside a curve an error along the row is told from this share of the gap on."""
CLEAN_SIZE = 0.01
"""The largest root mean square of l that is called clean; two engines in fp32 leave 4e-6, bf16 .05."""
RULES: Mapping[str, Rule] = {**rows.RULES, **positions.RULES, **curves.RULES, **columns.RULES, **weights.RULES}
BY_FAMILY: dict[Family, dict[Rule, Cause]] = {}
"""Family -> its rules, each once, in the order of the table -> the first row that it serves.  What rules found is kept
by the name of that row; the finding's own cause may be another that the rule tells apart."""
for _row in CAUSES.values():
    if _row.sought != "rest":
        BY_FAMILY.setdefault(_row.sought, {}).setdefault(RULES[_row.name], _row)
ASYNCHRONOUS = (
    "Make the lag shorter, or correct for it: compute old_log_probs with the weights that are trained, and weight or "
    "limit tokens by their ratio."
)
"""What helps where rollouts lag by design."""
BEFORE_WEIGHTS = {"trend": 1.0, "tokens": 3.0}
"""Scope -> changed weights come before a cause of this scope if they make more than so many times its share; before
those of other scopes never."""


def diagnose(
    sample: RowSample, context: Context, place: PlaceOfGap | None = None, *, is_part: bool = False
) -> Diagnosis:
    """The diagnosis of a sample; of too little data it has features and places, but no causes.  place, is_part: as of
    Case."""
    case = Case(sample=sample, context=context, place=place, is_part=is_part)
    totals, features = case.totals, case.features
    causes: list[CauseFinding] = []
    fewest_rows, fewest_tokens = FEWEST_IN_PART if is_part else (MIN_SEQUENCES, MIN_TOKENS)
    if totals.n_rows < fewest_rows or features.n_tokens < fewest_tokens:
        verdict = TOO_FEW
        few = f"{count_noun(features.n_tokens, 'token')}, fewer than {fewest_tokens:,}"
        if totals.n_rows < fewest_rows:
            few = f"{count_noun(totals.n_rows, 'sequence')}, fewer than {fewest_rows}"
        conclusion = f"Too little data to tell: {few}."
    else:
        causes = in_order(_with_certainty(case, _causes(case)))
        verdict, conclusion = concluded(causes)
        # A small core alone says little: it may be of few tokens, or have a tail.
        if not causes and features.core <= CLEAN_CORE and sqrt(ratio(features.gap, features.n_tokens)) <= CLEAN_SIZE:
            verdict = CLEAN
            conclusion = f"Clean: the two policies agree (sd of log-ratio {figures(features.deviation or 0.0)})."
    lacks = {"token ids": totals.vocabulary is None, "advantages or rewards": context.advantage is None}
    return Diagnosis(
        gap=Gap(
            sum_sq=features.gap,
            k3_kl=features.k3,
            sd=features.deviation,
            core=None if features.spread is None else features.core,
        ),
        verdict=verdict,
        conclusion=conclusion,
        causes=tuple(causes),
        facts=weights.grid_facts(case),
        columns=tuple(column.gap_of_column() for column in columns.attributions(case)),
        turns=columns.turn_gaps(totals),
        surprise=columns.surprise_gaps(totals),
        places=positions.places_of(totals),
        features=listed_features(case),
        not_looked_for=tuple(
            NotLookedFor(row.name, needs)
            for needs, is_lacking in lacks.items()
            for row in CAUSES.values()
            if is_lacking and row.needs == needs
        ),
    )


def concluded(causes: Sequence[CauseFinding]) -> tuple[str, str]:
    """The verdict that causes in their order give, and the conclusion, which is empty where the verdict is a cause."""
    if causes and not causes[0].is_minor:
        return causes[0].cause, ""
    if not causes:
        return UNCLEAR, "No cause stands out."
    largest = max(causes, key=lambda cause: cause.share)
    bound = "at most" if largest.bound == "at_most" else "at least"
    share = f"{bound} {percent(largest.share)} of the gap"
    return UNCLEAR, f"No cause stands out: the largest is {largest.headline}, {share}."


def in_order(causes: Iterable[CauseFinding]) -> list[CauseFinding]:
    """The causes with their advice, the first of them the verdict if it is no minor one.

    A grid that makes half the gap comes first; minor causes last.  Changed weights move some tokens of a row more than
    others, so they come first where they make more than BEFORE_WEIGHTS times as much.
    """
    judged: list[CauseFinding] = []
    for cause in causes:
        row = CAUSES[cause.cause]
        judged.append(replace(cause, is_minor=cause.share < row.least_share, advice=cause.advice or row.advice))

    of_weights = max((cause.share for cause in judged if cause.cause == "other_weights"), default=0.0)

    def order(cause: CauseFinding) -> tuple[bool, bool, int, float]:
        is_of_grid = cause.cause == "grid" and cause.share >= VERDICT_SHARE
        is_of_weights = of_weights > cause.share * BEFORE_WEIGHTS.get(CAUSES[cause.cause].scope, inf)
        rank = CAUSES["other_weights" if is_of_weights else cause.cause].rank
        return cause.is_minor, not is_of_grid, rank, -cause.share

    return sorted(judged, key=order)


def _causes(case: Case) -> list[CauseFinding]:
    if recording := _findings(case, "recording"):
        return list(recording.values())  # of the sampled tokens nothing is known
    found = _findings(case, "apart", beside=() if case.place is None else ("place",))
    curve = _findings(case, "curve", beside=found)
    along = _findings(case, "along", beside=found | curve)
    found |= {name: each for name, each in along.items() if not curve or each.share >= LEAST_ALONG}
    found |= curve | _beside(case, curve) if curve else _spread(case, has_grid="grid" in found)
    in_table = [found[name] for name in CAUSES if name in found]
    causes = [cause for cause in _side_by_side(case, _with_lag(case, in_table)) if cause.share >= LEAST]
    rest = weights.noise(case, causes)
    return causes if rest is None else [*causes, rest]


def _findings(case: Case, family: Family, beside: Iterable[str] = ()) -> dict[str, CauseFinding]:
    """What the rules of a family find: all that hold of `apart`, else the first.  beside: names of what is found
    already, and "place", which `not_beside` is held against."""
    found = dict[str, CauseFinding]()
    for rule, row in BY_FAMILY[family].items():
        if not {*beside, *found}.intersection(row.not_beside) and (finding := rule(case)) is not None:
            found[row.name] = finding
            if family != "apart":
                break
    return found


def _beside(case: Case, curve: Mapping[str, CauseFinding]) -> dict[str, CauseFinding]:
    """What else moves all tokens beside a curve: a temperature beside a penalty, else what weights do.  A cut leaves
    log-odds, too, but never so much of them: measured on nine models, 0.38 at most."""
    if "repetition_penalty" in curve:
        beside = curves.temperature_beside(case)
    else:
        is_cut = any(RULES[cause.cause] is curves.truncation for cause in curve.values())
        is_more = is_cut and case.features.core > max(OTHER_CORE, case.widest_noise)
        beside = weights.stale_policy(case) or (weights.other_weights(case) if is_more else None)
    return {} if beside is None else {beside.cause: beside}


def _spread(case: Case, *, has_grid: bool) -> dict[str, CauseFinding]:
    """What makes the spread of log-odds, where no curve does; nothing that a coarse grid makes as well."""
    is_coarse = has_grid or weights.is_coarse(case)
    return {
        name: cause
        for name, cause in _findings(case, "spread").items()
        if not (is_coarse and CAUSES[cause.cause].scope == "broad")
    }


def _with_certainty(case: Case, causes: Sequence[CauseFinding]) -> Iterator[CauseFinding]:
    """The causes with how sure each is.  proven: a bound or an identity is broken; no bound is proven beside staleness,
    which moves the tokens that it is read from.  likely: the statistics say so.  one of: another reading is as good,
    because a number that parts the two lies near its limit, as its rule says."""
    is_stale = any(cause.cause == "stale_policy" for cause in causes)
    for cause in causes:
        proven = CAUSES[cause.cause].proven
        is_proven = proven == "always" or (
            proven == "unless_stale" and not is_stale and curves.bound_holds(case, cause)
        )
        yield replace(cause, certainty="one of" if cause.alternatives else "proven" if is_proven else "likely")


def _with_lag(case: Case, causes: list[CauseFinding]) -> list[CauseFinding]:
    """The causes, in which staleness and a gap that grows with the lag are one: staleness, with that gap's evidence and
    share.  Where all rows have one lag, staleness says that it is the lag's price."""
    lag = next((cause for cause in causes if cause.parameters.get("column") == LAG), None)
    stale = next((cause for cause in causes if cause.cause == "stale_policy" and cause is not lag), None)
    if stale is None:
        return causes
    if lag is None:
        lags = case.totals.columns[LAG].keys if LAG in case.totals.columns else ()
        if len(lags) != 1 or not isinstance(lags[0], (int, float)) or lags[0] < 1:
            return causes
        behind = f"Every row is {count_noun(round(lags[0]), 'update')} behind"
        advice = f"{behind}, as asynchronous training makes it, and this gap is its price. {ASYNCHRONOUS}"
        merged = replace(stale, parameters={**stale.parameters, "lag": lags[0]}, advice=advice)
    else:
        levels, size = (lag.parameters.get(name) for name in ("levels", "size"))
        differ = f"tokens of lag {levels} differ {figures(float(size or 0))} times as much as all others."
        grows = differ if levels else f"{lag.evidence[0][0].lower()}{lag.evidence[0][1:]}"
        merged = replace(
            stale,
            share=lag.share,
            parameters={**stale.parameters, **lag.parameters},
            evidence=(*stale.evidence, f"The gap grows with the lag of the weights: {grows}"),
            alternatives=(),
            advice=lag.advice,
        )
    return [merged if cause is stale else cause for cause in causes if cause is not lag]


def _side_by_side(case: Case, causes: list[CauseFinding]) -> list[CauseFinding]:
    """The causes with shares that add to 1 at most, in the order in which they are taken: by rank, because what says
    more comes before what says less, and of equals the larger first.  A penalty is measured at equal surprise, so on
    what a curve leaves."""
    gap = case.totals.places[:, PLACE_SUMS.index("l2")]
    whole = {part: case.features.share(float(of_part)) for part, of_part in zip(PARTS, gap, strict=True)}
    body = (PARTS[ODD], PARTS[BODY]) if case.features.odd_belong else (PARTS[BODY],)
    left, taken = dict(whole), list[CauseFinding]()
    ranked = ((CAUSES[cause.cause], cause) for cause in causes)
    for row, cause in sorted(ranked, key=lambda each: (each[0].rank, each[0].at_equal_surprise, -each[1].share)):
        parts: Sequence[str] = SITS_ON.get(row.sits_on, body)
        fraction = min(1.0, ratio(cause.share, sum(whole[part] for part in parts)))
        is_rest = row.claims_all and any(left[part] < whole[part] for part in parts)
        share = fraction * sum(left[part] for part in parts)
        for part in parts:
            left[part] *= 1 - fraction
        interval = cause.share_interval
        if interval is not None:
            times = ratio(share, cause.share)
            interval = (interval[0] * times, interval[1] * times)
        bound = "at_most" if is_rest else cause.bound
        taken.append(replace(cause, share=share, bound=bound, share_interval=interval))
    return taken
