"""The search for the cause of a gap: from a sample of a dump's rows to a diagnosis.

Every command searches the same sample of the same dump by these functions, so all of them name the same cause.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.causes.columns import LAG, turn_gaps
from rlcorr_cli.causes.diagnosis import TOO_FEW, UNCLEAR, Diagnosis, Fact, Leg, SampledRows
from rlcorr_cli.causes.exact import copied_rows, exact_facts
from rlcorr_cli.causes.features import Context, Yardstick
from rlcorr_cli.causes.gap import MOST_LEVELS, GapTotals
from rlcorr_cli.causes.gap_sums import RowGaps, gap_totals
from rlcorr_cli.causes.judge import diagnose
from rlcorr_cli.causes.mean_ratio import impossible_ratio
from rlcorr_cli.causes.of_tokens import head_facts, head_gap, kept_gap, kept_set_facts, version_gaps
from rlcorr_cli.causes.parts import beside_faults, part_totals, parted, tokens_of_faults, with_shared_places
from rlcorr_cli.causes.steps import STEP, between_steps, sample_clusters
from rlcorr_cli.causes.where import PlaceOfGap, place_of
from rlcorr_cli.causes.wording import percent
from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure.arrays import CPU
from rlcorr_cli.measure.bootstrap import clusters_by
from rlcorr_cli.measure.observe import Observation, observe
from rlcorr_cli.reading.batch import Batch
from rlcorr_cli.totals.comparison import uncorrected
from rlcorr_cli.totals.lists import offsets_of, starts_of
from rlcorr_cli.totals.row_keys import DistinctKeys
from rlcorr_cli.totals.row_sample import TURN, ColumnOfKeys, RowSample
from rlcorr_cli.totals.totals import Totals

FILE = "file"
"""The column of levels that a dump's files are."""
SPOILED = "No other cause is looked for beside values that no policy gives."
TURN_TIMES = 1.3
"""Turns are compared where one holds so many times what its tokens' surprise gives: it takes as long as all else."""
STEP_RANGES = 64
"""How many ranges of steps are looked at where there are too many steps."""


@frozen
class Search:
    """What a search came to, and the sums over the sample that it was made of, for pictures."""

    diagnosis: Diagnosis
    totals: GapTotals


def search(sample: RowSample, rows: NDArray[np.int64] | None = None, clean: Yardstick | None = None) -> Search:
    """Search a sample, or some of its rows, for the cause of their gap.  clean: as of Context."""
    if rows is not None:
        sample = sample.rows(rows)
    sample = _with_few_steps(_with_files(sample.ordered))
    sums, context = gap_totals(sample), Context(*sample.columns, clean)
    totals, place, units = part_totals(sample, sums), place_of(sample, sums), sample
    if any(turn.gap > TURN_TIMES * turn.expected for turn in turn_gaps(totals)):
        of_turns = place_of(by_turn := sample.by_turn, gap_totals(by_turn))
        place, units = (of_turns, by_turn) if of_turns is not None and of_turns.column == TURN else (place, units)
    diagnosis = diagnose(totals, context, sample, place)
    if exact := exact_facts(sample):  # other causes would be of these values
        diagnosis = replace(diagnosis, exact=exact, verdict=UNCLEAR, conclusion=SPOILED, causes=())
    elif diagnosis.verdict != TOO_FEW:
        diagnosis = _refined(sample, sums, diagnosis, context, place=place, units=units)
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
        impossible=None if exact else impossible_ratio(sample, sums),
        legs=() if exact or diagnosis.verdict == TOO_FEW else tuple(_legs(sample, context)),
        between_steps=between_steps(sample),
    )
    return Search(diagnosis, totals)


def _refined(
    sample: RowSample, sums: RowGaps, whole: Diagnosis, context: Context, *, place: PlaceOfGap | None, units: RowSample
) -> Diagnosis:
    """The diagnosis of all rows together, by what its faults hide, else by the place that stands apart.  units: the
    rows, or turns, that the place is of."""
    tokens = tokens_of_faults(sample, sums, whole.causes)
    if (beside := beside_faults(sample, whole, tokens, context)) is not None:
        return beside
    if place is None:
        return with_shared_places(sample, whole, tokens)
    by_place = parted(units, whole, place, context)
    return with_shared_places(sample, by_place, tokens_of_faults(sample, sums, by_place.causes))


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
        of_columns = diagnose(part_totals(leg, gap_totals(leg)), Context(*columns, context.clean), leg)
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
        n_pairs, n_files, n_steps = (len(np.unique(codes)) for codes in (pairs, sample.files, step.codes))
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
    values = np.array([value if isinstance(value, (int, float)) else np.nan for value in step.values], np.float64)
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
    batch = Batch(
        offsets=offsets_of(sample.n_valid),
        rollout_logp=sample.rollout,
        old_logp=sample.train,
        current_logp=None,
        advantages=None,
        n_masked=sample.n_tokens - sample.n_valid,
        reward=None,
        group_index=step.codes.astype(np.int32),
        group_keys=tuple((None, value) for value in step.values),
        row_keys=sample.ids if sample.ids.any() else None,
        unscored=sample.unscored,
    )
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
