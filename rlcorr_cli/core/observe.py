"""A batch -> one Summary of named blocks per group, and the batch's bootstrap replicates.

observe(a ++ b) == observe(a) + observe(b), to rounding.  Adding a quantity means adding it in `quantities.py`
and reading it in `metrics/`; nothing here knows a name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch

from rlcorr_cli.batch import Batch, Decision
from rlcorr_cli.core import bootstrap
from rlcorr_cli.core.advantages import advantage_columns, mean_advantages
from rlcorr_cli.core.binning import draw, draw_groups
from rlcorr_cli.core.block_tables import BlockTables
from rlcorr_cli.core.chosen_rows import rollout_keys
from rlcorr_cli.core.comparison import Comparing
from rlcorr_cli.core.correct import Corrected, correct
from rlcorr_cli.core.decisions import bounds_of_sequences, correct_batch, decide, nothing_decided
from rlcorr_cli.core.fold import Fold
from rlcorr_cli.core.objectives import objective_columns
from rlcorr_cli.core.part import Part
from rlcorr_cli.core.quantities import Columns, corrections, diagnostics, distances, drift, sequence_averages
from rlcorr_cli.core.ragged import Ragged, to_numpy
from rlcorr_cli.core.rollouts import rollout_layout, rollout_parts
from rlcorr_cli.core.tokens import Tokens
from rlcorr_cli.metrics.settings import DiagnosticSettings
from rlcorr_cli.plans.objective import Objective
from rlcorr_cli.plans.plan import Mode, Plan
from rlcorr_cli.totals.binned import BinnedTotals
from rlcorr_cli.totals.block import Block, Layout, diagnostics_block, plan_block
from rlcorr_cli.totals.comparison import COMPARISON, comparison_layout, resampled_names
from rlcorr_cli.totals.histogram import Floats
from rlcorr_cli.totals.measured import GroupReplicates
from rlcorr_cli.totals.rollouts import ROLLOUTS, RolloutTotals
from rlcorr_cli.totals.row_keys import Keys, RowSketch, joined
from rlcorr_cli.totals.summary import COUNTS, GroupKey, Layouts, Replicates, Summary
from rlcorr_cli.totals.tail import GROUP_SIZE, Tail
from rlcorr_cli.totals.whole import RATIO_BUCKETS, RATIO_SUMS, Whole, whole_tail

KEPT = "kept."
"""What the names of numbers of the kept tokens begin with."""
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
    device: torch.device,
    budget_bounds: BudgetBounds | None = None,
    *,
    decides: bool = False,
    tokens: Mapping[Mode, Tokens] | None = None,
    rollouts: RolloutTotals | None = None,
) -> Observed:
    """Everything the metrics need of one batch: the diagnostics of each mode once, and a block per plan.

    budget_bounds: of the plans' budgets, where they have any.  decides: with what the plan decides about each
    row and token.  tokens: the batch's by mode, where they are on the device already.  rollouts: those of the dump that
    have several samples, where and only where the observation is by rollout.
    """
    filled = batch.filled
    if not filled.any():
        plans = observation.plans
        decision = nothing_decided(batch, plans[0], observation.objectives.get(plans[0])) if decides else None
        parts = {} if rollouts is None else {ROLLOUTS: rollout_parts(batch, rollouts, Ragged(np.zeros(1, int), device))}
        return Observed(groups=_summaries(observation, batch, parts), decision=decision)
    rewards = None if batch.reward is None else batch.reward[filled]
    settings = observation.settings
    tokens = tokens or {mode: Tokens.of(batch, device, mode) for mode in observation.modes}
    fold = Fold(batch.group_index[filled].astype(np.int64), tokens[observation.modes[0]].ragged)
    bounds = budget_bounds or {}
    # What is compared needs no whole verdict but for an objective.
    whole_plans = observation.objectives if observation.compares else observation.plans
    corrected = {plan: correct_batch(batch, tokens[plan.mode], plan, bounds) for plan in whole_plans}
    # Beyond float64 a sum is inf, and its metric null.
    with np.errstate(over="ignore", invalid="ignore"):
        base: dict[Mode, Columns] = {mode: _diagnostics(tokens[mode], settings, rewards) for mode in tokens}
        advantages = mean_advantages(batch, next(iter(tokens.values()))) if observation.has_advantages else None
        parts = {
            diagnostics_block(mode): [_diagnosis(base[mode], tokens[mode], settings, fold, advantages=advantages)]
            for mode in tokens
        }
        for plan, verdict in corrected.items():
            if observation.compares:
                columns, masses = objective_columns(tokens[plan.mode], verdict, observation.objectives[plan])
                of_plan = [Part(columns=columns, fold=fold, log_weights=masses)]
            else:
                objective = observation.objectives.get(plan)
                of_plan = _plan_parts(tokens[plan.mode], verdict, settings, fold, rewards=rewards, objective=objective)
            parts[plan_block(plan)] = of_plan
        resampled: dict[str, Columns] = {**base}
        if observation.compares:
            columns, masses = _compared(batch, observation, tokens, budget_bounds or {})
            parts[COMPARISON] = [Part(columns=columns, fold=fold, log_weights=masses)]
            names = resampled_names(observation.plans)
            resampled[COMPARISON] = Columns(sums={name: columns.sums[name] for name in names})
        if rollouts is not None:
            blocks = diagnostics_block(observation.plan.mode), plan_block(observation.plan)
            measured = [(parts[name][0].columns, parts[name][0].fold) for name in blocks]
            parts[ROLLOUTS] = rollout_parts(batch, rollouts, fold.ragged, measured)
        groups = _summaries(observation, batch, parts)
        draws = _resampled(batch, tokens, resampled, observation)
    pictures = decision = None
    group_bins: dict[tuple[Any, ...], BinnedTotals] = {}
    if observation.pictures:
        pictures = draw(tokens[observation.plan.mode], corrected[observation.plan])
    if observation.by_step:
        group_bins = draw_groups(tokens[observation.plan.mode], fold.group_index, [key[1:] for key in batch.group_keys])
    if decides:
        plan = observation.plan
        decision = decide(batch, tokens[plan.mode], corrected[plan], observation.objectives.get(plan))
    whole = Whole(tails=_whole_tails(parts), **draws.rows, ratios=draws.ratios)
    return Observed(
        groups=groups,
        replicates=draws.replicates,
        pictures=pictures,
        decision=decision,
        whole=whole,
        group_replicates=draws.by_group,
        group_bins=group_bins,
    )


@dataclass(frozen=True)
class _Resampled:
    """The replicates of each mode's diagnostics, and the sketches of rows and sums of ratios that a Whole has; nothing
    without a seed."""

    replicates: dict[str, Replicates] = field(default_factory=dict[str, Replicates])
    rows: Mapping[str, RowSketch] = field(default_factory=dict[str, RowSketch])
    ratios: Floats | None = None
    by_group: GroupReplicates = field(default_factory=dict[tuple[Any, ...], Mapping[str, Replicates]])


def _resampled(
    batch: Batch, tokens: Mapping[Mode, Tokens], columns: Mapping[str, Columns], observation: Observation
) -> _Resampled:
    """columns: what is resampled, by name; the diagnostics of a mode first."""
    seed = observation.seed
    if seed is None:
        return _Resampled()
    filled = batch.filled
    # Rows are known by what rollout says of them, which is the same in every mode.
    of_one_mode = next(iter(tokens.values()))
    ids, known = (None if of is None else of[filled] for of in (batch.row_keys, batch.cluster_keys))
    keys = bootstrap.row_keys(of_one_mode, ids)
    draws = bootstrap.Draws.of(bootstrap.cluster_keys(of_one_mode, keys, known, have_ids=ids is not None), seed)
    contents = bootstrap.content_keys(keys, next(iter(columns.values())))
    texts = joined(keys, batch.lengths[filled].astype(np.uint64))
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
    """The names an observation yields, block by block: those of observing one token."""
    settings, has_current = observation.settings, observation.has_current
    layouts = {
        diagnostics_block(mode): _diagnosis_layout(mode, settings, has_current, observation.has_advantages)
        for mode in observation.modes
    }
    if observation.compares:
        of_objectives = {
            plan_block(plan): _objective_layout(plan, objective, has_current)
            for plan, objective in observation.objectives.items()
        }
        return layouts | {COMPARISON: comparison_layout(observation.plans)} | of_objectives
    objective_of = observation.objectives.get
    layouts |= {
        plan_block(plan): _plan_layout(plan, settings, has_current, objective_of(plan)) for plan in observation.plans
    }
    return layouts | ({ROLLOUTS: rollout_layout(tuple(layouts.values()), KEPT)} if observation.by_rollout else {})


@lru_cache(maxsize=64)
def _diagnosis_layout(mode: Mode, settings: DiagnosticSettings, has_current: bool, has_advantages: bool) -> Layout:
    tokens = _one_token(mode, has_current)
    columns, fold = _diagnostics(tokens, settings, None), Fold(np.zeros(1, np.int64), tokens.ragged)
    advantages = np.zeros(1) if has_advantages else None
    return _layout([_diagnosis(columns, tokens, settings, fold, advantages=advantages)])


@lru_cache(maxsize=256)
def _plan_layout(plan: Plan, settings: DiagnosticSettings, has_current: bool, objective: Objective | None) -> Layout:
    tokens = _one_token(plan.mode, has_current)
    fold = Fold(np.zeros(1, np.int64), tokens.ragged)
    corrected = correct(tokens, plan, {budget.name: np.zeros(1) for budget in plan.budgets})
    parts = _plan_parts(tokens, corrected, settings, fold, rewards=None, objective=objective)
    if len(parts) == 1 and plan.rules:
        # The plan rejects even l = 0, so that nothing is kept of this one token.
        parts.append(Part.of_tokens(_diagnostics(tokens, settings, None), fold, tokens, KEPT))
    return _layout(parts)


@lru_cache(maxsize=256)
def _objective_layout(plan: Plan, objective: Objective, has_current: bool) -> Layout:
    tokens = _one_token(plan.mode, has_current)
    corrected = correct(tokens, plan, {budget.name: np.zeros(1) for budget in plan.budgets})
    columns, masses = objective_columns(tokens, corrected, objective)
    return _layout([Part(columns=columns, fold=Fold(np.zeros(1, np.int64), tokens.ragged), log_weights=masses)])


def _one_token(mode: Mode, has_current: bool) -> Tokens:
    zero = torch.zeros(1, dtype=torch.float64)
    # Bypass mode compares current with rollout, and there is no policy after that.
    change = zero if has_current and mode == "decoupled" else None
    ragged = Ragged(np.array([0, 1]), torch.device("cpu"))
    mismatch = Tokens(ragged=ragged, rollout_logp=zero, log_ratio=zero)
    return replace(mismatch, current_logp=change, advantages=zero, current_change=zero)


def _layout(parts: list[Part]) -> Layout:
    tables = [part.columns.prefixed(part.prefix) for part in parts]
    return Layout(
        sums=tuple(name for t in tables for name in t.sums),
        mins=tuple(name for t in tables for name in t.mins),
        maxs=tuple(name for t in tables for name in t.maxs),
        logs=tuple(name for t in tables for name in t.logs),
        histograms=tuple(part.prefix + name for part in parts for name in part.counted),
        tails=tuple(part.prefix + name for part in parts for name in part.log_weights),
    )


def _diagnosis(
    base: Columns, tokens: Tokens, settings: DiagnosticSettings, fold: Fold, *, advantages: Floats | None
) -> Part:
    """A mode's diagnostics, with drift, sums of advantages and the distances of sequences beside them, which are not
    resampled."""
    of_advantages = Columns() if advantages is None else advantage_columns(advantages, tokens)
    part = Part.of_tokens(Columns.beside(base, drift(tokens, settings.ppo_clip), of_advantages), fold, tokens)
    distance = (tokens.log_ratio_sum / tokens.ragged.lengths).abs()
    return replace(
        part,
        counted={**part.counted, "seq_distance": distance},
        log_weights={**part.log_weights, "seq_distance": to_numpy(distance)},
    )


def _plan_parts(
    tokens: Tokens,
    corrected: Corrected,
    settings: DiagnosticSettings,
    fold: Fold,
    *,
    rewards: Floats | None,
    objective: Objective | None,
) -> list[Part]:
    """What the plan, and an objective under it, does to all tokens, and the diagnostics of those it keeps."""
    columns, masses = corrections(tokens, corrected), dict[str, Floats]()
    if objective is not None:
        of_objective, masses = objective_columns(tokens, corrected, objective)
        columns |= of_objective
    # Of sequences the largest distances are kept, too, for exact bounds; of tokens they would be too few of them.
    of_sequences = {name: to_numpy(values) for name, values in distances(corrected, "sequences").items()}
    parts = [Part(columns=columns, fold=fold, counted=distances(corrected), log_weights=masses | of_sequences)]
    if corrected.keep is not None:
        kept, left = tokens.keep(corrected.keep)
        if left.any():
            columns = _diagnostics(kept, settings, None if rewards is None else rewards[left])
            parts.append(Part.of_tokens(columns, Fold(fold.group_index[left], kept.ragged), kept, KEPT))
    return parts


def _whole_tails(parts: Mapping[str, list[Part]]) -> dict[str, Tail]:
    # Of a comparison's masses the groups' tails are long enough.
    return {
        whole_tail(block, part.prefix + name): tail
        for block, of_block in parts.items()
        if block != COMPARISON
        for part in of_block
        for name, tail in part.tails.items()
    }


def _diagnostics(tokens: Tokens, settings: DiagnosticSettings, rewards: Floats | None) -> Columns:
    columns = diagnostics(tokens, settings)
    reward = np.full(tokens.ragged.n_sequences, np.nan) if rewards is None else rewards
    unknown = ~np.isfinite(reward)
    rewarded = Columns(sums={"reward": np.where(unknown, 0.0, reward), "rewarded": (~unknown).astype(np.float64)})
    return Columns.beside(columns, sequence_averages(columns), rewarded)


def _summaries(observation: Observation, batch: Batch, parts: Mapping[str, list[Part]]) -> dict[GroupKey, Summary]:
    """One Summary per group of the parts of each block."""
    counts, n_groups = _counts(batch), len(batch.group_keys)
    blocks = {name: _blocks(layout, n_groups, parts.get(name, [])) for name, layout in layouts_of(observation).items()}
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
        fold, columns, groups = part.fold, part.columns.prefixed(part.prefix), part.fold.groups
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
