"""diagnose: all causes that hold, in the order of how much each says, and the verdict.

The rules are tried (`_causes`); what holds gets the share of the gap that it has beside the others (`_side_by_side`),
and how sure it is (`certainty`); `diagnose` puts all in order, and the first is the verdict where it is no minor one.

A rule gives a cause the share of the gap that it would explain alone, and two such shares overlap where the causes sit
on the same tokens.  So the causes are taken in one order, and each in turn explains the same fraction of what is left
of its tokens' gap as it explained of all of it.  What sits on other tokens takes nothing away.  A cause that claims
all that its tokens differ by then has what is left at most.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import inf, sqrt

from rlcorr_cli.causes.certainty import certain
from rlcorr_cli.causes.columns import (
    LAG,
    Attribution,
    attributions,
    surprise_gaps,
    trending_column,
    turn_gaps,
)
from rlcorr_cli.causes.curves import (
    padded_vocabulary,
    softcap,
    temperature,
    temperature_beside,
    top_k,
    truncation,
    truncation_of_training,
    unnormalised,
)
from rlcorr_cli.causes.diagnosis import CLEAN, TOO_FEW, UNCLEAR, CauseFinding, Diagnosis, Gap, NotLookedFor
from rlcorr_cli.causes.features import OTHER_CORE, Case, Context, listed_features
from rlcorr_cli.causes.gap import BODY, ODD, PARTS, TOKEN_SUMS, GapTotals
from rlcorr_cli.causes.numbers import ratio
from rlcorr_cli.causes.positions import place_faults, places_of, position_fault
from rlcorr_cli.causes.rows import mispaired_rows, other_tokens, slipped_rows, slips_of, some_rows
from rlcorr_cli.causes.table import CAUSES
from rlcorr_cli.causes.weights import (
    CLEAN_CORE,
    RULES,
    VERDICT_SHARE,
    Grid,
    grid_cause,
    grid_facts,
    grids,
    is_coarse,
    noise,
    other_weights,
    repetition_penalty,
    stale_policy,
)
from rlcorr_cli.causes.where import Place
from rlcorr_cli.causes.wording import count_noun, figures, percent
from rlcorr_cli.totals.row_sample import RowSample

MIN_SEQUENCES, MIN_TOKENS = 16, 1000
"""Below these no cause is named; measured on random rows of dumps of known cause: 16 rows, 84% of verdicts right."""
IN_A_PLACE = 8, 400
"""Rows and tokens of a place in which a cause is looked for: that something is wrong there is known."""
CLEAN_SIZE = 0.01
"""Root mean square of l; two engines in fp32 leave 4e-6, bf16 .05."""
LEAST = 0.01
"""A cause of a smaller share is not told."""
CURVES: tuple[Callable[[Case], CauseFinding | None], ...] = (
    truncation,
    truncation_of_training,
    temperature,
    softcap,
    unnormalised,
    padded_vocabulary,
    top_k,
)
"""Each of these is one reading of the same curve: the first that holds is taken."""
CUTS = ("top_p", "min_p", "temperature_and_truncation")
CURVES_OF_ROWS = (truncation,)
"""Beside an error that grows along a column only what single tokens show."""
OF_GRIDS = ("drift", "heavy_tail", "other_weights")
"""What rounding does: it moves sure tokens by much in log-odds, and most of a row's to the same side."""
ASYNCHRONOUS = (
    "Make the lag shorter, or correct for it: compute old_log_probs with the weights that are trained, and weight or "
    "limit tokens by their ratio."
)
"""What helps where rollouts lag by design."""
SITS_ON = {
    "all": PARTS,
    "paired": PARTS[ODD + 1 :],
    "odd": (PARTS[ODD],),
    "first": ("first",),
    "last": ("last",),
    "seams": ("gap", "after_gap"),
    "inner": (PARTS[BODY],),
}
"""What a cause's row says that it sits on -> the parts of the tokens; others sit on the body, as Features take it."""
BEFORE_WEIGHTS = {"trend": 1.0, "tokens": 3.0}
"""Scope -> what changed weights may make in times of a cause's share and still come after it."""


def diagnose(
    totals: GapTotals,
    context: Context,
    sample: RowSample | None = None,
    place: Place | None = None,
    *,
    is_part: bool = False,
) -> Diagnosis:
    """Of any totals, and the rows that they are of: with too little data, the features and where the gap sits, but no
    cause.  place: at which the gap sits.  is_part: whether these are the rows of such a place, or all others."""
    case = Case(totals, context, sample)
    features = case.features
    columns, stored = attributions(totals, place, sample), grids(case)
    causes: list[CauseFinding] = []
    fewest_rows, fewest_tokens = IN_A_PLACE if is_part else (MIN_SEQUENCES, MIN_TOKENS)
    if totals.n_rows < fewest_rows or features.n_tokens < fewest_tokens:
        verdict = TOO_FEW
        few = f"{count_noun(features.n_tokens, 'token')}, fewer than {fewest_tokens:,}"
        if totals.n_rows < fewest_rows:
            few = f"{count_noun(totals.n_rows, 'sequence')}, fewer than {fewest_rows}"
        conclusion = f"Too little data to tell: {few}."
    else:
        causes = in_order(certain(case, _causes(case, columns, stored, place, is_part=is_part)))
        verdict, conclusion = concluded(causes)
        # A small core alone says little: it may be of few tokens, or have a tail.
        if not causes and features.core <= CLEAN_CORE and sqrt(ratio(features.gap, features.n_tokens)) <= CLEAN_SIZE:
            verdict = CLEAN
            conclusion = f"Clean: the two policies agree (sd of log-ratio {figures(features.deviation or 0.0)})."
    lacking: list[NotLookedFor] = []
    if totals.vocabulary is None:
        lacking += [NotLookedFor("repetition_penalty", "token ids"), NotLookedFor("other_weights", "token ids")]
    if context.advantage is None:
        lacking.append(NotLookedFor("stale_policy", "advantages or rewards"))
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
        facts=grid_facts(stored),
        columns=tuple(column.gap_of_column() for column in columns),
        turns=turn_gaps(totals),
        surprise=surprise_gaps(totals),
        places=places_of(totals),
        features=listed_features(case),
        not_looked_for=tuple(lacking),
    )


def concluded(causes: Sequence[CauseFinding]) -> tuple[str, str]:
    """The verdict that causes in their order give, and the conclusion where it names none."""
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


def _causes(
    case: Case, columns: list[Attribution], stored: list[Grid], place: Place | None, *, is_part: bool
) -> list[CauseFinding]:
    recorded = other_tokens(case)
    if recorded is not None:
        return [recorded]  # of the sampled tokens nothing is known
    slips = [] if case.sample is None else slips_of(case.sample)
    slipped = slipped_rows(case, slips)
    grid, column = grid_cause(stored, LEAST if is_part else VERDICT_SHARE), trending_column(case, columns)
    repeated = repetition_penalty(case)
    changed = repeated or _first(case, CURVES_OF_ROWS if column else CURVES)
    beside = temperature_beside(case) if repeated else _beside(case, changed)
    spread = None if changed else _first(case, RULES)
    made = OF_GRIDS if grid or is_coarse(stored) else ()
    candidates = [
        grid,
        slipped,
        mispaired_rows(case, slips if slipped else ()),
        *place_faults(case),
        # Tokens that repeat stand late: a penalty makes an error that grows.
        None if repeated or slipped else position_fault(case, beside=changed is not None),
        changed,
        beside,
        column,
        some_rows(case) if place is None and slipped is None else None,
        None if spread is None or spread.cause in made else spread,
    ]
    causes = _side_by_side(case, _with_lag(case, [cause for cause in candidates if cause is not None]))
    causes = [cause for cause in causes if cause.share >= LEAST]
    rest = noise(case, causes)
    return causes if rest is None else [*causes, rest]


def _beside(case: Case, changed: CauseFinding | None) -> CauseFinding | None:
    """What weights do beside a curve.  A cut leaves log-odds, too, but never so much of them: measured on nine models,
    0.38 at most."""
    if changed is None:
        return None
    is_more = changed.cause in CUTS and case.features.core > max(OTHER_CORE, case.widest_noise)
    return stale_policy(case) or (other_weights(case) if is_more else None)


def _with_lag(case: Case, causes: list[CauseFinding]) -> list[CauseFinding]:
    """The causes, of which staleness takes the evidence of the lag that its gap grows with, and that lag's share: what
    the least lag leaves is none of it."""
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
            advice=lag.advice,
        )
    return [merged if cause is stale else cause for cause in causes if cause is not lag]


def _first(case: Case, rules: tuple[Callable[[Case], CauseFinding | None], ...]) -> CauseFinding | None:
    return next((finding for rule in rules if (finding := rule(case)) is not None), None)


def _side_by_side(case: Case, causes: list[CauseFinding]) -> list[CauseFinding]:
    """The causes with shares that add to 1 at most, in the order in which they are taken: by rank, because what says
    more comes before what says less, and of equals the larger first.  A penalty is measured at equal surprise, so on
    what a curve leaves."""
    gap = case.totals.tokens[:, :, TOKEN_SUMS.index("l2")].sum(axis=1)
    whole = {part: case.features.share(float(of_part)) for part, of_part in zip(PARTS, gap, strict=True)}
    body = (PARTS[ODD], PARTS[BODY]) if case.features.odd_belong else (PARTS[BODY],)
    left, taken = dict(whole), list[CauseFinding]()
    order = sorted(causes, key=lambda each: (CAUSES[each.cause].rank, each.cause == "repetition_penalty", -each.share))
    for cause in order:
        row = CAUSES[cause.cause]
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
