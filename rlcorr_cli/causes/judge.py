"""diagnose: all causes that hold, in the order of how much each says, and the verdict."""

from collections.abc import Callable
from dataclasses import replace
from math import sqrt

from rlcorr_cli.causes.certainty import certain
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
from rlcorr_cli.causes.diagnosis import CLEAN, TOO_FEW, UNCLEAR, CauseFinding, Diagnosis, NotLookedFor
from rlcorr_cli.causes.features import Case, Context, listed_features
from rlcorr_cli.causes.numbers import ratio
from rlcorr_cli.causes.positions import place_faults, places_of, position_fault
from rlcorr_cli.causes.recording import slipped_rows, top1_recorded
from rlcorr_cli.causes.rows import (
    LAG,
    Attribution,
    attributions,
    hot_column,
    hot_steps,
    mispaired_rows,
    some_rows,
    surprise_gaps,
    turn_gaps,
)
from rlcorr_cli.causes.shares import side_by_side
from rlcorr_cli.causes.table import CAUSES
from rlcorr_cli.causes.weights import CLEAN_CORE, RULES, grid_cause, grid_facts, noise, repetition_penalty, stale_policy
from rlcorr_cli.causes.wording import count_noun, figures, percent
from rlcorr_cli.totals.gap import GapTotals
from rlcorr_cli.totals.row_sample import RowSample

MIN_SEQUENCES, MIN_TOKENS = 16, 1000
"""Below these no cause is named; measured on random rows of dumps of known cause: 16 rows, 84% of verdicts right."""
CLEAN_SIZE = 0.01
"""Root mean square of l; two engines in fp32 leave 4e-6, bf16 .05."""
MINOR, MINOR_OF = 0.15, {"noise": 0.4, "repetition_penalty": 0.1}
"""A cause of a smaller share is told last and is no verdict."""
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
CURVES_OF_ROWS = (truncation,)
"""Beside a hot column only what single tokens show; lines are drawn within the column's level instead."""
OF_COLUMNS, OF_GRIDS = ("drift", "heavy_tail"), ("heavy_tail",)
"""What one level of a column makes by itself, and what rounding does where next to nothing else differs."""
ASYNCHRONOUS = (
    "Make the lag shorter, or correct for it: compute old_log_probs with the weights that are trained, and weight or "
    "limit tokens by their ratio."
)
"""What helps where rollouts lag by design."""
RANK = {
    **dict.fromkeys(("stale_policy",), 1),
    **dict.fromkeys(("some_rows", "position_grows", "position_decays", "heavy_tail"), 2),
    **dict.fromkeys(("drift", "other_weights"), 3),
    "noise": 4,
}
"""What names a setting or a place comes first, by share; these come after it, in this order."""


def diagnose(totals: GapTotals, context: Context, sample: RowSample | None = None) -> Diagnosis:
    """Of any totals, and the rows that they are of: with too little data, the features and where the gap sits, but no
    cause."""
    case = Case(totals, context, sample)
    features = case.features
    columns = attributions(totals)
    enough = totals.n_rows >= MIN_SEQUENCES and features.n_tokens >= MIN_TOKENS
    causes = _ranked(certain(case, _causes(case, columns))) if enough else ()
    steps = hot_steps(case, columns) if enough and all(cause.cause != "column" for cause in causes) else ()
    verdict, conclusion = _verdict(case, causes) if enough else (TOO_FEW, _too_little(case))
    lacking: list[NotLookedFor] = []
    if totals.vocabulary is None:
        lacking += [NotLookedFor("repetition_penalty", "token ids"), NotLookedFor("other_weights", "token ids")]
    if context.advantage is None:
        lacking.append(NotLookedFor("stale_policy", "advantages or rewards"))
    return Diagnosis(
        sum_squares=features.gap,
        k3=features.k3,
        deviation=features.deviation,
        core=None if features.spread is None else features.core,
        verdict=verdict,
        conclusion=conclusion,
        causes=causes,
        facts=grid_facts(case),
        columns=tuple(column.gap_of_column() for column in columns),
        turns=turn_gaps(totals),
        surprise=surprise_gaps(totals),
        places=places_of(totals),
        features=listed_features(case),
        not_looked_for=tuple(lacking),
        hot_steps=steps,
    )


def _causes(case: Case, columns: list[Attribution]) -> list[CauseFinding]:
    recorded = top1_recorded(case)
    if recorded is not None:
        return [recorded]  # of the sampled tokens nothing is known
    slipped = slipped_rows(case)
    grid, column = grid_cause(case), hot_column(case, columns)
    repeated = repetition_penalty(case)
    changed = repeated or _first(case, CURVES_OF_ROWS if column else CURVES)
    beside = temperature_beside(case) if repeated else stale_policy(case) if changed is not None else None
    # What a hot column (whose own rows lean, or spread wider) or a grid makes of the spread is no cause beside it.
    spread = None if changed else _first(case, RULES)
    made = (*(OF_COLUMNS if column else ()), *(OF_GRIDS if grid else ()))
    candidates = [
        grid,
        slipped or mispaired_rows(case),
        *place_faults(case),
        # Tokens that repeat stand late: a penalty makes an error that grows.
        None if repeated or slipped else position_fault(case, beside=changed is not None),
        changed,
        beside,
        column,
        some_rows(case) if column is None and slipped is None else None,
        None if spread is None or spread.cause in made else spread,
    ]
    causes = side_by_side(case, _with_lag(case, [cause for cause in candidates if cause is not None]))
    causes = [cause for cause in causes if cause.share >= LEAST]
    rest = noise(case, causes)
    return causes if rest is None else [*causes, rest]


def _with_lag(case: Case, causes: list[CauseFinding]) -> list[CauseFinding]:
    """The causes, of which staleness takes the evidence of the lag that its gap grows with, and that lag's share: what
    the least lag leaves is none of it."""
    lag = next((cause for cause in causes if cause.parameters.get("column") == LAG), None)
    stale = next((cause for cause in causes if cause.cause == "stale_policy"), None)
    if stale is None:
        return causes
    if lag is None:
        return [_of_constant_lag(case, stale) if cause is stale else cause for cause in causes]
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


def _of_constant_lag(case: Case, stale: CauseFinding) -> CauseFinding:
    """Staleness where every row is as many updates behind, as asynchronous training makes it."""
    lags = case.totals.columns[LAG].keys if LAG in case.totals.columns else ()
    if len(lags) != 1 or not isinstance(lags[0], (int, float)) or lags[0] < 1:
        return stale
    behind = f"Every row is {count_noun(round(lags[0]), 'update')} behind"
    advice = f"{behind}, as asynchronous training makes it, and this gap is its price. {ASYNCHRONOUS}"
    return replace(stale, parameters={**stale.parameters, "lag": lags[0]}, advice=advice)


def _first(case: Case, rules: tuple[Callable[[Case], CauseFinding | None], ...]) -> CauseFinding | None:
    return next((finding for rule in rules if (finding := rule(case)) is not None), None)


def _ranked(causes: list[CauseFinding]) -> tuple[CauseFinding, ...]:
    """Grids first, which are there only where they make half the gap; then by rank and share, minor ones last."""
    marked = [
        replace(
            cause,
            is_minor=cause.share < MINOR_OF.get(cause.cause, MINOR),
            advice=cause.advice or CAUSES[cause.cause].advice,
        )
        for cause in causes
    ]
    return tuple(sorted(marked, key=lambda c: (c.is_minor, c.cause != "grid", RANK.get(c.cause, 0), -c.share)))


def _verdict(case: Case, causes: tuple[CauseFinding, ...]) -> tuple[str, str]:
    """The verdict of enough data, and what it says in a sentence: nothing where it names a cause."""
    features = case.features
    if causes:
        if not causes[0].is_minor:
            return causes[0].cause, ""
        largest = max(causes, key=lambda cause: cause.share)
        bound = "at most" if largest.bound == "at_most" else "at least"
        share = f"{bound} {percent(largest.share)} of the gap"
        return UNCLEAR, f"No cause stands out: the largest is {largest.headline}, {share}."
    # A small core alone says little: it may be of few tokens, or have a tail.
    if features.core <= CLEAN_CORE and sqrt(ratio(features.gap, features.n_tokens)) <= CLEAN_SIZE:
        return CLEAN, f"Clean: the two policies agree (sd of log-ratio {figures(features.deviation or 0.0)})."
    return UNCLEAR, "No cause stands out."


def _too_little(case: Case) -> str:
    if case.totals.n_rows < MIN_SEQUENCES:
        return f"Too little data to tell: {count_noun(case.totals.n_rows, 'sequence')}, fewer than {MIN_SEQUENCES}."
    return f"Too little data to tell: {count_noun(case.features.n_tokens, 'token')}, fewer than {MIN_TOKENS:,}."
