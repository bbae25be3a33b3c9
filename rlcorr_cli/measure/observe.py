"""A batch -> the Totals of its groups, its bootstrap replicates, and what a plan decides about its rows.

First the batch is cut into blocks of whole rows (on a GPU it is one block), and everything that needs tokens is made of
each: the columns of the diagnostics, what each plan does, its decisions, the keys of rows (`_of_rows`).  What is left
of a block is one number for each row and quantity, and each token's log-ratio and distances, for histograms and tails,
which stay in pieces; the blocks are joined.  Then, once for the batch, the formulas of rows are applied, rows are added
up by group (`_totals`), and drawn for the bootstrap (`_resampled`).

observe(a ++ b) == observe(a) + observe(b), to rounding.  `rlcorr help development` lists what a new quantity takes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure import bootstrap
from rlcorr_cli.measure.arrays import BLOCK_TOKENS, CPU, Array, Device, concatenated, histogram, row_blocks
from rlcorr_cli.measure.comparison import ComparedPlans, ComparedRows, Comparing, advantage_columns, mean_advantages
from rlcorr_cli.measure.correct import Corrected, correct
from rlcorr_cli.measure.decisions import BudgetBounds, bounds_of_sequences, decide
from rlcorr_cli.measure.effects import corrections, distances
from rlcorr_cli.measure.objectives import objective_columns
from rlcorr_cli.measure.pictures import draw
from rlcorr_cli.measure.quantities import Columns, diagnostics, drift, token_columns
from rlcorr_cli.measure.tokens import Tokens
from rlcorr_cli.metrics.diagnostics import DiagnosticSettings
from rlcorr_cli.plans.objective import Objective
from rlcorr_cli.plans.plan import Mode, Plan
from rlcorr_cli.reading.batch import Batch, Decision
from rlcorr_cli.totals.bins import BinnedTotals, Histogram, Histograms
from rlcorr_cli.totals.comparison import COMPARISON, MASS, divides_by_mean, plan_name, resampled_names
from rlcorr_cli.totals.earlier_readings import EMPTY, ROLLOUT, RolloutTotals
from rlcorr_cli.totals.flat import Flags, Floats, by_group, offsets_of
from rlcorr_cli.totals.measured import WholeDump
from rlcorr_cli.totals.row_keys import DistinctKeys, Keys, KeySample, join_keys
from rlcorr_cli.totals.tail import GROUP_SIZE, WHOLE_SIZE, Tail, Tails
from rlcorr_cli.totals.totals import COUNTS, MOST_LISTED, GroupKey, GroupReplicates, OfGroups, Replicates, T, Totals
from rlcorr_cli.totals.view import diagnostics_block, plan_block

KEPT = "kept"
"""What the names of numbers of the kept tokens begin with, before a dot."""


@frozen(kw_only=True)
class Observation:
    """What to measure.

    What to correct: plans: at least one.  objectives: by plan, whose totals then have its losses and coefficients, too;
    a batch must bring advantages for them.  compares: whether to sum what `compare` and `sweep` need, in place of
    each plan's metrics.  has_advantages: whether rows bring advantages, for the diagnostics of these.  by_rollout:
    whether to average over rollouts, too, whose samples are weighted by their share of it.

    What else to make: seed: of the bootstrap; None for no intervals.  by_group: whether each group is resampled, too.
    pictures: whether to count for those, too; they are of one plan.

    Of a group's key, which is its batch and then a value for each column: n_asked: how many of these values are of
    columns that were asked for, key[1 : 1 + n_asked], by which groups are resampled; None for all.
    step_at: which of these values is the step, whose clusters are counted; None for none.
    """

    plans: tuple[Plan, ...]
    settings: DiagnosticSettings = field(default_factory=DiagnosticSettings)
    seed: int | None = 0
    pictures: bool = False
    objectives: Mapping[Plan, Objective] = field(default_factory=dict[Plan, Objective])
    compares: bool = False
    by_group: bool = False
    has_advantages: bool = False
    by_rollout: bool = False
    n_asked: int | None = None
    step_at: int | None = None

    def asked_values(self, keys: Sequence[GroupKey]) -> list[GroupKey]:
        """Each group's values of the columns that were asked for."""
        return [key[1:] if self.n_asked is None else key[1 : 1 + self.n_asked] for key in keys]

    def __post_init__(self) -> None:
        # Bounds that budgets came to are told apart by the budget's name.
        names = [budget.name for plan in self.plans for budget in plan.budgets]
        if not self.plans or len(set(names)) < len(names):
            raise ValueError("an observation needs a plan, and a name of its own for every budget")
        self.compared  # noqa: B018  before threads share it

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

    @cached_property
    def compared(self) -> Mapping[Mode, ComparedPlans]:
        """The plans that are compared, by mode."""
        modes = self.modes if self.compares else ()
        return {mode: ComparedPlans.of([plan for plan in self.plans if plan.mode == mode]) for mode in modes}


@frozen(kw_only=True)
class Observed:
    """A batch's totals by group, its replicates by mode (none without a seed or without a token), its pictures
    and what was decided about its rows, where those are asked for, and what is kept of it as a whole (None without a
    token)."""

    totals: Totals
    replicates: dict[str, Replicates] = field(default_factory=dict[str, Replicates])
    pictures: BinnedTotals | None = None
    decision: Decision | None = None
    whole: WholeDump | None = None
    group_replicates: GroupReplicates = field(default_factory=dict[tuple[Any, ...], Mapping[str, Replicates]])
    step_clusters: Mapping[Any, DistinctKeys] = field(default_factory=dict[Any, DistinctKeys])


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

    budget_bounds: of the plans' budgets, where they have any.  decides: whether to return what the plan
    decides about each row and token.  rollouts: those of the dump that have several samples, needed where the
    observation is by rollout, else None.
    """
    decided = observation.plan if decides or observation.pictures else None
    # Beyond float64 a sum is inf, and its metric null.
    with np.errstate(all="ignore"):
        blocks = [batch.between(*rows) for rows in row_blocks(batch.offsets, device, BLOCK_TOKENS)]
        # A batch without a token has the same names: its columns have length 0.
        measured = concatenated(
            [
                _of_rows(block, observation, device, budget_bounds=budget_bounds or {}, decided=decided)
                for block in blocks
                if block.n_tokens or not batch.n_tokens
            ]
        )
        filled = batch.filled
        rewards = np.full(int(filled.sum()), np.nan) if batch.reward is None else batch.reward[filled]
        base = {mode: diagnostics(columns) | reward_columns(rewards) for mode, columns in measured.of_tokens.items()}
        compared, masses = Columns(), dict[str, Floats]()
        for mode, plans in observation.compared.items():
            of_mode, masses_of_mode = plans.columns(measured.compared[mode])
            compared, masses = compared | of_mode, masses | masses_of_mode
        totals, whole = _totals(
            batch, observation, measured, base=base, compared=(compared, masses), rewards=rewards, rollouts=rollouts
        )
        decision = None if measured.decision is None else measured.decision.with_empty(filled)
        if not batch.n_tokens:
            return Observed(totals=totals, decision=decision if decides else None)
        resampled: dict[str, Columns] = {**base}
        if observation.compares:
            names = resampled_names(observation.plans)
            resampled[COMPARISON] = Columns(sums={name: compared.sums[name] for name in names})
        pictures = None
        if observation.pictures:
            assert decision is not None
            pictures = draw(Tokens.of(batch, CPU, observation.modes[0]), decision)
        observed = Observed(totals=totals, pictures=pictures, decision=decision if decides else None, whole=whole)
        if observation.seed is None:
            return observed
        return _resampled(observed, batch, resampled, observation=observation, measured=measured, device=device)


Pieces = tuple[Array, ...]
"""One value for each token or each row, block after block."""


@frozen(kw_only=True)
class _Kept:
    """The tokens that a plan keeps.  rows: bool[b], the sequences that still have one; columns: of these.  log_ratio:
    f64[K], in pieces."""

    rows: Flags
    columns: Columns
    log_ratio: Pieces


@frozen(kw_only=True)
class _OfPlan:
    """What a plan does.  masses: of its objective, f64[b].  distances, sequence_distances: as of `distances`."""

    columns: Columns
    masses: Mapping[str, Floats]
    distances: Mapping[str, Pieces] = field(default_factory=dict[str, Pieces])
    sequence_distances: Mapping[str, Floats] = field(default_factory=dict[str, Floats])
    kept: _Kept | None = None


@frozen(kw_only=True)
class _OfRows:
    """What is measured of b sequences with v tokens.

    of_tokens, drifts, log_ratio (f64[v], in pieces), compared: by mode.  advantages: f64[b], where the observation has
    them.  keys, clusters: u64[b], as of `bootstrap`; of nothing where nothing is resampled.
    """

    of_tokens: Mapping[Mode, Columns]
    drifts: Mapping[Mode, Columns]
    log_ratio: Mapping[Mode, Pieces]
    keys: Keys
    clusters: Keys
    plans: Mapping[Plan, _OfPlan]
    compared: Mapping[Mode, ComparedRows]
    advantages: Floats | None
    decision: Decision | None


def _of_rows(
    block: Batch, observation: Observation, device: Device, *, budget_bounds: BudgetBounds, decided: Plan | None
) -> _OfRows:
    """Everything that needs tokens, of some rows at once.  decided: the plan whose decisions are wanted."""
    settings = observation.settings
    tokens = {mode: Tokens.of(block, device, mode) for mode in observation.modes}
    of_tokens = {mode: token_columns(of_mode, settings) for mode, of_mode in tokens.items()}
    plans, bounds = dict[Plan, _OfPlan](), bounds_of_sequences(block, budget_bounds)
    decision = None
    # What is compared needs no whole verdict but for an objective.
    for plan in observation.objectives if observation.compares else observation.plans:
        of_mode = tokens[plan.mode]
        corrected = correct(of_mode, plan, bounds)
        objective = observation.objectives.get(plan)
        columns, masses = (Columns(), {}) if objective is None else objective_columns(of_mode, corrected, objective)
        if observation.compares:
            plans[plan] = _OfPlan(columns=columns, masses=masses)
            continue
        plans[plan] = _OfPlan(
            columns=corrections(of_mode, corrected) | columns,
            masses=masses,
            distances={name: (values,) for name, values in distances(corrected).items()},
            sequence_distances=distances(corrected, "sequences"),
            kept=None if corrected.keep is None else _kept_tokens(of_mode, corrected, of_tokens[plan.mode], settings),
        )
        if plan == decided:
            decision = decide(of_mode, corrected, objective)
    keys = clusters = np.zeros(0, np.uint64)
    if observation.seed is not None:
        keys, clusters = bootstrap.keys_of_rows(block, tokens[observation.modes[0]])
    return _OfRows(
        of_tokens=of_tokens,
        drifts={mode: drift(of_mode, settings) for mode, of_mode in tokens.items()},
        log_ratio={mode: (of_mode.log_ratio,) for mode, of_mode in tokens.items()},
        keys=keys,
        clusters=clusters,
        plans=plans,
        compared={
            mode: Comparing(tokens=tokens[mode], budget_bounds=bounds).rows(of_mode)
            for mode, of_mode in observation.compared.items()
        },
        advantages=mean_advantages(block, next(iter(tokens.values()))) if observation.has_advantages else None,
        decision=decision,
    )


def _kept_tokens(tokens: Tokens, corrected: Corrected, of_all: Columns, settings: DiagnosticSettings) -> _Kept:
    """of_all: the columns of all tokens, reused where every sequence keeps all of its tokens or none."""
    assert corrected.keep is not None
    n_kept, log_ratio = tokens.rows.count(corrected.keep), (tokens.log_ratio[corrected.keep],)
    left = n_kept > 0
    if (n_kept[left] == tokens.rows.sizes[left]).all():
        return _Kept(rows=left, columns=of_all.of_rows(left), log_ratio=log_ratio)
    kept, _ = tokens.keep(corrected.keep)
    return _Kept(rows=left, columns=token_columns(kept, settings), log_ratio=log_ratio)


def _totals(
    batch: Batch,
    observation: Observation,
    measured: _OfRows,
    *,
    base: Mapping[Mode, Columns],
    compared: tuple[Columns, Mapping[str, Floats]],
    rewards: Floats,
    rollouts: RolloutTotals | None,
) -> tuple[Totals, WholeDump]:
    """Everything that is added up by group; and the tails and histograms of all rows.  base: the diagnostics of each
    mode.  compared: the columns and the masses of all plans that are compared."""
    filled = batch.filled
    groups = _Groups(batch.group_keys, batch.group_index[filled].astype(np.int64), batch.lengths[filled])
    weights = np.ones(batch.n_rows), (~filled).astype(np.float64), batch.n_masked.astype(np.float64)
    counts = dict(zip(COUNTS, weights, strict=True))
    totals = Totals.of_rows(batch.group_keys, batch.group_index.astype(np.int64), {"sum": counts})
    of_samples = list[Columns]()
    tails, histograms = dict[str, Tail](), dict[str, Histogram]()

    def add(block: str, of_block: Totals, whole: WholeDump) -> None:
        nonlocal totals
        totals |= of_block.named(block)
        tails.update({f"{block}.{name}": tail for name, tail in whole.tails.items()})
        histograms.update({f"{block}.{name}": histogram for name, histogram in whole.histograms.items()})

    of_modes = dict[Mode, Totals]()
    for mode, columns in base.items():
        log_ratio, distance = measured.log_ratio[mode], abs(columns.sums["log_ppl_diff"])
        log_weights = {"token": log_ratio, "sequence": (columns.sums["log_ratio"],), "seq_distance": (distance,)}
        beside = measured.drifts[mode]
        if measured.advantages is not None:
            beside |= advantage_columns(measured.advantages, columns.sums["log_ratio"])
        of_samples.append(columns | beside)
        log_ratios = {"log_ratio": log_ratio, "seq_distance": (distance,)}
        of_modes[mode], whole = groups.totals(of_samples[-1], log_ratios, log_weights)
        add(diagnostics_block(mode), of_modes[mode], whole)
    # Plans that differ in name alone have one block.
    for block, plan in {plan_block(plan): plan for plan in measured.plans}.items():
        of_plan = measured.plans[plan]
        of_samples.append(of_plan.columns)
        masses = {name: (values,) for name, values in of_plan.masses.items()}
        add(block, *groups.totals(of_plan.columns, {}, masses))
        # Bounds are told of a whole dump alone: exactly of sequences, whose largest distances are kept, and of tokens
        # by the histogram.
        histograms |= {f"{block}.{name}": histogram(pieces) for name, pieces in of_plan.distances.items()}
        for name, values in of_plan.sequence_distances.items():
            tails[f"{block}.{name}"] = Tail.of([values], WHOLE_SIZE)
        if (kept := of_plan.kept) is not None:
            columns = diagnostics(kept.columns) | reward_columns(rewards[kept.rows])
            log_weights = {"token": kept.log_ratio, "sequence": (columns.sums["log_ratio"],)}
            lengths = columns.sums["tokens"].astype(np.int64)
            of_rows = replace(groups, group_of=groups.group_of[kept.rows], lengths=lengths)
            of_all = diagnostics_block(plan.mode), of_modes[plan.mode]
            add(f"{block}.{KEPT}", *of_rows.totals(columns, {"log_ratio": kept.log_ratio}, log_weights, of_all))
    if observation.compares:
        masses = {name: (values,) for name, values in compared[1].items()}
        of_plans, whole = groups.totals(compared[0], {}, masses)
        # Of weights that are divided by the mean of their batch a batch alone tells the masses.
        told = {plan_name(plan, MASS) for plan in observation.plans if not divides_by_mean(plan)} & whole.tails.keys()
        add(COMPARISON, of_plans, WholeDump(tails={name: whole.tails[name].shortened(GROUP_SIZE) for name in told}))
    if rollouts is not None:
        totals |= _rollout_totals(batch, rollouts, of_samples)
    return totals, WholeDump(tails=tails, histograms=histograms)


def _rollout_totals(batch: Batch, rollouts: RolloutTotals, measured: Sequence[Columns]) -> Totals:
    """Every sum over samples once more, each sample weighted by its share of its rollout (RolloutTotals.shares).

    measured: columns of the rows that have a valid token.
    """
    assert batch.rollout_keys is not None
    shares, filled, group_of = rollouts.shares(batch.rollout_keys, batch.lengths), batch.filled, batch.group_index
    empty = {EMPTY: np.where(filled, 0.0, shares)}
    sums = {name: values * shares[filled] for columns in measured for name, values in columns.sums.items()}
    of_empty = Totals.of_rows(batch.group_keys, group_of.astype(np.int64), {"sum": empty})
    of_filled = Totals.of_rows(batch.group_keys, group_of[filled].astype(np.int64), {"sum": sums})
    return (of_empty | of_filled).named(ROLLOUT)


def reward_columns(rewards: Floats) -> Columns:
    """The sum of finite rewards, and how many there are; rewards: f64[B]."""
    unknown = ~np.isfinite(rewards)
    return Columns(sums={"reward": np.where(unknown, 0.0, rewards), "rewarded": (~unknown).astype(np.float64)})


@frozen
class _Groups:
    """The groups of a batch; of each row with a valid token the place of its own, i64[B], and its tokens, i64[B]."""

    keys: tuple[GroupKey, ...]
    group_of: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def totals(
        self,
        columns: Columns,
        counted: Mapping[str, Pieces],
        log_weights: Mapping[str, Pieces],
        of_tokens: tuple[str, Totals] | None = None,
    ) -> tuple[Totals, WholeDump]:
        """What these rows come to in each group, and the tails and histograms of all of them.

        columns: f64[B].  counted: name -> values to make a histogram of.  log_weights: name -> values of which the
        largest are kept.  Either has one value for each token, f64[V], or for each row.  of_tokens: of tokens that are
        kept the block of all tokens and their totals; a group that loses none shares its histograms and tails.
        """
        totals = Totals.of_rows(self.keys, self.group_of, columns.by_merge)
        whole = WholeDump(
            tails={name: Tail.of(pieces, WHOLE_SIZE) for name, pieces in log_weights.items()},
            histograms={name: histogram(pieces) for name, pieces in counted.items()},
        )
        shared, shares = dict[str, str](), np.zeros(len(self.keys), np.bool_)
        if of_tokens is not None:
            shared = {name: f"{of_tokens[0]}.{name}" for name in (*counted, *log_weights)}
            shares = totals.sum("tokens") == of_tokens[1].sum("tokens")
        tails: dict[str, OfGroups[Tail]] = dict.fromkeys(whole.tails)
        histograms: dict[str, OfGroups[Histogram]] = dict.fromkeys(whole.histograms)
        if len(self.keys) <= MOST_LISTED:
            for name, tail in whole.tails.items():
                tails[name] = self._of_each_group(log_weights[name], shares, tail.shortened(GROUP_SIZE), Tails.of)
            for name, of_all in whole.histograms.items():
                histograms[name] = self._of_each_group(counted[name], shares, of_all, histograms_of_groups)
        return replace(totals, histograms=histograms, tails=tails, shared=shared), whole

    def _of_each_group(
        self, pieces: Pieces, shares: Flags, whole: T, of_each: Callable[[Array, NDArray[np.int64]], Sequence[T]]
    ) -> tuple[T | None, ...]:
        """Of each group's values; None where it shares those of all tokens.  whole: of all values, and so of a group
        that has them all."""
        if shares.all() or len(shares) == 1:
            return (None if shares.all() else whole,) * len(shares)
        values = np.concatenate(pieces) if len(pieces) > 1 else pieces[0]
        lengths = self.lengths if len(values) != len(self.group_of) else np.ones(len(values), np.int64)
        values, sizes = by_group(values, lengths, self.group_of, len(self.keys))
        is_made = ~shares & (sizes < len(values))
        n_left = int(sizes[is_made].sum())
        if n_left < len(values):
            values = values[np.repeat(is_made, sizes)] if n_left else values[:0]
        made = zip(of_each(values, np.where(is_made, sizes, 0)), is_made.tolist(), shares.tolist(), strict=True)
        return tuple(None if shared else own if is_own else whole for own, is_own, shared in made)


def histograms_of_groups(values: Array, sizes: NDArray[np.int64]) -> Sequence[Histogram]:
    """Of the values of each group, one group's after the other's.  sizes: how many each has, i64[G]."""
    if isinstance(values, np.ndarray):
        return Histograms.counting(values, sizes)
    return [histogram([values[first:end]]) for first, end in pairwise(offsets_of(sizes).tolist())]


def _resampled(
    observed: Observed,
    batch: Batch,
    columns: Mapping[str, Columns],
    *,
    observation: Observation,
    measured: _OfRows,
    device: Device,
) -> Observed:
    """The same with replicates, and samples of the keys of rows.  columns: what is resampled, by name; the diagnostics
    of a mode first."""
    seed, keys, clusters = observation.seed, measured.keys, measured.clusters
    assert seed is not None
    assert observed.whole is not None
    filled, of_mode = batch.filled, next(iter(columns.values()))
    texts = join_keys(keys, batch.lengths[filled].astype(np.uint64))
    group_replicates: GroupReplicates = {}
    if observation.by_group:
        values = observation.asked_values(batch.group_keys)
        group_replicates = bootstrap.resample_groups(
            clusters, seed, columns, group_of=batch.group_index[filled], values=values
        )
    step_clusters: dict[Any, DistinctKeys] = {}
    if observation.step_at is not None:
        steps = [key[1 + observation.step_at] for key in batch.group_keys]
        step_clusters = bootstrap.clusters_by(clusters, batch.group_index[filled], steps)
    return replace(
        observed,
        replicates={name: bootstrap.resample(clusters, seed, of, device=device) for name, of in columns.items()},
        whole=replace(
            observed.whole,
            rows=KeySample.of(keys),
            contents=KeySample.of(bootstrap.content_keys(keys, of_mode)),
            texts=KeySample.of(texts),
        ),
        group_replicates=group_replicates,
        step_clusters=step_clusters,
    )
