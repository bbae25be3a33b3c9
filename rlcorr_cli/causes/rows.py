"""Rows that stand out by themselves, and tokens that were recorded wrongly in all of them.

Log-probs of other tokens than the sampled ones; rows that slip from some token on; rows whose two columns
are of different responses; and rows far off that no column marks.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import isnan

import numpy as np

from rlcorr_cli.causes.anomalies import correlation
from rlcorr_cli.causes.curves import is_cut
from rlcorr_cli.causes.diagnosis import CauseFinding
from rlcorr_cli.causes.features import Case, Rule
from rlcorr_cli.causes.gap import SIZE_LEAST, SIZE_STEP, SIZE_SUMS
from rlcorr_cli.causes.gap_sums import gap_totals
from rlcorr_cli.causes.numbers import once, ratio, weighted_quantile
from rlcorr_cli.causes.table import CAUSES
from rlcorr_cli.causes.wording import count_noun, figures, percent
from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure.row_sampling import largest
from rlcorr_cli.reading.batches import all_resolved
from rlcorr_cli.totals.flat import Flags, Floats, starts_of
from rlcorr_cli.totals.row_sample import RowSample

FAR_TOKENS, FAR_LOG_RATIO, FAR_SHARE = 30, 1.0, 0.01
NEARLY_ALL, SLACK = 0.995, 0.02
AT_ENDS = 0.5
LIKELY = 0.25
"""The likeliest token's probability, typically, where another one was sampled; top-k leaves .05 to rare tokens."""

MAXIMUM_ERRORS = 4.0
ONE_SIDE, UNRELATED = 0.9, 0.2
"""Another token is the less likely one so often, and its log-prob correlates with the sampled one's by less."""
EARLIEST, LATE = 0.05, 0.1

FARTHEST_SLIP = 8
MIN_SLIPPED, MIN_TAIL = 3, 8
HELD = 2.0
"""What |a - b| is held to, so that no single token decides where a row slips."""
MATCHED, LEVEL_BEFORE = 0.7, 0.3
"""A slip explains this share of the differences after it; before it they are this share of those after it at most."""
CANDIDATES, CANDIDATE_SHARE = 256, 0.05
"""Rows in which a share of the tokens is far off are tried, so many of them."""
SLIPPED_SHARE = 0.1

MISPAIRED_SHARE = 0.1
MIN_ROWS, MIN_FAR_ROWS, MOST_FAR_ROWS, FAR_ROWS_SHARE = 16, 3, 0.45, 0.3
FAR_LEAST, FAR_SPREADS = 1.0, 4.0
"""A far row's y lies above the median by this much, and by so many of the rows' own deviations."""
IQR_OF_NORMAL = 1.349
WORST, NAMED_ROWS = 8, 4
_TYPED = re.compile(r"\w[\w.:/@-]*")
"""Ids that a shell takes as they are."""


def other_tokens(case: Case) -> CauseFinding | None:
    """One column has log-probs of other tokens than the sampled ones: the rollout's of the likeliest ones, or either
    column's of tokens that have nothing to do with these.

    Two tokens of one distribution have probabilities that sum to 1 at most.  Where the rollout's is of the likeliest
    token, of probability p, another one was sampled with probability 1 - p, and only there the two are far apart:
    sum p (far - (1 - p)) is 0 or less then, but for an error of sqrt(sum p^3 (1 - p)).
    """
    sample = case.sample
    if case.step is not None and is_cut(case.step):
        return None
    b, a = (column.astype(np.float64) for column in (sample.rollout, sample.train))
    far = np.abs(a - b) > FAR_LOG_RATIO
    n, starts = int(far.sum()), starts_of(sample.n_valid)
    if n < max(FAR_TOKENS, FAR_SHARE * len(b)):
        return None
    if far[starts + sample.n_valid - 1].sum() + far[starts].sum() > AT_ENDS * n:
        return None  # something else is wrong with first or last tokens
    p, q = np.exp(b), np.exp(a)
    higher, fits = float((p > q)[far].mean()), float((p + q <= 1 + SLACK)[far].mean())
    if fits < NEARLY_ALL:
        return None
    error = np.sqrt(float((p**3 * (1 - p)).clip(0).sum()))
    is_likeliest = float((p * (far - (1 - p))).sum()) <= MAXIMUM_ERRORS * error
    columns = (case.context.rollout, case.context.train)
    lower, upper = columns if higher < 1 / 2 else columns[::-1]
    parameters: dict[str, float | str] = {"tokens": n}
    if higher >= NEARLY_ALL and is_likeliest and float(np.median(p[far])) >= LIKELY:
        cause, headline = "top1_recorded", f"{upper} holds the log-prob of the likeliest token, not of the sampled one"
    elif max(higher, 1 - higher) >= ONE_SIDE and 0 < abs(correlation(a[far], b[far])) < UNRELATED:
        place = np.arange(len(b)) - np.repeat(starts, sample.n_valid)
        start = float(np.quantile((place / np.repeat(sample.n_valid, sample.n_valid))[far], EARLIEST))
        since = f", from about {percent(start)} of each row's length on" if start > LATE else ""
        cause, headline = "wrong_labels", f"{lower} is not of the sampled tokens{since}"
        parameters["side"] = lower
    else:
        return None
    return CauseFinding(
        cause=cause,
        share=case.features.share(float(((a - b)[far] ** 2).sum())),
        token_share=n / len(b),
        parameters=parameters,
        headline=headline,
        evidence=(
            f"On {n:,} tokens the columns differ by more than {FAR_LOG_RATIO:g}. {upper} is the higher one on "
            f"{percent(max(higher, 1 - higher))} of them, and on {percent(fits)} the two probabilities sum to 1 at "
            "most, as those of two different tokens do.",
        ),
    )


def _names(sample: RowSample, rows: Sequence[int]) -> str:
    """What names the first of some rows to their owner: ids, else places, counted from the start of each file."""
    named = rows[:NAMED_ROWS]
    places = all_resolved([sample.place(row) for row in named])
    return ", ".join(sample.name(row) or place.text for row, place in zip(named, places, strict=True))


def _advice(cause: str, sample: RowSample, row: int) -> str:
    """That of a cause of some rows, with the id of one to look at, where it has one that can be typed."""
    name, advice = sample.name(row) or "", CAUSES[cause].advice
    return advice.replace("--row ID", f"--row {name}") if _TYPED.fullmatch(name) else advice


def _worst(sample: RowSample, values: Floats) -> list[int]:
    """The WORST rows by some value, largest first; those of one value in the order of their places."""

    def order(row: int) -> tuple[float, str, int, int]:
        place = sample.place(row)
        return -float(values[row]), place.path, place.start, place.number

    return sorted(largest(values, WORST).tolist(), key=order)


@frozen
class Slip:
    """A row whose rollout column stands `by` places later from a token on; squares: the sum of l^2 from there."""

    row: int
    token: int
    by: int
    squares: float

    @property
    def is_whole(self) -> bool:
        """Whether it is so from the row's start."""
        return self.token < MIN_TAIL


@once
def slips_of(sample: RowSample) -> list[Slip]:
    """The rows of a sample that slip, of the first CANDIDATES with many far tokens."""
    ends = np.cumsum(sample.n_valid)
    starts = ends - sample.n_valid
    off = np.abs(sample.train.astype(np.float64) - sample.rollout) > FAR_LOG_RATIO
    far = np.add.reduceat(off.astype(np.float64), starts) / sample.n_valid if len(ends) else ends
    slips: list[Slip] = []
    for row in np.flatnonzero((far >= CANDIDATE_SHARE) & (sample.n_valid >= 2 * MIN_TAIL))[:CANDIDATES].tolist():
        here = slice(int(starts[row]), int(ends[row]))
        slip = _slip_of(row, sample.rollout[here].astype(np.float64), sample.train[here].astype(np.float64))
        if slip is not None:
            slips.append(slip)
    return slips


def _slip_of(row: int, b: Floats, a: Floats) -> Slip | None:
    """The slip that explains most of a row's differences, if it explains nearly all of those after it."""
    n, in_place = len(b), np.minimum(np.abs(a - b), HELD)
    best: tuple[float, int, int] = (0.0, 0, 0)
    for by in (*range(-FARTHEST_SLIP, 0), *range(1, FARTHEST_SLIP + 1)):
        gain = np.zeros(n)
        at = np.arange(max(0, -by), min(n, n - by))
        gain[at] = in_place[at] - np.minimum(np.abs(a[at] - b[at + by]), HELD)
        after = gain[::-1].cumsum()[::-1]
        token = int(after.argmax())
        best = max(best, (float(after[token]), token, by))
    explained, token, by = best
    after = float(in_place[token:].sum())
    if token > n - MIN_TAIL or explained < MATCHED * after:
        return None
    if token >= MIN_TAIL and in_place[:token].mean() > LEVEL_BEFORE * in_place[token:].mean():
        return None
    return Slip(row, token, by, float(((a - b)[token:] ** 2).sum()))


def _slips_to_tell(case: Case) -> tuple[list[Slip], float]:
    """The rows that slip and their share of the gap, where they are so many that they are told."""
    slips = slips_of(case.sample)
    share = case.features.share(sum(slip.squares for slip in slips))
    return ([], 0.0) if len(slips) < MIN_SLIPPED or share < SLIPPED_SHARE else (slips, share)


def slipped_rows(case: Case) -> CauseFinding | None:
    """Rows whose columns belong together, but for one that slips by some tokens on the way or from the start."""
    sample, (slips, share) = case.sample, _slips_to_tell(case)
    if not slips:
        return None
    by, n_by = Counter(slip.by for slip in slips).most_common(1)[0]
    first = next((slip for slip in slips if not slip.is_whole), slips[0])
    named = [first, *(slip for slip in slips if slip is not first)]
    names = _names(sample, [slip.row for slip in named])
    rollout, train = case.context.rollout, case.context.train
    direction, advice = "later" if by > 0 else "earlier", ""
    of_rows = f"{count_noun(len(slips), 'row')} of {sample.n_rows:,}"
    if all(slip.is_whole for slip in slips):
        what = f"{rollout} lies {count_noun(abs(by), 'token')} {direction} than {train} in {of_rows}"
        where = f"These rows agree nowhere in place: from their start, {rollout} agrees with {train}"
        advice = "Look at how both sides cut the response out of prompt and response: one begins a token off."
    else:
        off = f"{count_noun(abs(by), 'token')} {direction} than {train}"
        what = f"{rollout} stands {off} from some token on, in {of_rows}"
        where = (
            f"These rows agree at their start. From some token on (token {first.token} of the first one), {rollout} "
            f"agrees with {train} again"
        )
    return CauseFinding(
        cause="slipped_rows",
        share=share,
        token_share=None,
        parameters={"rows": len(slips), "by": by, "token": first.token, "ids": names},
        headline=what,
        evidence=(
            f"{where} {count_noun(abs(by), 'place')} {direction}: {n_by:,} of {len(slips):,} rows. "
            f"Rows: {names}{'' if len(slips) <= NAMED_ROWS else ' and others'}.",
        ),
        explains=("swapped_columns",),
        advice=advice or _advice("slipped_rows", sample, first.row),
    )


def mispaired_rows(case: Case) -> CauseFinding | None:
    """Rows whose two columns do not go together, as those of the other rows do; without those that slip."""
    sample, totals, features, odd = case.sample, case.totals, case.features, gap_totals(case.sample).odd
    # Slipped rows whose columns do not go together in place: the others slip too late.
    slips = [slip for slip in _slips_to_tell(case)[0] if not isnan(odd[slip.row])]
    n_odd = totals.n_odd - len(slips)
    if n_odd <= 0 or features.odd_belong:
        return None
    squares, tokens = (float(totals.sums("odd")[name].sum()) for name in ("l2", "n"))
    squares -= sum(slip.squares for slip in slips)
    tokens -= sum(float(sample.n_valid[slip.row]) for slip in slips)
    slipped = {slip.row for slip in slips}
    share = features.share(squares)
    if share < MISPAIRED_SHARE:
        return None
    worst = [row for row in _worst(sample, odd) if row not in slipped]
    names = _names(sample, worst)
    _, rho, _, inverse, _ = totals.odd / totals.odd[0]
    return CauseFinding(
        cause="mispaired_rows",
        share=share,
        token_share=ratio(tokens, features.n_tokens),
        parameters={"rows": n_odd, "ids": names, "correlation": features.odd_correlation},
        headline=f"{count_noun(n_odd, 'row')} of {totals.n_rows:,} hold log-probs of two different responses",
        evidence=(
            f"Within them, the log-odds of the two columns correlate at {figures(features.odd_correlation)}: "
            f"{names}{'' if n_odd <= NAMED_ROWS else ' and others'}.",
            f"Neither policy can have drawn their tokens: the mean ratio is {figures(rho)} and its inverse's "
            f"{figures(inverse)}, or more, and one of the two would be 1.",
        ),
        advice=_advice("mispaired_rows", sample, worst[0]) if worst else "",
    )


def some_rows(case: Case) -> CauseFinding | None:
    """Rows far above the median row, which no column marks."""
    rows, tokens, l2, e2 = (case.totals.sizes[:, SIZE_SUMS.index(name)] for name in SIZE_SUMS)
    if rows.sum() < MIN_ROWS:
        return None
    y = SIZE_LEAST + SIZE_STEP * (np.arange(len(rows), dtype=np.float64) + 0.5)
    # The spread is that of the lower half: up to 45% of the rows may be far, and widen the upper one.
    low, median = (weighted_quantile(y, rows, share) for share in (0.25, 0.5))
    far = y > median + max(FAR_LEAST, FAR_SPREADS * 2 * (median - low) / IQR_OF_NORMAL)
    n_far = int(rows[far].sum())
    if not MIN_FAR_ROWS <= n_far <= MOST_FAR_ROWS * rows.sum():
        return None
    share = case.features.share(float(l2[far].sum() - e2[far].sum() * ratio(l2[~far].sum(), e2[~far].sum())))
    if share < FAR_ROWS_SHARE:
        return None
    names = _names(case.sample, _worst(case.sample, gap_totals(case.sample).far))
    times = float(np.exp((y[far] * rows[far]).sum() / n_far - median))
    # Rows' lengths are always levels; other columns only where they were read.
    unmarked = ", which no column marks" if case.totals.columns.keys() - {"length"} else ", far worse than the others"
    return CauseFinding(
        cause="some_rows",
        share=share,
        token_share=ratio(float(tokens[far].sum()), case.features.n_tokens),
        parameters={"rows": n_far, "ids": names},
        headline=f"{n_far:,} of {int(rows.sum()):,} rows{unmarked}",
        evidence=(
            f"Their tokens differ {figures(times)} times as much as those of the median row; the worst rows are "
            f"{names}.",
        ),
    )


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("top1_recorded", "wrong_labels"), other_tokens),
    "slipped_rows": slipped_rows,
    "mispaired_rows": mispaired_rows,
    "some_rows": some_rows,
}


def _that_slip(sample: RowSample) -> Flags:
    slipped = np.zeros(sample.n_rows, np.bool_)
    slipped[[slip.row for slip in slips_of(sample)]] = True
    return slipped


def _that_are_mispaired(sample: RowSample) -> Flags:
    return ~np.isnan(gap_totals(sample).odd) & ~_that_slip(sample)


FAULTY_ROWS: Mapping[str, Callable[[RowSample], Flags]] = {
    "slipped_rows": _that_slip,
    "mispaired_rows": _that_are_mispaired,
}
"""Of each cause whose scope is rows: which rows of a sample it is in, bool[B]."""
