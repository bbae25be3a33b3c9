"""What changes every token without a curve: a grid, a repetition penalty, staleness, other weights, and noise.

The grid of numbers that a column is stored on is always told, and the cause where its steps make the gap; what nothing
else explains of the spread of d is noise.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.causes.diagnosis import CauseFinding, Fact
from rlcorr_cli.causes.features import FAR_LOUD, LEAST_BY_TOKEN, MOST_OVER_NOISE, OTHER_CORE, Case, Rule
from rlcorr_cli.causes.numbers import first_step, once, ratio
from rlcorr_cli.causes.of_tokens import scored_again
from rlcorr_cli.causes.table import CAUSES, LEAST
from rlcorr_cli.causes.wording import count_noun, figures, percent
from rlcorr_cli.frozen import frozen
from rlcorr_cli.totals.flat import Floats, starts_of

MIN_VALUES, ON_GRID = 64, 0.99
VERDICT_SHARE = 0.5
GRID_SUMS = ("n", "bf16", "fp16", "decimals_2", "decimals_3", "decimals_4", "step2_bf16", "step2_fp16")
"""Of a column's values other than 0: how many, how many lie on a grid, and the sums of step^2 / 12."""
GRIDS = {"bf16": "bf16", "fp16": "fp16", **{f"decimals_{n}": f"{n} decimals" for n in (2, 3, 4)}}
"""In this order: what lies on the coarser grid lies on the finer ones too."""
LEAST_OF_STEPS, STEPS_TIMES = 0.01, 1.5
"""A grid near 0 is told where it makes so many times this share of the gap, or what the stored grid makes: rounding of
float32 is one, too.  Measured: the share comes out .5 to 1.5 times as large as it is."""
STORED = f"At least {percent(ON_GRID)} of its values are so rounded, which by itself (step^2 / 12 per token)"
NEAR_0 = "Next to 0 its values lie {first:.3g} apart, and the two columns differ by {off} there, which on all tokens"
FINE = {GRIDS[name] for name in ("bf16", "fp16", "decimals_4")}
DECIMAL_STEPS = {f"decimals_{n}": 10.0**-n for n in (2, 3, 4)}

MIN_ETA2, MIN_DIFFERENCE = 0.1, 0.02
"""Measured on six models: penalties at least .15, anything else at most .05."""

STALE_CORRELATION, STALE_Z, STALE_Z_ALONE, STALE_LEAN = 0.3, 3.0, 4.5, 0.05
LEAN, LEAN_Z = 0.1, 5.0
PADDED_FAR, PADDED_BELOW, PADDED_MASS = 20, 0.95, 0.002
HEAVY_FAR, IN_RUNS = 0.002, 0.2
"""Measured: after a far token router flips leave at most .14 of the next ones far off, lost MLPs at least .28."""
LOOK_AT_RUNS = (
    "Look at the tokens where a run begins (`rlcorr inspect DUMP`): from there on one side keeps something else, in "
    "its KV cache or a kernel's state."
)
ERRORS, NEAR_SIZE, NEAR_ETA2, NEAR_NOISE = 2.0, 1.5, 1.5, 1.1
"""Nearer than this to the limit of its rule a cause is one of several."""
QUIET = 0.6
"""Noise that makes less of a gap may be noise and a few tokens far off."""
CLEAN_CORE = 0.001
BEYOND = 3.0
"""Measured: dropout .9 to 1.2 times the core in training's column, packed rows .3 to 1.4; all else, and rollout, 0."""
BY_THE_PREFIX = (
    "Score in evaluation mode, without dropout, and keep packed sequences apart by attention mask and position ids."
)
NOISE, LARGER_NOISE = "rounding noise", "noise larger than rounding makes"
TELL_WEIGHTS = (
    "A clean dump of the same model (`rlcorr diagnose DUMP --clean-dump FILE`) tells whether weights were changed: "
    "8-bit weights or an adapter may look like this."
)
IF_ROUNDING = "If it is rounding, nothing in the data is wrong."
FORMATS = "8-bit integers make 1.2 to 3.6 times as much, fp8 2.5 to 7 times, 4-bit weights 10 and more"
"""The core over that of bf16 alone, measured on six models."""


BF16_BITS, FP16_BITS = 7, 10
"""Bits of the mantissa."""


def grid_sums(values: NDArray[Any]) -> Floats:
    """GRID_SUMS of a column's values: f64[K].  values: float32 or float64 [V], nats."""
    values = values if values.all() else values[values != 0]
    narrow = values.astype(np.float32, copy=False)
    bits = narrow.view(np.uint32)
    # A float64 between two float32s is on no coarser grid.
    as_stored = True if values.dtype == np.float32 else narrow == values
    bf16 = ((bits & 0xFFFF) == 0) & as_stored
    of_10_bits = narrow[((bits & 0x1FFF) == 0) & as_stored]  # which is what float16 has; its range is narrower, too
    with np.errstate(over="ignore"):
        fp16 = of_10_bits.astype(np.float16) == of_10_bits
    # A step between neighbours is 2^(exponent - bits of the mantissa).
    n_by_exponent = np.bincount(bits >> 23 & 0xFF, minlength=256)
    squares = float((n_by_exponent * 4.0 ** (np.arange(256) - 127)).sum())
    steps = [squares / 4.0**mantissa / 12 for mantissa in (BF16_BITS, FP16_BITS)]
    # Values within a rounding of their type of a decimal of 4 places, and those of them that have 3, and 2.
    scaled = np.abs(values, dtype=np.float64)
    scaled *= 1e4
    rounding = np.finfo(values.dtype).eps
    scaled = scaled[np.abs(scaled - np.rint(scaled)) <= scaled * rounding]
    coarser = [scaled]
    for _ in range(2):
        tenths = coarser[0] / 10
        coarser.insert(0, tenths[np.abs(tenths - np.rint(tenths)) <= tenths * rounding])
    decimals = [len(on_grid) for on_grid in coarser]
    return np.array([len(values), bf16.sum(), fp16.sum(), *decimals, *steps], np.float64)


@frozen
class Grid:
    """A column, its grid in words, the share of the gap that rounding to it makes, and how that is known."""

    column: str
    grid: str
    share: float
    known_by: str


@once
def grids(case: Case) -> list[Grid]:
    """Of the columns that lie on one, each on the one that makes more of the gap.

    One that values are stored in is known by all of them, and moves each by a step's square over 12.  One next to 0 is
    known by what tokens there differ by: errors of logits leave a probability near 1 alone, so that is rounding, which
    is taken for that of all tokens other than 0.
    """
    found: list[Grid] = []
    columns = {"rollout": case.context.rollout, "train": case.context.train}
    for side, column in columns.items():
        values = getattr(case.sample, side)
        n, on = float(np.count_nonzero(values)), list[Grid]()
        named = _grid_sums(values, n)
        stored = next((name for name in GRIDS if named[name] >= ON_GRID * n), None)
        if stored is not None and n >= MIN_VALUES:
            step2 = n * DECIMAL_STEPS[stored] ** 2 / 12 if stored in DECIMAL_STEPS else named[f"step2_{stored}"]
            on = [Grid(column, GRIDS[stored], case.features.share(step2), STORED)]
        if first := first_step(values):
            near = abs(values + 2.5 * first) <= 2 * first
            differences = case.sample.train[near].astype(np.float64) - case.sample.rollout[near]
            off = float(differences.clip(-2 * first, 2 * first).std())  # few rows may be wrong altogether
            share = case.features.share(off**2 * n)
            if share > STEPS_TIMES * (on[0].share if on else LEAST_OF_STEPS):
                on = [Grid(column, f"steps of {first:.3g}", share, NEAR_0.format(first=first, off=figures(off)))]
        found += on
    return found


def _grid_sums(values: NDArray[Any], n: float) -> dict[str, float]:
    """GRID_SUMS by name, of the first ones alone where so many of these are off every grid that the column is on none.
    n: how many values are not 0."""
    for some in (values[: len(values) // 50], values):
        sums = dict(zip(GRID_SUMS, grid_sums(some).tolist(), strict=True))
        if sums["n"] - max(sums[name] for name in GRIDS) > (1 - ON_GRID) * n:
            break
    return sums


def is_coarse(case: Case) -> bool:
    """Whether a column is stored in steps that move sure tokens by more in log-odds than noise does."""
    return any(grid.grid not in FINE for grid in grids(case))


def grid_facts(case: Case) -> tuple[Fact, ...]:
    """One sentence a column."""
    return tuple(
        Fact("grid", f"{grid.column} is stored in {grid.grid}: its rounding makes {percent(grid.share)} of the gap.")
        for grid in grids(case)
    )


def grid_cause(case: Case) -> CauseFinding | None:
    """The column whose rounding makes most of the gap; of a part of the rows it is told whatever it makes."""
    grid = max(grids(case), key=lambda grid: grid.share, default=None)
    if grid is None or grid.share < (LEAST if case.is_part else VERDICT_SHARE):
        return None
    return CauseFinding(
        cause="grid",
        share=grid.share,
        parameters={"grid": grid.grid, "side": grid.column},
        headline=f"{grid.column} is rounded to {grid.grid}",
        evidence=(f"{grid.known_by} makes {percent(grid.share)} of the gap.",),
    )


def repetition_penalty(case: Case) -> CauseFinding | None:
    """Needs token ids."""
    repetition = case.repetition
    if repetition is None or repetition.eta2 < MIN_ETA2 or abs(repetition.difference) < MIN_DIFFERENCE:
        return None
    sides = (case.context.rollout, case.context.train)
    penalised, free = sides if repetition.difference > 0 else sides[::-1]
    return CauseFinding(
        cause="repetition_penalty",
        share=repetition.eta2 * case.features.share(case.features.body_gap),
        parameters={"difference": repetition.difference, "side": penalised},
        headline=f"{penalised} has a repetition penalty, {free} has none",
        evidence=(
            f"Repeated tokens are {figures(abs(repetition.difference))} lower in log-odds in {penalised} than new "
            f"tokens of the same surprise; this explains {percent(repetition.eta2)} of the variance.",
        ),
        alternatives=("other_weights",) if repetition.eta2 < NEAR_ETA2 * MIN_ETA2 else (),
    )


def stale_policy(case: Case) -> CauseFinding | None:
    """Rows lean to the side of their advantage, as one or more updates on them make them do."""
    lean = case.features.lean
    leaning = lean.z_correlation > STALE_Z and lean.tau >= LEAN and lean.z_tau > LEAN_Z
    alone = lean.z_correlation > STALE_Z_ALONE and lean.tau >= STALE_LEAN
    if lean.correlation < STALE_CORRELATION or not (leaning or alone):
        return None
    advantage = case.context.advantage or "the advantage"
    return CauseFinding(
        cause="stale_policy",
        share=_body_share(case),
        parameters={"correlation": lean.correlation, "lean": lean.tau},
        headline="stale rollouts (training moved on after these tokens were sampled)",
        evidence=(
            f"Rows with higher {advantage} have more tokens that gained (correlation {lean.correlation:.2f}, z = "
            f"{lean.z_correlation:.1f}, {count_noun(lean.n, 'row')}), and rows differ by {lean.tau:.2f} more than "
            "chance in the share of tokens that gained.",
        ),
        alternatives=("drift",) if lean.z_correlation < STALE_Z_ALONE else (),
    )


def drift(case: Case) -> CauseFinding | None:
    """Rows lean beyond chance, with no advantage to go by."""
    lean = case.features.lean
    if lean.tau < LEAN or lean.z_tau <= LEAN_Z:
        return None
    column = case.context.advantage
    reason = f"it does not follow {column}" if column else "there are no advantages to compare it with"
    return CauseFinding(
        cause="drift",
        share=_body_share(case),
        parameters={"lean": lean.tau},
        headline="staleness or other weights: whole rows gained or lost probability",
        evidence=(
            f"Rows differ by {lean.tau:.2f} more than chance in the share of tokens that gained (z = "
            f"{lean.z_tau:.0f}; {reason}).",
        ),
    )


def padded_vocabulary(case: Case) -> CauseFinding | None:
    """Now and then a token loses much: rows of the output layer that no token has take mass in training."""
    features, spread = case.features, case.features.spread
    if spread is None or spread.n_far < PADDED_FAR or spread.below < PADDED_BELOW:
        return None
    lost, error = -features.forward.value, 2 * features.forward.error
    if spread.over_noise < MOST_OVER_NOISE or lost <= max(PADDED_MASS, error):
        return None
    return leak(
        case,
        max(0.0, _body_share(case) - case.noise_share(case.features.body_noise_gap)),
        (
            f"{spread.n_far:,} tokens differ far more than the others, and {percent(spread.below)} of them are lower "
            f"in {case.context.train}. The mean ratio is {features.forward.words(4)}.",
        ),
    )


def leak(case: Case, share: float, evidence: tuple[str, ...]) -> CauseFinding:
    """padded_vocabulary, by any evidence."""
    lost, error = -case.features.forward.value, 2 * case.features.forward.error
    return CauseFinding(
        cause="padded_vocabulary",
        share=share,
        parameters={"mass": lost},
        intervals={"mass": (max(0.0, lost - error), lost + error)},
        headline=f"training gives {percent(lost)} of its probability to tokens outside the rollout's vocabulary",
        evidence=evidence,
    )


def heavy_tail(case: Case) -> CauseFinding | None:
    """Some tokens far off, to either side and beyond noise of its shape, as another expert's choice or a glitch does.

    Flips leave single tokens far off; what stays in a row, as in a KV cache, leaves runs of them.
    """
    spread = case.features.spread
    if spread is None or spread.far < HEAVY_FAR or case.over_noise < MOST_OVER_NOISE:
        return None
    if case.goes_with_token or spread.core > case.widest_noise:
        return None
    runs, far = far_in_runs(case), percent(ratio(spread.n_far, case.features.n_tokens))
    advice = CAUSES["heavy_tail"].advice
    how, what = "", "router flips of a mixture of experts, or another fault of single tokens"
    if runs is not None and runs >= IN_RUNS:
        how, what, advice = ", in runs", "a fault that stays in a row for a while, as in a KV cache", LOOK_AT_RUNS
    elif runs is not None:
        how = ", each by itself"
    return CauseFinding(
        cause="heavy_tail",
        share=max(0.0, _body_share(case) - case.noise_share(case.features.body_noise_gap)),
        parameters={"core": spread.core, "outliers": spread.n_far, **({} if runs is None else {"in_runs": runs})},
        headline=f"{far} of the tokens ({spread.n_far:,}) are far off{how} (training above the rollout "
        f"on {spread.n_far - spread.n_below:,}, below on {spread.n_below:,}): {what}",
        evidence=(
            f"The other tokens, quiet and loud, differ by {figures(spread.core)} in log-odds. These {spread.n_far:,} "
            f"make the spread {case.over_noise:.1f} times what it would be without them (noise alone: at most 1.2).",
            *([] if runs is None else [f"Of tokens after a far one {percent(runs)} are far off, too."]),
            *filter(None, (_cannot_tell_weights(case),)),
        ),
        advice=f"{TELL_WEIGHTS} {advice}" if case.may_be_weights else advice,
        alternatives=(*(("noise",) if case.over_noise < NEAR_NOISE * MOST_OVER_NOISE else ()), *_or_weights(case)),
    )


def _or_weights(case: Case) -> tuple[str, ...]:
    return ("other_weights",) if case.may_be_weights else ()


def far_in_runs(case: Case) -> float | None:
    """The share of tokens right after a far one of their row that are far off, too; None without any."""
    if case.distances is None:
        return None
    far = case.distances > FAR_LOUD
    starts = starts_of(case.sample.n_valid)[1:]
    before, after = far[:-1].copy(), far[1:]
    before[starts[starts < len(far)] - 1] = False  # a row's last token, which no other follows
    return float(after[before].mean()) if before.any() else None


def other_weights(case: Case) -> CauseFinding | None:
    """Differences that go with the token, or are larger than rounding makes."""
    core, by_token, clean = case.features.core, case.by_token, case.context.clean
    if not case.goes_with_token and core <= case.widest_noise:
        return None
    evidence = [f"The log-odds differ by {figures(core)}{_against(case)}."]
    if clean is not None and core > case.widest_noise:
        evidence.append(f"Measured on six models: {FORMATS}.")
    if by_token is not None and case.goes_with_token:
        evidence.append(
            f"{_share_by_token(case, by_token.omega2)} of it depends on the token, across prompts (rounding: below "
            f"{percent(case.omega2_of_weights).removeprefix('< ')})."
        )
    noise = 0.0 if clean is None else case.features.body_noise_gap * min(1.0, ratio(clean.core, core)) ** 2
    headline = "one side runs other weights (8-bit or 4-bit, another checkpoint, an adapter, or stale weights)"
    side, advice, is_near = _side_beyond_the_prefix(case), "", False
    if by_token is not None and core <= case.widest_noise:
        unsure = by_token.omega2 - ERRORS * by_token.error < case.omega2_of_weights
        is_near = unsure or case.size_by_token < NEAR_SIZE * LEAST_BY_TOKEN or clean is not None
    if side is not None:
        column, here, there = side
        headline = f"{column} depends on more than the tokens before: dropout, or packed sequences that see each other"
        advice = BY_THE_PREFIX
        evidence.append(
            f"A token that follows the same prefix in two rows differs by {figures(here)} in {column}, and by "
            f"{figures(there)} in the other column."
        )
    return CauseFinding(
        cause="other_weights",
        share=case.features.share(case.features.body_gap - noise),
        parameters={"core": core, **_times_clean(case), **({} if by_token is None else {"by_token": by_token.omega2})},
        headline=headline,
        evidence=tuple(evidence),
        advice=advice,
        alternatives=("noise",) if is_near else (),
    )


def _side_beyond_the_prefix(case: Case) -> tuple[str, float, float] | None:
    """The column in which a token's log-odds depend on more than its prefix, by how much, and the other's: most of what
    the two columns differ by, and BEYOND times as much as in the other one.  None where that is so of neither."""
    spreads = scored_again(case.sample)
    if spreads is None:
        return None
    there, here = sorted(spreads)
    if here < max(BEYOND * there, case.features.core / 2):
        return None
    return (case.context.rollout if here == spreads[0] else case.context.train), here, there


def _against(case: Case) -> str:
    """How that compares with a clean dump, else with what number formats make at most."""
    core, clean = case.features.core, case.context.clean
    if clean is None:
        return " (number formats: at most 0.45)" if core > OTHER_CORE else ""
    return f", {ratio(core, clean.core):.1f} times as much as in {clean.name}, which is clean"


def _times_clean(case: Case) -> dict[str, float]:
    clean = case.context.clean
    return {} if clean is None else {"times_clean": ratio(case.features.core, clean.core)}


def noise(case: Case, beside: Sequence[CauseFinding]) -> CauseFinding | None:
    """Whatever else holds: at most what the causes beside it leave of the gap."""
    core, clean = case.features.core, case.context.clean
    if core <= CLEAN_CORE:
        return None
    as_clean = "" if clean is None or beside else f", {ratio(core, clean.core):.1f} times that of {clean.name}"
    least = min(core, OTHER_CORE if clean is None or not beside else clean.core)
    left = max(0.0, 1 - sum(cause.share for cause in beside))
    beside = [cause for cause in beside if cause.share >= CAUSES[cause.cause].least_share]
    evidence = [f"The rest has a spread of {figures(least)} in log-odds."] if beside else _noise_evidence(case)
    share = min(case.noise_share(case.features.noise_gap * ratio(least, core) ** 2), left)
    return CauseFinding(
        cause="noise",
        share=share,
        bound="at_most",
        parameters={"core": core, **_times_clean(case)},
        headline=(NOISE if core <= case.widest_noise else LARGER_NOISE) + as_clean,
        evidence=tuple(evidence),
        advice=f"{TELL_WEIGHTS} {IF_ROUNDING}" if case.may_be_weights and not beside else "",
        alternatives=(*_or_weights(case), *(("heavy_tail",) if share < QUIET else ())),
    )


def _noise_evidence(case: Case) -> list[str]:
    features = case.features
    line = features.lines["u"]
    parts = [
        f"The log-odds differ by {figures(features.core)}{_against(case)}, equally at all levels of surprise "
        f"(slope {round(line.slope, 4) + 0.0:.4f} ± {2 * line.error:.4f})"
    ]
    if case.by_token is not None:
        by_token, least = max(0.0, case.by_token.omega2), case.omega2_of_weights
        more = f"{percent(least)} or more{'' if by_token < least else ', beyond chance'}"
        parts.append(f"{_share_by_token(case, by_token)} of it depends on the token (changed weights: {more})")
    if features.lean.z_tau <= LEAN_Z:
        parts.append("no rows gain or lose as a whole")
    mean = f"the mean ratio is {features.forward.words(4)}"
    drawn = abs(features.forward.value) <= 3 * features.forward.error
    parts.append(f"{mean}, so the tokens were drawn from {case.context.rollout}" if drawn else mean)
    return list(filter(None, ("; ".join(parts) + ".", _cannot_tell_weights(case))))


def _share_by_token(case: Case, share: float) -> str:
    """A share in whole percent; in tenths near that of changed weights, and never rounded to it from below."""
    share, least = min(share, 1.0), case.omega2_of_weights  # an estimate may lie above 1
    if percent(share) != percent(least):
        return percent(share)
    tenths = round(1000 * share) if share >= least else int(1000 * share)
    return f"{tenths / 10:.1f}%"


def _cannot_tell_weights(case: Case) -> str:
    """What the evidence lacks; empty where changed weights are ruled out, or a clean dump tells."""
    if not case.may_be_weights:
        return ""
    if case.by_token is None:
        return "Without token ids, changed weights cannot be ruled out."
    as_little = "Most changed weights leave more than that, 8-bit integers as little."
    return as_little if case.by_token.holds else "Too few tokens or prompts to rule out changed weights."


def _body_share(case: Case) -> float:
    return case.features.share(case.features.body_gap)


RULES: Mapping[str, Rule] = {
    "grid": grid_cause,
    "repetition_penalty": repetition_penalty,
    "stale_policy": stale_policy,
    "drift": drift,
    "padded_vocabulary": padded_vocabulary,
    "heavy_tail": heavy_tail,
    "other_weights": other_weights,
}
