"""The search for the cause of a gap: from a sample of a dump's rows to a diagnosis.

Every command searches the same sample of the same dump by these functions, so all of them name the same cause.

Two kinds of rows taken together look like neither: a temperature at half of the steps looks like a tail of far tokens.
So where a place stands apart (`where`), its rows and all others are searched as if each were a dump of its own, and
what is found is put together (`parted`):

* a cause that only the rows of some steps show is told as a cause at these steps;
* of a worker, a source and the like the column itself is the cause, and what its rows show is its evidence, unless that
  is a fault of single rows or tokens, which is told with its place;
* what both parts show is a cause of all rows, and so is a cause of the whole that explains AS_WELL of what the place
  holds;
* what the rest shows by itself stands beside it.

Faults of single rows and tokens are found in the whole dump; `with_shared_places` says which place nearly all of their
rows are of.  Where they make most of the gap, they are set aside, and the rest is searched as a dump of its own for
what they hide (`beside_faults`).
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.causes.columns import COLUMN_SHARE, Attribution, column_of, turn_gaps
from rlcorr_cli.causes.diagnosis import TOO_FEW, UNCLEAR, CauseFinding, Diagnosis, Fact, Leg, SampledRows
from rlcorr_cli.causes.exact import copied_rows, exact_facts, impossible_ratio
from rlcorr_cli.causes.features import Context, Yardstick
from rlcorr_cli.causes.gap import MOST_LEVELS, PARTS, PLACE_SUMS, GapTotals
from rlcorr_cli.causes.gap_sums import AFTER_GAP, LN_2, gap_totals
from rlcorr_cli.causes.judge import concluded, diagnose, in_order
from rlcorr_cli.causes.numbers import ratio
from rlcorr_cli.causes.of_tokens import head_facts, head_gap, kept_gap, kept_set_facts, version_gaps
from rlcorr_cli.causes.rows import FAULTY_ROWS
from rlcorr_cli.causes.steps import STEP, between_steps, sample_batch, sample_clusters
from rlcorr_cli.causes.table import CAUSES, LEAST, NOISE
from rlcorr_cli.causes.token_classes import OTHER, by_class, text_classes, turn_classes, turn_starts
from rlcorr_cli.causes.where import LAG, TELL_TIME, TOKEN_CLASS, PlaceOfGap, place_of, shared_by
from rlcorr_cli.causes.wording import levels_named, percent, steps_named
from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure.arrays import CPU
from rlcorr_cli.measure.bootstrap import clusters_by
from rlcorr_cli.measure.observe import Observation, observe
from rlcorr_cli.totals.comparison import uncorrected
from rlcorr_cli.totals.flat import Flags, Ints, starts_of, unique_values
from rlcorr_cli.totals.row_keys import DistinctKeys
from rlcorr_cli.totals.row_sample import TURN, ColumnOfKeys, RowSample
from rlcorr_cli.totals.totals import Totals

SYNC = "Check first that the weights of every update reach the rollout engine."
"""Comes first in the advice where other weights grow with the step, or come and go."""
BROAD = {name for name, row in CAUSES.items() if row.scope == "broad"}
HIDES = 0.5
"""Faults of single rows or tokens that make so much of the gap may hide what else is wrong."""
TOO = "other tokens differ by more than rounding makes, too"
AGAIN = "Mend what is named first: it may make this, too. Then run `rlcorr diagnose` again."
FEW = 0.05
"""Of the tokens of a place: so few may be named."""
AS_WELL = 0.8
"""A cause with such a share of what a place holds is taken to explain it."""


def parted(
    sample: RowSample, whole: Diagnosis, place: PlaceOfGap, context: Context, *, is_inner: bool = False
) -> Diagnosis:
    """The diagnosis of a sample of which a place stands apart.  whole: of all rows together.  is_inner: whether the
    sample is a part already, whose parts are not parted again."""
    inside, rest = (
        _part_diagnosis(sample.rows(np.flatnonzero(rows)), context, place, is_last=is_inner)
        for rows in (place.at, ~place.at)
    )
    if _is_of_all_rows(place, whole, inside, rest):
        if not place.grows or not whole.causes:
            return whole
        first, *others = whole.causes
        evidence = (f"It grows with the step. {first.evidence[0]}", *first.evidence[1:])
        return replace(whole, causes=(replace(first, evidence=evidence), *others))
    portions = [ratio(part.gap.sum_sq, whole.gap.sum_sq) for part in (inside, rest)]
    of_inside, of_rest = (
        {each.cause: replace(each, share=each.share * portion, share_interval=None) for each in part.causes}
        for part, portion in zip((inside, rest), portions, strict=True)
    )
    of_whole = {each.cause: each for each in whole.causes}
    both = (of_inside.keys() & of_rest.keys()) - {"column"}
    own = [each for name, each in of_inside.items() if name not in {*both, "noise"}]
    few = _of_few_tokens(sample.rows(np.flatnonzero(place.at)))
    causes = _causes_of_place(place, inside, own, portion=portions[0], few=few)
    for name, each in of_rest.items():
        if name == "noise" or (name == "stale_policy" and place.column == LAG):
            continue
        if name in BROAD and name in {*both, *of_whole}:  # in all rows, at the size that it has in the rest
            causes.append(replace(each, share=(1 - place.share) * ratio(each.share, portions[1])))
        elif name in both:
            causes.append(of_whole.get(name) or replace(each, share=each.share + of_inside[name].share))
        else:
            causes.append(each)
    noise = of_rest.get("noise", of_whole.get("noise"))  # beside the rest nothing else tells how wide it is
    if noise is not None:
        of_parts = sum(found["noise"].share for found in (of_inside, of_rest) if "noise" in found)
        if "noise" in of_rest and any(each.share >= CAUSES[each.cause].least_share for each in causes):
            of_parts = ratio(noise.share, 1 - place.token_share, 1.0)
        share = min(of_parts, max(0.0, 1 - sum(each.share for each in causes)))
        causes += [replace(noise, share=share)] if share else []
    causes = in_order(cause for cause in causes if cause.share >= LEAST or cause.cause not in BROAD - {"noise"})
    verdict, conclusion = concluded(causes)
    facts = (*whole.facts, *_facts_of_place(place, inside, rest))
    return replace(whole, verdict=verdict, conclusion=conclusion, causes=tuple(causes), facts=facts)


def _part_diagnosis(part: RowSample, context: Context, place: PlaceOfGap | None, *, is_last: bool) -> Diagnosis:
    """The diagnosis of one part of a place, or of what faults leave, which is parted again where another column stands
    apart in it."""
    inner = None if is_last else place_of(part, gap_totals(part))
    found = diagnose(part, context, inner, is_part=True)
    if inner is None or found.verdict == TOO_FEW or (place is not None and inner.column == place.column):
        return found
    return parted(part, found, inner, context, is_inner=True)


def _is_of_all_rows(place: PlaceOfGap, whole: Diagnosis, inside: Diagnosis, rest: Diagnosis) -> bool:
    """Whether what is wrong is wrong in all rows, and the place is only where it is larger."""
    if place.is_stale or (place.column == LAG and "stale_policy" in (whole.verdict, inside.verdict)):
        return False
    in_rest = {each.cause for each in rest.causes if not each.is_minor}
    main = max(inside.causes, key=lambda each: each.share, default=None)
    if main is not None and {main.cause, inside.verdict} <= in_rest - BROAD:
        return True
    named = whole.cause
    if place.column == STEP and named is not None and inside.cause is not None and inside.cause.cause == named.cause:
        return False
    return named is not None and named.cause not in {*BROAD, "grid"} and named.share >= AS_WELL * place.share


def _of_few_tokens(part: RowSample) -> str:
    """That few tokens make nearly all of the gap of a part, and to which side they lie; else empty."""
    gap = part.train.astype(np.float64) - part.rollout
    far = np.abs(gap) > LN_2
    n, share = int(far.sum()), ratio(float(gap[far] @ gap[far]), float(gap @ gap))
    if not 0 < n <= FEW * len(gap) or share < AS_WELL:
        return ""
    n_above = int((gap[far] > 0).sum())
    higher = f"{part.columns[1]} is higher on {n_above:,}, lower on {n - n_above:,}"
    return f"{n:,} of these tokens make {percent(share)} of it; {higher}."


def _causes_of_place(
    place: PlaceOfGap, inside: Diagnosis, own: Sequence[CauseFinding], *, portion: float, few: str
) -> list[CauseFinding]:
    """The causes of a place alone.  own: those that only its rows show; portion: the share of the gap in its rows; few:
    as of _of_few_tokens, which is told in the place of what few far tokens look like."""
    single = [each for each in own if CAUSES[each.cause].scope in ("rows", "tokens")]
    of_rows = [each for each in single if each.share >= AS_WELL * place.share]
    if place.column == STEP:
        # What grows along another column within some steps may as well grow along the steps.
        own = [each for each in own if "direction" not in each.parameters]
        is_named = any(each.share >= CAUSES[each.cause].least_share for each in own)
    else:
        is_named, own = bool(of_rows), of_rows or own
    if is_named or place.share < COLUMN_SHARE:
        return [_cause_at(place, each, portion) for each in own]
    column = _with_place(column_of(place), place)
    if place.is_stale and inside.cause is not None and inside.cause.parameters.get("column") in TELL_TIME:
        return [column]  # that it grows is said
    inner = next((each for each in own if each.cause == inside.verdict), None)
    if inside.verdict == "column" and inside.cause is not None:
        within = f"Within {'it' if len(place.levels) == 1 else 'them'} stands apart: {inside.cause.headline}."
        parameters = {**inside.cause.parameters, **column.parameters}
        return [replace(column, evidence=(*column.evidence, within), parameters=parameters)]
    if few and (inner is None or inner.cause in BROAD):
        return [replace(column, evidence=(*column.evidence, few))]
    if inner is not None and not inner.cause == column.cause == "stale_policy":
        its, rows = "its" if len(place.levels) == 1 else "their", "tokens" if place.column == TURN else "rows"
        parameters = {**inner.parameters, **column.parameters}
        evidence = (*column.evidence, f"Alone, {its} {rows} show: {inner.claim}.")
        column = replace(column, evidence=evidence, parameters=parameters, intervals=inner.intervals)
    return [column]


def _cause_at(place: PlaceOfGap, cause: CauseFinding, portion: float) -> CauseFinding:
    """A cause of the rows of a place."""
    if place.column != STEP:
        return _with_place(cause, place)
    hold = "holds" if len(place.levels) == 1 else "hold"
    held = f"{steps_named(place.levels, every=place.every)} {hold} {percent(portion)} of the gap."
    first, *more = cause.evidence
    since = "" if place.start is None else f" from step {place.start} on"
    where = f"It grows with the step{since}: {held}" if place.grows else f"{held[0].upper()}{held[1:]}"
    evidence = (where, f"There {first[0].lower()}{first[1:]}", *more)
    if cause.cause == "other_weights" and (place.grows or not place.is_range or place.is_all_but_the_first):
        cause = replace(cause, advice=f"{SYNC} Then {cause.advice[0].lower()}{cause.advice[1:]}")
    return replace(_with_place(cause, place), evidence=evidence)


def _with_place(cause: CauseFinding, place: PlaceOfGap) -> CauseFinding:
    """The cause with the place among its parameters, unless it names one already; one of steps is told in the headline,
    too, and in the advice as what to look for."""
    if place.column == STEP and cause.cause != "column" and not place.grows:
        steps = steps_named(place.levels, every=place.every)
        look = f"Find out what {steps} have in common" if len(place.levels) > 1 else ""
        if place.is_all_but_the_first:  # which no update came before
            look = ""
        elif place.is_range and place.since is not None:
            look = f"Find out what changed at step {place.since}"
        cause = replace(
            cause,
            headline=f"{cause.headline}, {place.when}",
            advice=f"{look}. {cause.advice}" if look else cause.advice,
        )
    where = {"column": place.column, "levels": levels_named(place.levels, place.every)}
    parameters = cause.parameters if "column" in cause.parameters else {**cause.parameters, **where}
    return replace(cause, parameters=parameters if place.since is None else {**parameters, "since": place.since})


def _facts_of_place(place: PlaceOfGap, inside: Diagnosis, rest: Diagnosis) -> list[Fact]:
    """The grids that values are on in the rows of a place alone."""
    known = {fact.sentence for fact in rest.facts}
    at = f"At {steps_named(place.levels, place.column, place.every)} "
    return [
        replace(fact, sentence=f"{at}{fact.sentence}")
        for fact in inside.facts
        if fact.name == "grid" and fact.sentence not in known
    ]


def with_shared_places(sample: RowSample, diagnosis: Diagnosis, tokens: Mapping[str, Flags]) -> Diagnosis:
    """The diagnosis in which faults of single rows and tokens say which place nearly all of their rows are of.  tokens:
    of tokens_of_faults."""
    far, starts = np.abs(sample.train.astype(np.float64) - sample.rollout) > LN_2, starts_of(sample.n_valid)
    causes: list[CauseFinding] = []
    for cause in diagnosis.causes:
        at = None if "column" in cause.parameters else tokens.get(cause.cause)
        place = None if at is None else shared_by(sample, np.logical_or.reduceat(at & far, starts))
        if place is not None:
            named = levels_named(place.levels, place.every)
            of_steps = f"are of {steps_named(place.levels, every=place.every)}"
            where = of_steps if place.column == STEP else f"have {place.column} {named}"
            if place.column != STEP:
                cause = replace(cause, advice=f"Look at {place.column} {named} first. {cause.advice}")
            cause = replace(_with_place(cause, place), evidence=(*cause.evidence, f"Nearly all of these rows {where}."))
        causes.append(cause)
    return replace(diagnosis, causes=tuple(causes))


def beside_faults(
    sample: RowSample, whole: Diagnosis, tokens: Mapping[str, Flags], context: Context
) -> Diagnosis | None:
    """The diagnosis where faults of single rows or tokens make most of the gap, and so hide what else is wrong: beside
    them what the rest shows by itself.  None where they make less.  tokens: of tokens_of_faults.

    Where single tokens are wrong, others of their rows often are, and only a setting of the sampler is told then; a
    column, too, where only whole rows are.
    """
    shares = {cause.cause: cause.share for cause in whole.causes if not cause.is_minor}
    wrong = {name: at for name, at in tokens.items() if name in shares}
    if sum(shares[name] for name in wrong) < HIDES:
        return None
    whole = with_shared_places(sample, whole, tokens)
    causes = (
        replace(cause, headline=TOO, advice=AGAIN) if CAUSES[cause.cause].follows_faults else cause
        for cause in whole.causes
    )
    whole = replace(whole, causes=tuple(causes))
    left = ~np.logical_or.reduce([*wrong.values()])
    if not left.any():
        return whole
    rest = _part_diagnosis(sample.tokens(left), context, None, is_last=False)
    settings = {name for name, row in CAUSES.items() if row.scope == "setting"}
    of_rows = all(CAUSES[name].scope == "rows" for name in wrong)
    searched_for = (settings | {"column", "stale_cache"} if of_rows else settings) - shares.keys()
    places = {cause.parameters.get("column") for cause in whole.causes}
    portion = ratio(rest.gap.sum_sq, whole.gap.sum_sq)
    hidden = {
        cause.cause: replace(cause, share=cause.share * portion, share_interval=None)
        for cause in rest.causes
        if cause.cause in searched_for
        and (not cause.is_minor or cause.certainty == "proven")
        and cause.parameters.get("column", "") not in places
    }
    if not hidden:
        return whole
    faults = [cause for cause in whole.causes if not cause.is_minor and cause.cause != "noise"]
    noise = [replace(cause, share=cause.share * portion) for cause in rest.causes if cause.cause == "noise"]
    # The minor causes of the whole are left out: what is found looked like them.
    return replace(whole, causes=(*faults, *hidden.values(), *in_order(noise)))


def tokens_of_faults(sample: RowSample, causes: Sequence[CauseFinding]) -> dict[str, Flags]:
    """Of those of the causes that are faults of single rows or tokens, the tokens at which each sits: all of the rows,
    or every first one, last one, or the one after a gap of the mask and AFTER_GAP more."""
    tokens: dict[str, Flags] = {}
    for row in (CAUSES[cause.cause] for cause in causes):
        if row.scope == "rows":
            tokens[row.name] = np.repeat(FAULTY_ROWS[row.name](sample), sample.n_valid)
        elif row.scope == "tokens":
            tokens[row.name] = np.zeros(sample.n_valid_tokens, np.bool_)
            tokens[row.name][_sat_on(sample, row.sits_on)] = True
    return tokens


def _sat_on(sample: RowSample, sits_on: str) -> Ints:
    """The tokens of a place in each row."""
    if sits_on in ("first", "last"):
        return starts_of(sample.n_valid) if sits_on == "first" else np.cumsum(sample.n_valid) - 1
    return turn_starts(sample, 1 + AFTER_GAP)


FILE = "file"
"""The column of levels that a dump's files are."""
SPOILED = "No other cause is looked for beside values that no policy gives."
TURN_TIMES = 1.3
"""Turns are compared where one holds so many times more, or less, than its tokens' surprise gives: comparing takes as
long as all else."""
CLASS_SHARE = 0.1
"""A class of tokens that holds less of the gap above what its surprise gives is not named: most classes are few tokens,
which are mended in one place."""
STEP_RANGES = 64
"""How many ranges of steps are looked at where there are too many steps."""


@frozen
class Search:
    """What a search came to, and the sums over the sample that it was made of, for pictures."""

    diagnosis: Diagnosis
    totals: GapTotals


def search(
    sample: RowSample,
    rows: NDArray[np.int64] | None = None,
    clean: Yardstick | None = None,
    classes: Mapping[int, str] | None = None,
) -> Search:
    """Search a sample, or these of its rows, for the cause of their gap.  clean: as of Context.  classes: the class of
    each token id (token_classes.py); None where no tokenizer gives their text."""
    if rows is not None:
        sample = sample.rows(rows)
    sample = _with_few_steps(_with_files(sample.ordered))
    gaps, context = gap_totals(sample), Context(*sample.columns, clean)
    totals, place, units = gaps.totals, place_of(sample, gaps), sample
    turns = [(turn.gap, turn.expected) for turn in turn_gaps(totals)]
    if any(gap > TURN_TIMES * expected or TURN_TIMES * gap < expected for gap, expected in turns):
        of_turns = place_of(by_turn := sample.by_turn, gaps.turns)
        place, units = (of_turns, by_turn) if of_turns is not None and of_turns.column == TURN else (place, units)
    diagnosis = diagnose(sample, context, place)
    in_class = np.zeros(sample.n_valid_tokens, np.bool_)
    if exact := exact_facts(sample):  # other causes would be of these values
        diagnosis = replace(diagnosis, exact=exact, verdict=UNCLEAR, conclusion=SPOILED, causes=())
    elif diagnosis.verdict != TOO_FEW:
        diagnosis = _refined(sample, diagnosis, context, place=place, units=units)
        of_tokens = [turn_classes(sample)] if turns and _share_of_turn_starts(totals) >= CLASS_SHARE else []
        if classes and sample.token_ids is not None:
            of_tokens.append(text_classes(sample, classes))
        for each in of_tokens:
            diagnosis, named = _with_classes(sample, diagnosis, each)
            in_class |= np.isin(each.codes, [each.values.index(name) for name in named])
    head, kept = head_gap(sample), kept_gap(sample)
    sampled = SampledRows(sample.n_rows, sample.n_valid_tokens) if sample.level else None
    diagnosis = replace(
        diagnosis,
        facts=(
            *diagnosis.facts,
            *kept_set_facts(sample, context.rollout, context.train, kept),
            *head_facts(head),
            *_lag_facts(sample),
            *copied_rows(sample),
        ),
        causes=tuple(replace(cause, sample=sampled) for cause in diagnosis.causes),
        gap=replace(diagnosis.gap, sample=sampled, by_version=version_gaps(sample), head=head, kept=kept),
        impossible=None if exact else impossible_ratio(sample.tokens(~in_class) if in_class.any() else sample),
        legs=() if exact or diagnosis.verdict == TOO_FEW else tuple(_legs(sample, context)),
        between_steps=between_steps(sample),
    )
    return Search(diagnosis, totals)


def _refined(
    sample: RowSample, whole: Diagnosis, context: Context, *, place: PlaceOfGap | None, units: RowSample
) -> Diagnosis:
    """The diagnosis of all rows together, by what its faults hide, else by the place that stands apart.  units: the
    rows, or turns, that the place is of."""
    tokens = tokens_of_faults(sample, whole.causes)
    if (beside := beside_faults(sample, whole, tokens, context)) is not None:
        return beside
    if place is None:
        return with_shared_places(sample, whole, tokens)
    by_place = parted(units, whole, place, context)
    tokens |= tokens_of_faults(sample, [cause for cause in by_place.causes if cause.cause not in tokens])
    return with_shared_places(sample, by_place, tokens)


def _share_of_turn_starts(totals: GapTotals) -> float:
    """The share of the gap in the parts that first tokens of later turns may be of: no more is in these tokens."""
    squares = totals.places[:, PLACE_SUMS.index("l2")]
    parts = [PARTS.index(part) for part in ("odd", "last", "gap", "after_gap")]
    return ratio(float(squares[parts].sum()), float(squares.sum()))


def _with_classes(sample: RowSample, whole: Diagnosis, of_tokens: ColumnOfKeys) -> tuple[Diagnosis, tuple[Any, ...]]:
    """The diagnosis with what classes of tokens hold of the gap, and the classes named: those that stand apart take the
    place of a broad cause, and stand before a column or a fault that holds less.

    of_tokens: the class of each valid token.
    """
    units = by_class(sample, of_tokens)
    gaps = gap_totals(units)
    place = place_of(units, gaps)
    place = None if place is None or place.column != TOKEN_CLASS or OTHER in place.levels else place
    named = whole.cause
    is_held = named is not None and (
        named.parameters.get("column") == TOKEN_CLASS
        or (named.cause not in BROAD and place is not None and named.share >= AS_WELL * place.share)
    )
    if place is None or is_held or place.share < CLASS_SHARE:
        return whole, ()
    levels = gaps.totals.columns[TOKEN_CLASS]
    held = Attribution(
        name=TOKEN_CLASS, levels=levels, totals=gaps.totals, tried=len(levels.keys), may_be_hot=True, place=place
    )
    whole = replace(whole, columns=(*whole.columns, held.gap_of_column()))
    found = column_of(place)
    others = [cause for cause in whole.causes if cause.cause not in BROAD]
    left = 1 - sum(cause.share for cause in (found, *others))
    noise = [replace(each, share=min(each.share, left)) for each in whole.causes if each.cause == NOISE and left > 0]
    causes = in_order([found, *others, *noise])
    verdict, conclusion = concluded(causes)
    return replace(whole, verdict=verdict, conclusion=conclusion, causes=tuple(causes)), place.levels


def _legs(sample: RowSample, context: Context) -> Iterator[Leg]:
    """What lies between each two of three policies, in their order; of the rows that have all of them."""
    if sample.third is None:
        return
    starts = starts_of(sample.n_valid)
    known = np.minimum.reduceat(np.isfinite(sample.third), starts) if len(starts) else np.zeros(0, np.bool_)
    sample = sample.rows(np.flatnonzero(known))
    rollout, trained, advantage = sample.columns
    assert sample.third is not None
    policies: dict[str, NDArray[Any]] = dict.fromkeys(sample.legs, sample.third)
    policies |= {rollout: sample.rollout, trained: sample.train}
    first, _, last = sample.legs
    gap = policies[last].astype(np.float64) - policies[first]
    squares = float(gap @ gap)
    for before, after in pairwise(sample.legs):
        of_leg = policies[after].astype(np.float64) - policies[before]
        columns = (before, after, advantage)
        leg = replace(sample, rollout=policies[before], train=policies[after], columns=columns, legs=(), third=None)
        of_columns = diagnose(leg, Context(*columns, context.clean))
        yield Leg(
            first=before,
            last=after,
            share=float(of_leg @ gap) / squares if squares else 0.0,
            k3=of_columns.gap.k3_kl,
            sum_sq=of_columns.gap.sum_sq,
            verdict=of_columns.verdict,
            words=of_columns.conclusion if of_columns.cause is None else of_columns.cause.claim,
        )


def _with_files(sample: RowSample) -> RowSample:
    """The sample with its files as a column of levels, where there are several that do not only tell the time, as they
    do where each file holds rows of one step, or each step stands in one file."""
    if (sample.files == sample.files[:1]).all() or FILE in sample.levels:
        return sample
    if (step := sample.levels.get(STEP)) is not None:
        pairs = sample.files * len(step.values) + step.codes
        n_pairs, n_files, n_steps = (len(unique_values(codes)) for codes in (pairs, sample.files, step.codes))
        if n_pairs in (n_files, n_steps):
            return sample
    names = [os.path.basename(path) for path in sample.paths]
    return replace(sample, levels={**sample.levels, FILE: ColumnOfKeys.of(sample.files, names)})


def _with_few_steps(sample: RowSample) -> RowSample:
    """The sample with its steps in STEP_RANGES ranges, each called by its first step, where there are too many steps to
    be looked at one by one."""
    step = sample.levels.get(STEP)
    if step is None or len(step.values) <= MOST_LEVELS:
        return sample
    values = step.numbers
    if not np.isfinite(values).all():
        return sample
    order = np.argsort(values)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    range_of = rank * STEP_RANGES // len(order)
    firsts = [step.values[order[np.searchsorted(range_of[order], i)]] for i in range(STEP_RANGES)]
    ranges = ColumnOfKeys.of(range_of[step.codes], firsts)
    return replace(sample, levels={**sample.levels, STEP: ranges})


def totals_by_step(sample: RowSample) -> tuple[Totals, dict[Any, DistinctKeys]] | None:
    """What `analyze` adds up of each step, here over a sample's rows, and each step's clusters; None without steps."""
    if STEP not in sample.levels or not sample.n_rows:
        return None
    step = sample.levels[STEP].rows(np.arange(sample.n_rows))  # without values that no row has
    batch = sample_batch(sample, step)
    totals = observe(batch, Observation(plans=(uncorrected("decoupled"),), seed=None), CPU).totals
    return totals, clusters_by(sample_clusters(sample), batch.group_index, step.values)


def _lag_facts(sample: RowSample) -> Iterator[Fact]:
    """That versions are greater than steps, of which share of the rows."""
    if LAG not in sample.levels:
        return
    lags = sample.levels[LAG]
    below = [code for code, value in enumerate(lags.values) if isinstance(value, (int, float)) and value < 0]
    share = float(np.isin(lags.codes, below).mean())
    if share:
        yield Fact(
            LAG,
            f"In {percent(share)} of the rows the version of the policy is greater than the step (a lag below 0): the "
            "two count different things, or the version is not that of the weights that sampled the row.",
        )
