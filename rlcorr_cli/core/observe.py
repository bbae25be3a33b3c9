"""A batch -> one Summary of named blocks per group, and the batch's bootstrap replicates.

observe(a ++ b) == observe(a) + observe(b), to rounding.  Adding a quantity means adding it in `quantities.py`
and reading it in `metrics/`; nothing here knows a name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.batch import Batch, Decision
from rlcorr_cli.core import bootstrap
from rlcorr_cli.core.advantages import advantage_columns, mean_advantages
from rlcorr_cli.core.arrays import BLOCK_TOKENS, CPU, Device, Flags, Segments, host, joined, row_blocks
from rlcorr_cli.core.block_tables import BlockTables
from rlcorr_cli.core.chosen_rows import rollout_keys
from rlcorr_cli.core.comparison import Comparing
from rlcorr_cli.core.correct import Corrected
from rlcorr_cli.core.decisions import bounds_of_sequences, correct_batch, decide, nothing_decided
from rlcorr_cli.core.effects import corrections, distances
from rlcorr_cli.core.fold import Fold
from rlcorr_cli.core.objectives import objective_columns
from rlcorr_cli.core.part import Part
from rlcorr_cli.core.pictures import draw, draw_groups
from rlcorr_cli.core.quantities import Columns, diagnostics, drift, token_columns
from rlcorr_cli.core.rollouts import rollout_layout, rollout_parts
from rlcorr_cli.core.tokens import Tokens, scored_rollout
from rlcorr_cli.metrics.settings import DiagnosticSettings
from rlcorr_cli.plans.objective import Objective
from rlcorr_cli.plans.plan import Mode, Plan
from rlcorr_cli.totals.binned import BinnedTotals
from rlcorr_cli.totals.block import Block, Layout, diagnostics_block, plan_block
from rlcorr_cli.totals.comparison import COMPARISON, resampled_names
from rlcorr_cli.totals.histogram import Floats
from rlcorr_cli.totals.measured import GroupReplicates
from rlcorr_cli.totals.rollouts import ROLLOUTS, RolloutTotals
from rlcorr_cli.totals.row_keys import Keys, RowSketch
from rlcorr_cli.totals.row_keys import joined as joined_keys
from rlcorr_cli.totals.summary import COUNTS, GroupKey, Layouts, Replicates, Summary
from rlcorr_cli.totals.tail import GROUP_SIZE, Tail
from rlcorr_cli.totals.whole import RATIO_BUCKETS, RATIO_SUMS, Whole, whole_tail

KEPT = "kept."
"""What the names of numbers of the kept tokens begin with."""
COMPARED_AT_ONCE = 1 << 17
"""Tokens of whole rows that plans are compared on at once: each plan's calls take longer than its numbers."""
BudgetBounds = Mapping[str, Mapping[GroupKey, float]]
"""Budget -> group -> the largest value of its statistic that stays."""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What to measure.

    plans: at least one.  has_current: whether the dump has the policy after updates.  seed: of the bootstrap; None for
    no intervals.  pictures: whether to count for those, too; they are of one plan.  objectives: by plan, whose totals
    then have their losses and coefficients, too; a batch must bring advantages for them.  compares: whether plans leave
    what comparing them takes, in place of the metrics of each.  by_group: whether each group is resampled, too.
    by_step: whether each group is counted for curves of its own, too.  has_advantages: whether rows bring advantages
    that diagnostics tell of.  by_rollout: whether sums are taken of rollouts, too, whose samples share them.
    """

    plans: tuple[Plan, ...]
    settings: DiagnosticSettings = field(default_factory=DiagnosticSettings)
    has_current: bool = False
    seed: int | None = 0
    pictures: bool = False
    objectives: Mapping[Plan, Objective] = field(default_factory=dict[Plan, Objective])
    compares: bool = False
    by_group: bool = False
    by_step: bool = False
    has_advantages: bool = False
    by_rollout: bool = False

    def __post_init__(self) -> None:
        # Bounds that budgets came to are told apart by the budget's name.
        names = [budget.name for plan in self.plans for budget in plan.budgets]
        if not self.plans or len(set(names)) < len(names):
            raise ValueError("an observation needs a plan, and a name of its own for every budget")

    @property
    def plan(self) -> Plan:
        """The only plan, for what is done for one at a time: decisions and pictures."""
        plan, *others = self.plans
        if others:
            raise ValueError("decisions and pictures are of one plan at a time")
        return plan

    @cached_property
    def modes(self) -> tuple[Mode, ...]:
        """The modes of its plans, each once."""
        return tuple(dict.fromkeys(plan.mode for plan in self.plans))


@dataclass(frozen=True, kw_only=True)
class Observed:
    """A batch's summaries by group key, its replicates by mode (none without a seed or without a token), its pictures
    and what was decided about its rows, where those are asked for, and what is kept of it as a whole (None without a
    token)."""

    groups: dict[GroupKey, Summary]
    replicates: dict[str, Replicates] = field(default_factory=dict[str, Replicates])
    pictures: BinnedTotals | None = None
    decision: Decision | None = None
    whole: Whole | None = None
    group_replicates: GroupReplicates = field(default_factory=dict[tuple[Any, ...], Mapping[str, Replicates]])
    group_bins: Mapping[tuple[Any, ...], BinnedTotals] = field(default_factory=dict[tuple[Any, ...], BinnedTotals])


def observe(
    batch: Batch,
    observation: Observation,
    device: Device,
    budget_bounds: BudgetBounds | None = None,
    *,
    decides: bool = False,
    rollouts: RolloutTotals | None = None,
) -> Observed:
    """Everything the metrics need of one batch: the diagnostics of each mode once, and a block per plan.

    budget_bounds: of the plans' budgets, where they have any.  decides: with what the plan decides about each
    row and token.  rollouts: those of the dump that have several samples, where and only where the observation is by
    rollout.
    """
    decides_blocks = decides or observation.pictures
    plan = observation.plan if decides_blocks else observation.plans[0]
    if not batch.n_tokens:
        nothing = nothing_decided(batch, plan, observation.objectives.get(plan)) if decides else None
        parts = {} if rollouts is None else {ROLLOUTS: rollout_parts(batch, rollouts, Segments(np.zeros(1, np.int64)))}
        return Observed(groups=_summaries(observation, batch, parts), decision=nothing)
    # Beyond float64 a sum is inf, and its metric null.
    with np.errstate(all="ignore"):
        block_tokens = COMPARED_AT_ONCE if observation.compares else BLOCK_TOKENS
        blocks = [batch.between(*rows) for rows in row_blocks(batch.offsets, device, block_tokens)]
        measured = joined(
            [
                _measured(block, observation, device, budget_bounds or {}, decides=decides_blocks)
                for block in blocks
                if block.n_tokens
            ]
        )
        return _observed(batch, observation, measured, decides=decides, rollouts=rollouts)


@dataclass(frozen=True, kw_only=True)
class _Kept:
    """The tokens that a plan keeps.  rows: bool[b], the sequences that still have one; columns: of these.  log_ratio:
    f64[K]."""

    rows: Flags
    columns: Columns
    log_ratio: Floats


@dataclass(frozen=True, kw_only=True)
class _OfPlan:
    """What a plan does.  masses: of its objective, f64[b].  distances, sequence_distances: as of `distances`."""

    columns: Columns
    masses: Mapping[str, Floats]
    distances: Mapping[str, Floats] = field(default_factory=dict[str, Floats])
    sequence_distances: Mapping[str, Floats] = field(default_factory=dict[str, Floats])
    kept: _Kept | None = None


@dataclass(frozen=True, kw_only=True)
class _Measured:
    """What is measured of b sequences with v tokens.

    of_tokens, drifts, log_ratio (f64[v]): by mode.  compared, masses: of all plans that are compared.  advantages:
    f64[b], where the observation has them.
    """

    of_tokens: Mapping[Mode, Columns]
    drifts: Mapping[Mode, Columns]
    log_ratio: Mapping[Mode, Floats]
    plans: Mapping[Plan, _OfPlan]
    compared: Columns
    masses: Mapping[str, Floats]
    advantages: Floats | None
    decision: Decision | None


def _measured(
    block: Batch, observation: Observation, device: Device, budget_bounds: BudgetBounds, *, decides: bool
) -> _Measured:
    """Everything that needs tokens, of some rows at once."""
    settings = observation.settings
    tokens = {mode: Tokens.of(block, device, mode) for mode in observation.modes}
    of_tokens = {mode: token_columns(of_mode, settings) for mode, of_mode in tokens.items()}
    plans: dict[Plan, _OfPlan] = {}
    decision = None
    # What is compared needs no whole verdict but for an objective.
    for plan in observation.objectives if observation.compares else observation.plans:
        of_mode = tokens[plan.mode]
        corrected = correct_batch(block, of_mode, plan, budget_bounds)
        objective = observation.objectives.get(plan)
        columns, masses = (Columns(), {}) if objective is None else objective_columns(of_mode, corrected, objective)
        if observation.compares:
            plans[plan] = _OfPlan(columns=columns, masses=masses)
            continue
        plans[plan] = _OfPlan(
            columns=corrections(of_mode, corrected) | columns,
            masses=masses,
            distances={name: host(values) for name, values in distances(corrected).items()},
            sequence_distances=distances(corrected, "sequences"),
            kept=None if corrected.keep is None else _kept(of_mode, corrected, of_tokens[plan.mode], settings),
        )
        if decides:
            decision = decide(of_mode, corrected, objective)
    compared, compared_masses = (
        _compared(block, observation, tokens, budget_bounds) if observation.compares else (Columns(), {})
    )
    return _Measured(
        of_tokens=of_tokens,
        drifts={mode: drift(of_mode, settings.ppo_clip) for mode, of_mode in tokens.items()},
        log_ratio={mode: host(of_mode.log_ratio) for mode, of_mode in tokens.items()},
        plans=plans,
        compared=compared,
        masses=compared_masses,
        advantages=mean_advantages(block, next(iter(tokens.values()))) if observation.has_advantages else None,
        decision=decision,
    )


def _kept(tokens: Tokens, corrected: Corrected, of_all: Columns, settings: DiagnosticSettings) -> _Kept:
    """of_all: the columns of all tokens, which are those of each sequence that keeps all of its own."""
    assert corrected.keep is not None
    n_kept, log_ratio = tokens.rows.count(corrected.keep), host(tokens.log_ratio[corrected.keep])
    left = n_kept > 0
    if (n_kept[left] == tokens.rows.sizes[left]).all():
        return _Kept(rows=left, columns=of_all.of_rows(left), log_ratio=log_ratio)
    kept, _ = tokens.keep(corrected.keep)
    return _Kept(rows=left, columns=token_columns(kept, settings), log_ratio=log_ratio)


def _observed(
    batch: Batch,
    observation: Observation,
    measured: _Measured,
    *,
    decides: bool,
    rollouts: RolloutTotals | None,
) -> Observed:
    """Everything that rows are enough for, once for a batch."""
    filled, modes = batch.filled, observation.modes
    parts = _parts(batch, observation, measured)
    resampled: dict[str, Columns] = {mode: parts[diagnostics_block(mode)][0].columns for mode in modes}
    if observation.compares:
        names = resampled_names(observation.plans)
        resampled[COMPARISON] = Columns(sums={name: measured.compared.sums[name] for name in names})
    if rollouts is not None:
        of_rollouts = diagnostics_block(observation.plan.mode), plan_block(observation.plan)
        samples = [(parts[name][0].all_columns, parts[name][0].fold) for name in of_rollouts]
        parts[ROLLOUTS] = rollout_parts(batch, rollouts, samples[0][1].rows, samples)
    draws = _resampled(batch, scored_rollout(batch, modes[0]), resampled, observation)
    decision = None if measured.decision is None else measured.decision.with_empty(filled)
    pictures = None
    group_bins: dict[tuple[Any, ...], BinnedTotals] = {}
    if observation.pictures or observation.by_step:
        tokens = Tokens.of(batch, CPU, modes[0])
        if observation.pictures:
            assert decision is not None
            pictures = draw(tokens, decision)
        if observation.by_step:
            group_bins = draw_groups(
                tokens, batch.group_index[filled].astype(np.int64), [key[1:] for key in batch.group_keys]
            )
    return Observed(
        groups=_summaries(observation, batch, parts),
        replicates=draws.replicates,
        pictures=pictures,
        decision=decision if decides else None,
        whole=Whole(tails=_whole_tails(parts), **draws.rows, ratios=draws.ratios),
        group_replicates=draws.by_group,
        group_bins=group_bins,
    )


def _parts(batch: Batch, observation: Observation, measured: _Measured) -> dict[str, list[Part]]:
    """Everything that is added up by group, by the names of blocks; the columns of a block's first part are of all
    sequences."""
    filled, modes = batch.filled, observation.modes
    rewards = np.full(int(filled.sum()), np.nan) if batch.reward is None else batch.reward[filled]
    rows = Segments(batch.offsets[np.concatenate([[True], filled])])
    fold = Fold(batch.group_index[filled].astype(np.int64), rows)
    parts: dict[str, list[Part]] = {}
    for mode in modes:
        columns = diagnostics(measured.of_tokens[mode]) | _rewarded(rewards)
        distance = abs(columns.sums["log_ppl_diff"])
        beside = measured.drifts[mode]
        if measured.advantages is not None:
            beside |= advantage_columns(measured.advantages, columns.sums["log_ratio"])
        part = Part.of_tokens(columns, fold, measured.log_ratio[mode])
        part = replace(
            part,
            beside=beside,
            counted={**part.counted, "seq_distance": distance},
            log_weights={**part.log_weights, "seq_distance": distance},
        )
        parts[diagnostics_block(mode)] = [part]
    for plan, of_plan in measured.plans.items():
        # Of sequences the largest distances are kept, too, for exact bounds; of tokens they would be too few of them.
        log_weights = {**of_plan.masses, **of_plan.sequence_distances}
        of_block = [Part(columns=of_plan.columns, fold=fold, counted=of_plan.distances, log_weights=log_weights)]
        kept = of_plan.kept
        if kept is not None:
            columns = diagnostics(kept.columns) | _rewarded(rewards[kept.rows])
            of_rows = Segments(np.concatenate([[0], np.cumsum(kept.columns.sums["tokens"].astype(np.int64))]))
            of_block.append(Part.of_tokens(columns, Fold(fold.group_index[kept.rows], of_rows), kept.log_ratio, KEPT))
        parts[plan_block(plan)] = of_block
    if observation.compares:
        parts[COMPARISON] = [Part(columns=measured.compared, fold=fold, log_weights=measured.masses)]
    return parts


def _rewarded(rewards: Floats) -> Columns:
    """The sum of finite rewards, and how many there are; rewards: f64[B]."""
    unknown = ~np.isfinite(rewards)
    return Columns(sums={"reward": np.where(unknown, 0.0, rewards), "rewarded": (~unknown).astype(np.float64)})


@dataclass(frozen=True)
class _Resampled:
    """The replicates of each mode's diagnostics, and the sketches of rows and sums of ratios that a Whole has; nothing
    without a seed."""

    replicates: dict[str, Replicates] = field(default_factory=dict[str, Replicates])
    rows: Mapping[str, RowSketch] = field(default_factory=dict[str, RowSketch])
    ratios: Floats | None = None
    by_group: GroupReplicates = field(default_factory=dict[tuple[Any, ...], Mapping[str, Replicates]])


def _resampled(
    batch: Batch, rollout: NDArray[np.float32], columns: Mapping[str, Columns], observation: Observation
) -> _Resampled:
    """rollout: what tells rows apart, f32[V].  columns: what is resampled, by name; the diagnostics of a mode first."""
    seed = observation.seed
    if seed is None:
        return _Resampled()
    filled = batch.filled
    offsets = batch.offsets[np.concatenate([[True], filled])]
    ids, known = (None if of is None else of[filled] for of in (batch.row_keys, batch.cluster_keys))
    keys = bootstrap.row_keys(rollout, offsets, ids)
    clusters = bootstrap.cluster_keys(rollout, offsets, keys, known, have_ids=ids is not None)
    draws = bootstrap.Draws.of(clusters, seed)
    contents = bootstrap.content_keys(keys, next(iter(columns.values())))
    texts = joined_keys(keys, batch.lengths[filled].astype(np.uint64))
    by_group: GroupReplicates = {}
    if observation.by_group:
        values = [key[1:] for key in batch.group_keys]
        by_group = bootstrap.resample_groups(draws, columns, batch.group_index[filled], values)
    replicates = {name: bootstrap.resample(draws, of_all) for name, of_all in columns.items()}
    sketches = {"rows": keys, "contents": contents, "texts": texts}
    return _Resampled(
        replicates=replicates,
        rows={name: RowSketch.of(of) for name, of in sketches.items()},
        ratios=_ratios(batch, keys, next(iter(columns.values()))),
        by_group=by_group,
    )


def _ratios(batch: Batch, rows: Keys, columns: Columns) -> Floats:
    """The sums of a mode's ratios by buckets of rollouts, as a Whole has them; rows: what tells them apart, which is
    what knows a rollout of few tokens."""
    filled = batch.filled
    rollouts = np.where(batch.lengths[filled] < bootstrap.TELLING_TOKENS, rows, rollout_keys(batch)[filled])
    buckets = (rollouts % np.uint64(RATIO_BUCKETS)).astype(np.int64)
    sums = np.zeros((RATIO_BUCKETS, len(RATIO_SUMS)))
    for place, name in enumerate(RATIO_SUMS):
        sums[:, place] = np.bincount(buckets, columns.sums[name], minlength=RATIO_BUCKETS)
    return sums


def _compared(
    batch: Batch, observation: Observation, tokens: Mapping[Mode, Tokens], budget_bounds: BudgetBounds
) -> tuple[Columns, dict[str, Floats]]:
    """What each plan leaves, and what each mode's are held against; and the plans' masses."""
    bounds = bounds_of_sequences(batch, budget_bounds)
    columns, masses = Columns(), dict[str, Floats]()
    for mode in observation.modes:
        plans = [plan for plan in observation.plans if plan.mode == mode]
        of_mode, masses_of_mode = Comparing(tokens=tokens[mode], budget_bounds=bounds).columns(plans)
        columns, masses = columns | of_mode, masses | masses_of_mode
    return columns, masses


def layouts_of(observation: Observation) -> Layouts:
    """The names an observation yields, block by block: those of observing no rows."""
    batch = _no_rows(observation)
    with np.errstate(all="ignore"):
        measured = _measured(batch, observation, CPU, {name: {} for name in _budgets(observation)}, decides=False)
        parts = _parts(batch, observation, measured)
    layouts = {name: _layout(of_block) for name, of_block in parts.items()}
    return layouts | ({ROLLOUTS: rollout_layout(tuple(layouts.values()), KEPT)} if observation.by_rollout else {})


def _budgets(observation: Observation) -> list[str]:
    return [budget.name for plan in observation.plans for budget in plan.budgets]


def _no_rows(observation: Observation) -> Batch:
    """A batch of no rows, with all columns that an observation looks at."""
    none, nothing = np.zeros(0), np.zeros(0, np.int64)
    return Batch(
        offsets=np.zeros(1, np.int64),
        rollout_logp=none,
        old_logp=none,
        current_logp=none if observation.has_current else None,
        advantages=none,
        n_masked=nothing,
        reward=None,
        group_index=nothing.astype(np.int32),
        group_keys=(),
    )


def _layout(parts: list[Part]) -> Layout:
    tables = [part.all_columns.prefixed(part.prefix) for part in parts]
    return Layout(
        sums=tuple(name for t in tables for name in t.sums),
        mins=tuple(name for t in tables for name in t.mins),
        maxs=tuple(name for t in tables for name in t.maxs),
        logs=tuple(name for t in tables for name in t.logs),
        histograms=tuple(part.prefix + name for part in parts for name in part.counted),
        tails=tuple(part.prefix + name for part in parts for name in part.log_weights),
    )


def _whole_tails(parts: Mapping[str, list[Part]]) -> dict[str, Tail]:
    # Of a comparison's masses the groups' tails are long enough.
    return {
        whole_tail(block, part.prefix + name): tail
        for block, of_block in parts.items()
        if block != COMPARISON
        for part in of_block
        for name, tail in part.tails.items()
    }


def _summaries(observation: Observation, batch: Batch, parts: Mapping[str, list[Part]]) -> dict[GroupKey, Summary]:
    """One Summary per group of the parts of each block."""
    counts, n_groups = _counts(batch), len(batch.group_keys)
    layouts = (
        {name: _layout(of_block) for name, of_block in parts.items()} if batch.n_tokens else layouts_of(observation)
    )
    blocks = {name: _blocks(layout, n_groups, parts.get(name, [])) for name, layout in layouts.items()}
    for plan in () if observation.compares else observation.plans:
        pairs = zip(blocks[plan_block(plan)], blocks[diagnostics_block(plan.mode)], strict=True)
        blocks[plan_block(plan)] = [block.sharing(diagnosed, KEPT) for block, diagnosed in pairs]
    return {
        key: Summary(counts[group], {name: of_groups[group] for name, of_groups in blocks.items()})
        for group, key in enumerate(batch.group_keys)
    }


def _counts(batch: Batch) -> list[dict[str, int]]:
    """Rows, empty rows and masked tokens of each group."""
    weights = np.ones(batch.n_rows), ~batch.filled, batch.n_masked
    n_groups = len(batch.group_keys)
    table = [np.bincount(batch.group_index, weight, minlength=n_groups).astype(np.int64).tolist() for weight in weights]
    return [dict(zip(COUNTS, counts, strict=True)) for counts in zip(*table, strict=True)]


def _blocks(layout: Layout, n_groups: int, parts: list[Part]) -> list[Block]:
    """Fold the parts' rows into one Block per group, each number at its name's place."""
    tables = BlockTables.empty(layout, n_groups)
    for part in parts:
        fold, columns, groups = part.fold, part.all_columns.prefixed(part.prefix), part.fold.groups
        tables.fill("sums", groups, columns.sums, fold(np.add, columns.sums))
        tables.fill("mins", groups, columns.mins, fold(np.minimum, columns.mins))
        tables.fill("maxs", groups, columns.maxs, fold(np.maximum, columns.maxs))
        peaks, rests = fold.logs(columns.logs)
        tables.fill("peaks", groups, columns.logs, peaks)
        tables.fill("rests", groups, columns.logs, rests)
        for name, values in part.counted.items():
            tables.histograms[part.prefix + name] |= dict(zip(groups.tolist(), fold.histograms(values), strict=True))
        for name, tail in part.tails.items():
            tails = [tail.cut(GROUP_SIZE)] if len(groups) == 1 else fold.tails(part.log_weights[name])
            tables.tails[part.prefix + name] |= dict(zip(groups.tolist(), tails, strict=True))
    return [tables.block(group) for group in range(n_groups)]
