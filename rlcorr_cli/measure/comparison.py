"""Many plans on one batch: what each leaves of it, as rows of one number per sequence.

Plans differ on few tokens: one that caps weights at 2 from the raw weights, one that rejects tokens from no correction.
So tokens whose log-ratio is near 0 are summed once for all plans, block by block: with weight 1, and with their raw
weights.  The others, the far ones, are set aside (`Comparing.rows`).  Once for the batch each distinct set of records
of tokens is applied to these few, and their sums are added to those of the near ones (`ComparedPlans.columns`).  Only a
set that does not leave near tokens alone is applied to every token of a block.

What a plan does to whole sequences then scales or drops these sums.  The names of the numbers are in
`totals/comparison.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np

from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure.arrays import Array, Segments, as_floats, host, namespace, product
from rlcorr_cli.measure.correct import keeps, pair, weigh
from rlcorr_cli.measure.quantities import Columns
from rlcorr_cli.measure.tokens import Tokens
from rlcorr_cli.metrics.advantages import PREFIX
from rlcorr_cli.plans.plan import Budget, Plan, Rejection, Weighting
from rlcorr_cli.reading.batch import Batch
from rlcorr_cli.totals.comparison import DEGREES, LOGS, MASS, PARTS, plan_name, reference_name
from rlcorr_cli.totals.flat import Floats, offsets_of


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
    return {name: np.log(values) for name, values in zip(PARTS, parts, strict=True)}


def mean_advantages(batch: Batch, tokens: Tokens) -> Floats:
    """A of each sequence, the mean over its tokens; NaN of one that has none."""
    if tokens.advantages is not None:
        return tokens.rows.mean(tokens.advantages)
    if batch.row_advantage is not None:
        return batch.row_advantage[batch.filled]
    return np.full(tokens.rows.n_rows, np.nan)


NEAR = 0.09
"""Tokens whose log-ratio is at most so far from 0 are near; few plans take them or bound their weights."""
_TRIED = np.array([-NEAR, 0.0, NEAR])
"""A record that spares these log-ratios spares what lies between them, too."""

RATIO_LIMIT = 340.0
"""e^340 and its square are numbers that float64 holds."""

Rule = Rejection | Budget
Key = frozenset[object]
TokenSums = Floats
"""Sums over the tokens of each sequence, f64[B, 7]: of f > 0, k3 there, f, f^2, A^2 f q, A^2 f^2 q, |A f|; q as in
totals/comparison.py."""
Tables = dict[str, Floats]
"""Name -> one row per plan, f64[P, B]."""


@frozen(kw_only=True, eq=False)
class Records:
    """What a plan applies to tokens, or to sequences: its weights, if they are of these, and its rules."""

    plan: Plan
    weighting: Weighting | None = None
    rules: tuple[Rule, ...] = ()

    @property
    def key(self) -> Key:
        """What their verdict depends on; names, batch means and the order of rules change nothing."""
        limit, on, weighting = self.plan.log_ratio_limit, self.plan.limit_on, self.weighting
        weights = () if weighting is None else ((replace(weighting, normalize="none"), limit, on == "first"),)
        rules = (rule if isinstance(rule, Budget) else replace(rule, name="rule") for rule in self.rules)
        return frozenset((*weights, *((rule, limit, on) for rule in rules)))

    @property
    def leaves_near(self) -> bool:
        """Whether each token near 0 keeps its raw weight, or 1 without weights, whatever else is known of it."""
        weighting, records = self.weighting, [each for each in (self.weighting, *self.rules) if each]
        is_mismatch = self.plan.mode == "bypass" or all(record.of == "mismatch" for record in records)
        rules = [replace(rule, gate="any") for rule in self.rules if isinstance(rule, Rejection)]
        by_ratio = [rule for rule in rules if rule.scope == "token" and not rule.statistic.startswith("binary_kl")]
        if not is_mismatch or len(by_ratio) < len(self.rules) or (weighting is not None and weighting.gate != "any"):
            return False
        # A gap of probabilities is largest where the rollout was certain of the token.
        rows, zeros = Segments(np.array([0, len(_TRIED)])), np.zeros_like(_TRIED)
        tokens = Tokens(rows=rows, rollout_logp=zeros, log_ratio=_TRIED)
        f = Comparing(tokens=tokens).factor(replace(self, rules=tuple(rules)), zeros + 1)
        return np.allclose(f, 1.0 if weighting is None else tokens.rho, rtol=1e-12, atol=0)


@frozen(kw_only=True, eq=False)
class ComparedRows:
    """What sequences bring to the plans of one mode.

    advantage: A_i, f64[B].  near: whether f is rho, and not 1 -> sums of the near tokens.  far: what Tokens has of the
    others, f64[F] by name.  own: sums of all tokens for records that do not leave near ones alone.  of_sequences: what
    records make of each sequence, f64[B].
    """

    sizes: Floats
    log_ratio_sum: Floats
    advantage: Floats
    near: Mapping[bool, TokenSums]
    far: Mapping[str, Any]
    own: Mapping[Records, TokenSums]
    of_sequences: Mapping[Records, Floats]


@frozen(kw_only=True, eq=False)
class Comparing:
    """Some tokens of one mode, to which plans are applied.

    budget_bounds: budget -> its bound for each sequence, f64[B].
    """

    tokens: Tokens
    budget_bounds: Mapping[str, Floats] = field(default_factory=dict[str, Floats])

    def rows(self, plans: "ComparedPlans") -> ComparedRows:
        """What these sequences bring to some plans."""
        tokens, rows = self.tokens, self.tokens.rows
        (far,) = tokens.xp.nonzero(abs(tokens.log_ratio) > NEAR)
        columns = {name: getattr(tokens, name) for name in ("rollout_logp", "log_ratio", "advantages")}
        return ComparedRows(
            sizes=rows.sizes,
            log_ratio_sum=tokens.log_ratio_sum,
            advantage=np.ones(rows.n_rows) if tokens.advantages is None else rows.mean(tokens.advantages),
            near=_near_sums(tokens, far, with_ratio=any(records.weighting for records in plans.of_tokens)),
            far={name: host(values[far]) for name, values in columns.items() if values is not None},
            own={records: self.sums(self.factor(records, self._ones)) for records in plans.taking_near},
            of_sequences={records: self.factor(records, np.ones(rows.n_rows)) for records in plans.of_sequences},
        )

    def factor(self, records: Records, ones: Array) -> Array:
        """What records make of each of their units: its weight, or 1 without weights; 0 where a rule takes it."""
        weighting, plan, f = records.weighting, records.plan, ones
        if weighting is not None:
            f = weigh(pair(self.tokens, weighting, plan), weighting, plan.log_ratio_limit).applied
        for rule in records.rules:
            f = namespace(f).where(keeps(self.tokens, rule, plan, self.budget_bounds), f, 0.0)
        return f

    def sums(self, f: Array) -> TokenSums:
        """The sums of an f of every token, [V]."""
        rows, kept, score = self.tokens.rows, f > 0, product(f, self._score)
        mass = f if self.tokens.advantages is None else product(f, abs(self.tokens.advantages))
        k3 = self.tokens.xp.where(kept, self._k3, 0.0)
        return np.stack([rows.count(kept), *map(rows.sum, (k3, f, f * f, score, product(f, score), mass))], axis=1)

    def token_parts(self, plan: Plan) -> dict[str, Floats]:
        """Each token's part in the sums of one plan that tokens make up, f64[V]."""
        (parts,), rows = ComparedPlans.of([plan]).parts, self.tokens.rows
        ones = np.ones(rows.n_rows)
        scale = reduce(product, (self.factor(records, ones) for records in parts.sequences), ones)
        f = product(self.factor(parts.tokens, self._ones), rows.spread(scale))
        kept, rho = as_floats(f > 0), self.tokens.limited_rho(RATIO_LIMIT)
        columns = {
            "kept": kept,
            "k3": product(kept, self._k3),
            "f_tokens": f,
            "score": product(f, self._score),
            "score_squared": product(f * f, self._score),
            "ratio": rho,
            "ratio_squared": rho * rho,
        }
        return {name: host(values) for name, values in columns.items()}

    def sequence_parts(self, plan: Plan) -> dict[str, Floats]:
        """Each sequence's part in every sum of one plan, f64[B]; logs as what they are the logs of."""
        plans, log_ratio = ComparedPlans.of([plan]), self.tokens.log_ratio_sum
        tables, _ = plans.tables(self.rows(plans))
        parts = {name: tables[name][0] for name in DEGREES}
        parts |= {name: _exp(tables[name][0]) for name in LOGS}
        return parts | {"ratio": _exp(log_ratio), "ratio_squared": _exp(2 * log_ratio)}

    @cached_property
    def _ones(self) -> Array:
        return self.tokens.xp.ones_like(self.tokens.log_ratio)

    @cached_property
    def _k3(self) -> Array:
        return self.tokens.rho_minus_1 - self.tokens.log_ratio

    @cached_property
    def _score(self) -> Array:
        return _scores(self.tokens)


def _scores(tokens: Tokens) -> Array:
    """A^2 q of each token, [V]."""
    # expm1, because 1 - e^a has no digits where a token was all but certain.
    score = tokens.xp.expm1(tokens.rollout_logp + tokens.log_ratio)
    if tokens.advantages is not None:
        score *= tokens.advantages
    score *= score
    return score


def _near_sums(tokens: Tokens, far: Array, *, with_ratio: bool) -> dict[bool, TokenSums]:
    """Sums of all tokens but those at some places, with f = 1 and, if asked for, with f = rho.

    Few arrays are held at once, so that they stay in a processor's cache.
    """
    rows = tokens.rows

    def near(values: Array) -> Array:
        values[far] = 0.0
        return values

    row_of = np.searchsorted(rows.offsets, host(far), side="right") - 1
    kept = rows.sizes - np.bincount(row_of, minlength=rows.n_rows)
    k3, score = rows.sum(near(tokens.rho_minus_1 - tokens.log_ratio)), near(_scores(tokens))
    size = None if tokens.advantages is None else near(abs(tokens.advantages))
    of_score, mass = rows.sum(score), kept if size is None else rows.sum(size)
    sums = {False: np.stack([kept, k3, kept, kept, of_score, of_score, mass], axis=1)}
    if with_ratio:
        rho = near(tokens.rho + 0.0)
        of_rho, mass = rows.sum(rho), None if size is None else rows.sum(rho * size)
        score *= rho
        of_score = rows.sum(score)
        score *= rho
        rho *= rho
        columns = [kept, k3, of_rho, rows.sum(rho), of_score, rows.sum(score), of_rho if mass is None else mass]
        sums[True] = np.stack(columns, axis=1)
    return sums


@frozen(kw_only=True, eq=False)
class Parts:
    """What a plan is made of.  tokens: its records of tokens.  sequences: its records of sequences, one by one.
    weights: its weighting alone, of either; None without one."""

    tokens: Records
    sequences: Sequence[Records]
    weights: Records | None


@frozen(kw_only=True, eq=False)
class ComparedPlans:
    """The plans of one mode.  parts: of each.  of_tokens, of_sequences: their distinct records, of tokens with none at
    all first.  taking_near: those of tokens that do not leave near ones alone."""

    plans: Sequence[Plan]
    parts: Sequence[Parts]
    of_tokens: Sequence[Records]
    of_sequences: Sequence[Records]
    taking_near: Sequence[Records]

    @classmethod
    def of(cls, plans: Sequence[Plan]) -> "ComparedPlans":
        """Plans taken apart; records that several have are one object."""
        of_tokens, of_sequences = dict[Key, Records](), dict[Key, Records]()

        def shared(known: dict[Key, Records], plan: Plan, weighting: Weighting | None, *rules: Rule) -> Records:
            records = Records(plan=plan, weighting=weighting, rules=rules)
            return known.setdefault(records.key, records)

        shared(of_tokens, plans[0], None)
        parts = list[Parts]()
        for plan in plans:
            weighting, rules = plan.applied_weighting, [rule for rule in plan.rules if rule.applied]
            of_token = weighting if weighting is not None and weighting.scope == "token" else None
            sequences = [shared(of_sequences, plan, None, rule) for rule in rules if not rule.takes_tokens]
            weights = None
            if weighting is not None:
                weights = shared(of_tokens if of_token else of_sequences, plan, weighting)
                sequences += [] if of_token else [weights]
            tokens = shared(of_tokens, plan, of_token, *(rule for rule in rules if rule.takes_tokens))
            parts.append(Parts(tokens=tokens, sequences=sequences, weights=weights))
        return cls(
            plans=plans,
            parts=parts,
            of_tokens=list(of_tokens.values()),
            of_sequences=list(of_sequences.values()),
            taking_near=[records for records in of_tokens.values() if not records.leaves_near],
        )

    def columns(self, rows: ComparedRows) -> tuple[Columns, dict[str, Floats]]:
        """What each plan leaves, the advantages and true weights they are held against; and each plan's masses."""
        (tables, score), mode = self.tables(rows), self.plans[0].mode
        sums = {plan_name(plan, name): tables[name][row] for row, plan in enumerate(self.plans) for name in DEGREES}
        logs = {plan_name(plan, name): tables[name][row] for row, plan in enumerate(self.plans) for name in LOGS}
        reference = weighted_advantages(rows.advantage, rows.log_ratio_sum)
        sums |= {reference_name(mode, name): values for name, values in (reference.sums | {"score": score}).items()}
        logs |= {reference_name(mode, name): values for name, values in reference.logs.items()}
        masses = {plan_name(plan, MASS): mass for plan, mass in zip(self.plans, tables[MASS], strict=True)}
        return Columns(sums=sums, logs=logs), masses

    def tables(self, rows: ComparedRows) -> tuple[Tables, Floats]:
        """Every column of all plans at once; and the score without a correction, f64[B]."""
        token_sums, ones = self._token_sums(rows), np.ones(len(rows.sizes))
        scales = np.stack([reduce(product, map(rows.of_sequences.get, part.sequences), ones) for part in self.parts])
        of_plans = np.stack([token_sums[part.tokens] for part in self.parts])
        kept, k3, f_tokens, _, score, score_squared, mass = np.moveaxis(of_plans, 2, 0)

        def units(weights: Records | None) -> list[Floats]:
            """Sums of the weights over their units, of the squares, and how many units; nothing without weights."""
            if weights in token_sums:
                return [*token_sums[weights][:, 2:4].T, rows.sizes]
            of_rows = None if weights is None else rows.of_sequences[weights]
            return [0 * ones] * 3 if of_rows is None else [of_rows, of_rows**2, ones]

        weight, weight_squared, n_units = np.stack([units(part.weights) for part in self.parts], axis=1)
        stays, f_tokens, advantage = scales > 0, product(f_tokens, scales), rows.advantage
        f, kept = f_tokens / rows.sizes, np.where(stays, kept, 0.0)
        squares, log_f = f**2, np.log(f) + rows.log_ratio_sum
        return {
            "kept": kept,
            "kept_sequences": (kept > 0).astype(np.float64),
            "k3": np.where(stays, k3, 0.0),
            "f": f,
            "f_squared": squares,
            "f_tokens": f_tokens,
            "f_advantage": product(f, advantage),
            "f_squared_advantage": product(squares, advantage),
            "f_squared_advantage_squared": product(squares, advantage**2),
            "score": product(score, scales),
            "score_squared": product(score_squared, scales**2),
            "mass": product(mass, scales),
            "weight": weight,
            "weight_squared": weight_squared,
            "units": n_units,
            **{f"f_ratio{part}": values + log_f for part, values in advantage_parts(advantage).items()},
        }, token_sums[self.of_tokens[0]][:, 4]

    def _token_sums(self, rows: ComparedRows) -> dict[Records, TokenSums]:
        """The sums of all tokens for each of the records of tokens."""
        n_far = (rows.sizes - rows.near[False][:, 0]).astype(np.int64)
        has_far, token_sums = n_far > 0, dict(rows.own)
        far = Comparing(tokens=Tokens(rows=Segments(offsets_of(n_far[has_far])), **rows.far))
        for records in self.of_tokens:
            if records not in token_sums:
                token_sums[records] = rows.near[records.weighting is not None].copy()
                token_sums[records][has_far] += far.sums(far.factor(records, np.ones(n_far.sum())))
        return token_sums


def _exp(logs: Floats) -> Floats:
    """e^logs, of logs that are limited so that it is finite."""
    return np.exp(np.minimum(logs, 2 * RATIO_LIMIT))
