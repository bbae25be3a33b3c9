"""Many plans on one batch: what each leaves of it, as rows of one number per sequence.

Work on tokens is done once for every distinct set of token-scope records; what a plan does to whole sequences then only
scales or drops per-sequence sums that all plans share.  The names of the numbers are in `totals/comparison.py`.

Plans differ from their neighbours on few tokens: one that caps weights at 2 from the raw weights, one that rejects
tokens from no correction.  So sums over tokens are taken once of a baseline, and each plan adds its differences from
it, token by token; where these are many, it is summed afresh.  The baselines are bounded (NEAR_WEIGHT), because what is
added and taken away again costs the digits of what is left.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure.arrays import Array, as_floats, host, product
from rlcorr_cli.measure.correct import keeps, pair, weigh
from rlcorr_cli.measure.quantities import Columns
from rlcorr_cli.measure.tokens import Tokens
from rlcorr_cli.metrics.advantages import PREFIX
from rlcorr_cli.plans.plan import Budget, Plan, Rejection, Weighting
from rlcorr_cli.reading.batch import Batch
from rlcorr_cli.totals.comparison import DEGREES, LOGS, PARTS, plan_name, reference_name
from rlcorr_cli.totals.flat import Floats


def advantage_columns(advantages: Floats, log_ratio_sum: Floats) -> Columns:
    """Of the sequences with a finite advantage; the others count for nothing.  advantages: f64[B]."""
    known = np.isfinite(advantages)
    columns = weighted_advantages(np.where(known, advantages, 0.0), log_ratio_sum)
    logs = {name: np.where(known, values, -np.inf) for name, values in columns.logs.items()}
    sums = columns.sums | {"rows": known.astype(np.float64)}
    return Columns(sums=sums, logs=logs).prefixed(PREFIX)


def weighted_advantages(advantage: Floats, log_ratio_sum: Floats) -> Columns:
    """A and A^2, and the logs of e^S and e^2S times 1, A+, A- and A^2; each f64[B]."""
    parts = advantage_parts(advantage)
    logs = {f"ratio{part}": values + log_ratio_sum for part, values in parts.items()}
    logs |= {f"ratio_squared{part}": values + 2 * log_ratio_sum for part, values in parts.items()}
    return Columns(sums={"advantage": advantage, "advantage_squared": advantage**2}, logs=logs)


def advantage_parts(advantage: Floats) -> dict[str, Floats]:
    """Logs of 1, A+, A- and A^2, by what their names end in; -inf of 0."""
    parts = np.ones(len(advantage)), np.maximum(advantage, 0.0), np.maximum(-advantage, 0.0), advantage**2
    with np.errstate(divide="ignore"):
        return {name: np.log(values) for name, values in zip(PARTS, parts, strict=True)}


def mean_advantages(batch: Batch, tokens: Tokens) -> Floats:
    """A of each sequence, the mean over its tokens; NaN of one that has none."""
    if tokens.advantages is not None:
        return tokens.rows.mean(tokens.advantages)
    if batch.row_advantage is not None:
        return batch.row_advantage[batch.filled]
    return np.full(tokens.rows.n_rows, np.nan)


NEAR_WEIGHT = 8.0
"""The largest weight of a baseline."""
FEW = 8
"""A plan is summed by its differences where they are at most one token in so many."""

RATIO_LIMIT = 340.0
"""e^340 and its square are numbers that float64 holds."""

Key = tuple[object, ...]
Tables = dict[str, Floats]
"""Name -> one row per plan, f64[P, B]."""


@frozen(kw_only=True)
class TokenSums:
    """Sums over each sequence's tokens of one f, f64[B]: of f > 0, k3 there, f, A^2 f q, A^2 f^2 q, |A f|."""

    kept: Floats
    k3: Floats
    f: Floats
    score: Floats
    score_squared: Floats
    mass: Floats


@frozen(kw_only=True, eq=False)
class Comparing:
    """The tokens of one mode, and what plans on them share; each part of a plan is worked out once.

    budget_bounds: budget -> its bound for each sequence, f64[B].
    """

    tokens: Tokens
    budget_bounds: Mapping[str, Floats] = field(default_factory=dict[str, Floats])
    _weights: dict[Key, Array] = field(default_factory=dict[Key, Array])
    _kept: dict[Key, Array] = field(default_factory=dict[Key, Array])
    _sums: dict[Key, TokenSums] = field(default_factory=dict[Key, TokenSums])
    _unit_sums: dict[Key, tuple[Floats, Floats]] = field(default_factory=dict[Key, tuple[Floats, Floats]])

    @np.errstate(over="ignore", invalid="ignore")  # advantages whose squares no float holds
    def columns(self, plans: Sequence[Plan]) -> tuple[Columns, dict[str, Floats]]:
        """What each plan leaves, the advantages and true weights they are held against; and each plan's masses."""
        tables, masses = self._tables(plans)
        sums = {plan_name(plan, name): tables[name][row] for row, plan in enumerate(plans) for name in DEGREES}
        logs = {plan_name(plan, name): tables[name][row] for row, plan in enumerate(plans) for name in LOGS}
        reference = weighted_advantages(self._advantage, self.tokens.log_ratio_sum)
        reference |= Columns(sums={"score": self._untouched.score})
        mode = plans[0].mode
        return (
            Columns(
                sums=sums | {reference_name(mode, name): values for name, values in reference.sums.items()},
                logs=logs | {reference_name(mode, name): values for name, values in reference.logs.items()},
            ),
            {plan_name(plan, "mass"): mass for plan, mass in zip(plans, masses, strict=True)},
        )

    @np.errstate(over="ignore", invalid="ignore")
    def sequence_parts(self, plan: Plan) -> dict[str, Floats]:
        """Each sequence's part in every sum of one plan, f64[B]; logs as what they are the logs of."""
        tables, _ = self._tables([plan])
        parts = {name: tables[name][0] for name in DEGREES}
        parts |= {name: _exp(tables[name][0]) for name in LOGS}
        log_ratio = self.tokens.log_ratio_sum
        return parts | {"ratio": _exp(log_ratio), "ratio_squared": _exp(2 * log_ratio)}

    def token_parts(self, plan: Plan) -> dict[str, Floats]:
        """Each token's part in the sums of one plan that tokens make up, f64[V]."""
        f = self._token_f(plan, *_token_records(plan))
        f = product(f, self.tokens.rows.spread(self._scale(plan)))
        kept, rho = as_floats(f > 0), self.tokens.limited_rho(RATIO_LIMIT)
        parts = {
            "kept": kept,
            "k3": product(kept, self._k3),
            "f_tokens": f,
            "score": product(f, self._score),
            "score_squared": product(f * f, self._score),
            "ratio": rho,
            "ratio_squared": rho * rho,
        }
        return {name: host(values) for name, values in parts.items()}

    def _tables(self, plans: Sequence[Plan]) -> tuple[Tables, Floats]:
        """Every column of all plans at once, and |A f| of each sequence, f64[P, B]."""
        token_sums = [self._token_sums(plan) for plan in plans]
        scales = np.stack([self._scale(plan) for plan in plans])
        units = [self._units(plan) for plan in plans]
        sums = {name: np.stack([getattr(each, name) for each in token_sums]) for name in TokenSums.__dataclass_fields__}
        stays = scales > 0
        f_tokens = product(sums["f"], scales)
        f, advantage = f_tokens / self.tokens.rows.sizes, self._advantage
        kept = np.where(stays, sums["kept"], 0.0)
        mass = product(sums["mass"], scales)
        with np.errstate(divide="ignore"):
            log_f = np.log(f) + self.tokens.log_ratio_sum
        squares = f**2
        return {
            "kept": kept,
            "kept_sequences": (kept > 0).astype(np.float64),
            "k3": np.where(stays, sums["k3"], 0.0),
            "f": f,
            "f_squared": squares,
            "f_tokens": f_tokens,
            "f_advantage": product(f, advantage),
            "f_squared_advantage": product(squares, advantage),
            "f_squared_advantage_squared": product(squares, advantage**2),
            "score": product(sums["score"], scales),
            "score_squared": product(sums["score_squared"], scales**2),
            "mass": mass,
            "weight": np.stack([weight for weight, _, _ in units]),
            "weight_squared": np.stack([square for _, square, _ in units]),
            "units": np.stack([count for _, _, count in units]),
            **{f"f_ratio{part}": values + log_f for part, values in advantage_parts(advantage).items()},
        }, mass

    def _scale(self, plan: Plan) -> Floats:
        """What a plan multiplies each sequence's sums by."""
        weighting = plan.applied_weighting
        scale = np.ones(self.tokens.rows.n_rows)
        if weighting is not None and weighting.scope != "token":
            scale = self._weight(plan, weighting)
        for rule in (rule for rule in plan.rules if rule.applied and not rule.takes_tokens):
            scale = np.where(self._keep(plan, rule), scale, 0.0)
        return scale

    def _units(self, plan: Plan) -> tuple[Floats, Floats, Floats]:
        """Sums of the weights over their units, of the squares, and how many units; nothing without weights."""
        rows, weighting = self.tokens.rows, plan.applied_weighting
        if weighting is None:
            nothing = np.zeros(rows.n_rows)
            return nothing, nothing, nothing
        weights, key = self._weight(plan, weighting), _key(plan, weighting)
        if weighting.scope != "token":
            return weights, weights**2, np.ones(len(weights))
        if key not in self._unit_sums:
            self._unit_sums[key] = rows.sum(weights), rows.sum(weights * weights)
        return *self._unit_sums[key], rows.sizes

    def _token_sums(self, plan: Plan) -> TokenSums:
        weighting, rules = _token_records(plan)
        if weighting is None and not rules:
            return self._untouched
        records = (*((weighting,) if weighting else ()), *rules)
        key = tuple(sorted((_key(plan, record) for record in records), key=repr))
        if key not in self._sums:
            f = self._token_f(plan, weighting, rules)
            baseline, sums = (self._ones, self._untouched) if weighting is None else self._near_ratio
            differing = np.flatnonzero(host(f != baseline))
            if self.tokens.out_of_float_range is None and len(differing) * FEW <= len(f):
                self._sums[key] = self._differing(f, baseline, sums, differing)
            else:
                self._sums[key] = self._afresh(f)
        return self._sums[key]

    def _token_f(self, plan: Plan, weighting: Weighting | None, rules: Sequence[Rejection | Budget]) -> Array:
        """What a plan's records of tokens make of each, [V]."""
        f = self._ones if weighting is None else self._weight(plan, weighting)
        for rule in rules:
            f = self.tokens.xp.where(self._keep(plan, rule), f, 0.0)
        return f

    def _differing(self, f: Array, baseline: Array, sums: TokenSums, tokens: NDArray[np.int64]) -> TokenSums:
        """The sums of f by the tokens where it differs from a baseline that is above 0 everywhere."""
        n = self.tokens.rows.n_rows
        if not len(tokens):
            return sums
        sequences = self._sequences_of(tokens)
        before, after = host(baseline)[tokens], host(f)[tokens]
        score, size, k3 = (host(values)[tokens] for values in (self._score, self._size, self._k3))

        def plus(total: Floats, change: Floats) -> Floats:
            return total + np.bincount(sequences, change, minlength=n)

        dropped, is_far = after == 0, self._is_far[tokens]
        return TokenSums(
            kept=plus(sums.kept, -dropped.astype(np.float64)),
            # Of far tokens k3 is beside the near ones' sum, so that no large number is taken off again.
            k3=plus(self._near_k3, np.where(dropped & ~is_far, -k3, 0.0)) + self._far_k3(f),
            f=plus(sums.f, after - before),
            score=plus(sums.score, (after - before) * score),
            score_squared=plus(sums.score_squared, (after - before) * (after + before) * score),
            mass=plus(sums.mass, (after - before) * size),
        )

    def _afresh(self, f: Array) -> TokenSums:
        total, kept, score = self.tokens.rows.sum, f > 0, product(f, self._score)
        return TokenSums(
            kept=self.tokens.rows.count(kept),
            k3=total(self.tokens.xp.where(kept, self._k3, 0.0)),
            f=total(f),
            score=total(score),
            score_squared=total(product(f, score)),
            mass=total(product(f, self._size)),
        )

    @cached_property
    def _untouched(self) -> TokenSums:
        """The sums of no correction at all."""
        rows = self.tokens.rows
        score, k3, mass = (rows.sum(values) for values in (self._score, self._k3, self._size))
        return TokenSums(kept=rows.sizes, k3=k3, f=rows.sizes, score=score, score_squared=score, mass=mass)

    @cached_property
    def _ones(self) -> Array:
        return self.tokens.xp.ones_like(self.tokens.log_ratio)

    @cached_property
    def _near_ratio(self) -> tuple[Array, TokenSums]:
        """The raw weights up to NEAR_WEIGHT, the baseline of all token weights, with their sums."""
        near = self.tokens.xp.clip(self.tokens.rho, None, NEAR_WEIGHT)
        return near, self._afresh(near)

    @cached_property
    def _is_far(self) -> NDArray[np.bool_]:
        return host(abs(self.tokens.log_ratio) > np.log(NEAR_WEIGHT))

    @cached_property
    def _far_tokens(self) -> NDArray[np.int64]:
        return np.flatnonzero(self._is_far)

    @cached_property
    def _near_k3(self) -> Floats:
        """k3 of each sequence without its far tokens."""
        if not len(self._far_tokens):
            return self._untouched.k3
        near = abs(self.tokens.log_ratio) <= np.log(NEAR_WEIGHT)
        return self.tokens.rows.sum(self.tokens.xp.where(near, self._k3, 0.0))

    def _far_k3(self, f: Array) -> Floats | float:
        """k3 of each sequence's far tokens that f keeps."""
        if not len(self._far_tokens):
            return 0.0
        tokens = self._far_tokens[host(f)[self._far_tokens] > 0]
        sequences = self._sequences_of(tokens)
        k3 = host(self._k3)[tokens]
        # Without a token bincount counts in integers, weights or not.
        return np.bincount(sequences, k3, minlength=self.tokens.rows.n_rows).astype(np.float64)

    def _sequences_of(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sequence that each of these tokens stands in."""
        return np.searchsorted(self.tokens.rows.offsets, tokens, side="right") - 1

    def _weight(self, plan: Plan, weighting: Weighting) -> Array:
        key = _key(plan, weighting)
        if key not in self._weights:
            weighted = weigh(pair(self.tokens, weighting, plan), weighting, plan.log_ratio_limit)
            self._weights[key] = weighted.applied
        return self._weights[key]

    def _keep(self, plan: Plan, rule: Rejection | Budget) -> Array:
        """What one rule keeps, over tokens where it takes single ones, else over sequences."""
        key = _key(plan, rule)
        if key not in self._kept:
            self._kept[key] = keeps(self.tokens, rule, plan, self.budget_bounds)
        return self._kept[key]

    @cached_property
    def _k3(self) -> Array:
        return self.tokens.rho_minus_1 - self.tokens.log_ratio

    @cached_property
    def _size(self) -> Array:
        """|A|, [V]."""
        advantages = self.tokens.advantages
        return self._ones if advantages is None else abs(advantages)

    @cached_property
    def _score(self) -> Array:
        """A^2 q, [V]."""
        # expm1, because 1 - e^a has no digits where a token was all but certain.
        q = self.tokens.xp.expm1(self.tokens.rollout_logp + self.tokens.log_ratio)
        of_score = q if self.tokens.advantages is None else q * self.tokens.advantages
        return of_score * of_score

    @cached_property
    def _advantage(self) -> Floats:
        """A_i, [B]."""
        rows, advantages = self.tokens.rows, self.tokens.advantages
        return np.ones(rows.n_rows) if advantages is None else rows.mean(advantages)


def _token_records(plan: Plan) -> tuple[Weighting | None, list[Rejection | Budget]]:
    """The weighting, if it is of tokens, and the rules that take single tokens."""
    weighting = plan.applied_weighting
    rules = [rule for rule in plan.rules if rule.applied and rule.takes_tokens]
    return (weighting if weighting is not None and weighting.scope == "token" else None), rules


def _key(plan: Plan, record: Weighting | Rejection | Budget) -> Key:
    """What a record's verdict depends on; names and batch means change nothing."""
    if isinstance(record, Weighting):
        return replace(record, normalize="none"), plan.log_ratio_limit, plan.limit_on == "first"
    same = record if isinstance(record, Budget) else replace(record, name="rule")
    return same, plan.log_ratio_limit, plan.limit_on


def _exp(logs: Floats) -> Floats:
    """e^logs, of logs that are limited to what two of them can be multiplied by."""
    return np.exp(np.minimum(logs, 2 * RATIO_LIMIT))
