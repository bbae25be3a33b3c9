"""The table of quantities: numbers that are added up over the tokens or the sequences of a dump.

A quantity has a name, a formula, and a merge that says how two of its numbers become one.  The numbers of a batch are
made in two steps.  First, block by block, the formulas of tokens: each makes a value of every token, which is reduced
at once, so that one number for each sequence is left.  Then, once for the batch, the formulas of sums: each makes one
more number for each sequence from those before it in the table.  Grouping, resampling and selection work on that small
table.

QUANTITIES has those that the log-probs of the two policies give by themselves; `token_columns` adds the one that
depends on a setting, and `drift` those of the current policy.  `metrics/` turns the totals into metrics; the names here
are what it reads.  `rlcorr help development` lists what a new formula takes.

Ratios are summed as rho - 1, so that a spread of 1e-6 around 1 keeps its digits; where weights may be as small as 1e-9
plain sums and squares are kept, too, because rho - 1 would lose their digits.
"""

import math
from collections.abc import Callable
from dataclasses import field
from typing import Any, Literal

import numpy as np

from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure.arrays import Array
from rlcorr_cli.measure.correct import inside
from rlcorr_cli.measure.tokens import Tokens
from rlcorr_cli.metrics.diagnostics import CHI2_LIMIT, RETENTION_BANDS, DiagnosticSettings
from rlcorr_cli.totals.flat import Flags, Floats
from rlcorr_cli.totals.totals import Merge

Table = dict[str, Floats]
LOG_BANDS = {f"{low}_{high}": (math.log(low), math.log(high)) for low, high in RETENTION_BANDS}
"""The bands of ratios by their names, as log-ratios."""
Per = Literal["token", "sequence", "sums"]


@frozen
class Columns:
    """Named f64[B] arrays of one set of sequences, by how they merge: sums are added over sequences, logs are logs of
    what is added."""

    sums: Table = field(default_factory=dict)
    mins: Table = field(default_factory=dict)
    maxs: Table = field(default_factory=dict)
    logs: Table = field(default_factory=dict)

    def __or__(self, other: "Columns") -> "Columns":
        """Both sets of columns side by side; a name that both have is a mistake of the caller's."""
        for mine, theirs in zip(self.by_merge.values(), other.by_merge.values(), strict=True):
            if twice := mine.keys() & theirs.keys():
                raise ValueError(f"two columns are named {', '.join(sorted(twice))}")
        return Columns(self.sums | other.sums, self.mins | other.mins, self.maxs | other.maxs, self.logs | other.logs)

    @property
    def by_merge(self) -> dict[Merge, Table]:
        """Its tables by how they merge."""
        return {"sum": self.sums, "min": self.mins, "max": self.maxs, "log_sum_exp": self.logs}

    def of_rows(self, rows: Flags) -> "Columns":
        """The same of some of the sequences, bool[B]."""
        tables = self.by_merge.values()
        return Columns(*({name: values[rows] for name, values in table.items()} for table in tables))

    def prefixed(self, prefix: str) -> "Columns":
        """The same columns with a prefix before every name."""
        tables = self.by_merge.values()
        return Columns(*({prefix + name: values for name, values in table.items()} for table in tables))


@frozen
class Quantity:
    """One row of the table.

    name: unique among those of one merge.
    of: takes the Tokens and returns a value of every token (per "token": [V], reduced over each sequence by the merge;
    flags are counted) or of every sequence (per "sequence": [B]); or takes the sequences' sums that stand before it in
    the table, by name, and returns one number of every sequence (per "sums": [B]).  A value beyond float64 may be inf,
    and its metric is then null; where the true value is finite, use `Tokens.out_of_float_range`.
    """

    name: str
    of: Callable[[Any], Array]
    per: Per = "token"
    merge: Merge = "sum"


def js(tokens: Tokens) -> Array:
    """Twice the Jensen-Shannon estimate of each token, 2 log cosh(l/2) = log(1 + E^2 / (4 rho)), [V].

    From e^a / M + e^b / M = 2 with M the mean of both probabilities: one log1p, and no cancellation.
    """
    xp = tokens.xp
    value = xp.log1p(tokens.rho_minus_1 * tokens.rho_minus_1_over_rho * 0.25)
    if tokens.out_of_float_range is None:
        return value
    # Where E^2 / (4 rho) is beyond float64: |l| - 2 log 2 + 2 log(1 + e^-|l|), the last 0 there.
    return xp.where(tokens.out_of_float_range, abs(tokens.log_ratio) - 2 * math.log(2), value)


def chi2(tokens: Tokens) -> Floats:
    """Sum of rho^2 - 1 = E (E + 2) over each sequence, with l limited; [B]."""
    e = tokens.limited_rho_minus_1(CHI2_LIMIT)
    if e is tokens.rho_minus_1:
        return tokens.rho_deviation + 2 * tokens.rho_minus_1_sum
    return tokens.rows.sum(e * (e + 2))


def differs_in_float32(tokens: Tokens) -> Array:
    """Whether the two log-probs of each token are different numbers of float32, bool [V]."""
    if tokens.are_float32:
        return tokens.log_ratio != 0
    xp, b = tokens.xp, tokens.rollout_logp
    return xp.astype(b, xp.float32) != xp.astype(b + tokens.log_ratio, xp.float32)


def log_rho(tokens: Tokens) -> Floats:
    """log of the sum of e^l over each sequence, [B]."""
    return np.log(tokens.rho_sum) if tokens.max_abs <= 340 else tokens.rows.log_sum_exp(tokens.log_ratio)


def log_rho_square(tokens: Tokens) -> Floats:
    """log of the sum of e^2l over each sequence, [B]."""
    return np.log(tokens.rho_square_sum) if tokens.max_abs <= 340 else tokens.rows.log_sum_exp(2 * tokens.log_ratio)


_q = Quantity
QUANTITIES: tuple[Quantity, ...] = (
    # Log-ratios and ratios: l = log pi_train - log pi_rollout, rho = e^l, E = rho - 1.
    _q("log_ratio", lambda t: t.log_ratio_sum, "sequence"),
    _q("log_ratio", lambda t: t.log_ratio_min, "sequence", "min"),
    _q("log_ratio", lambda t: t.log_ratio_max, "sequence", "max"),
    _q("log_ratio_sq", lambda t: t.log_ratio * t.log_ratio),
    _q("abs_log_ratio", lambda t: abs(t.log_ratio)),
    _q("bit_mismatch", differs_in_float32),
    _q("rho_minus_1", lambda t: t.rho_minus_1_sum, "sequence"),
    # These two are logs of sums.
    _q("rho", log_rho, "sequence", "log_sum_exp"),
    _q("rho_sq", log_rho_square, "sequence", "log_sum_exp"),
    # Divergences.
    _q("k3", lambda t: t.rho_minus_1 - t.log_ratio),
    _q("k3_reverse", lambda t: t.log_ratio - t.rho_minus_1_over_rho),
    _q("js", lambda t: t.rows.sum(js(t)) / 2, "sequence"),
    _q("mult_error", lambda t: t.xp.maximum(t.rho, t.inverse)),
    _q("tv", lambda t: 0.0 - t.rows.sum(t.xp.minimum(t.rho_minus_1, 0.0)), "sequence"),  # 0 -: -0.0 is printed "-0%"
    _q("chi2", chi2, "sequence"),
    # Probabilities p = e^b and q = e^a: moments for their mean gap and their correlation.
    _q("rollout_prob", lambda t: t.rollout_prob),
    _q("train_prob", lambda t: t.train_prob),
    _q("rollout_prob_sq", lambda t: t.rollout_prob * t.rollout_prob),
    _q("train_prob_sq", lambda t: t.train_prob * t.train_prob),
    _q("prob_product", lambda t: t.rollout_prob * t.train_prob),
    _q("prob_gap_sq", lambda t: t.prob_gap * t.prob_gap),
    _q("abs_prob_gap", lambda t: t.abs_prob_gap),
    _q("abs_prob_gap", lambda t: t.abs_prob_gap, merge="max"),
    # Tokens whose ratio lies inside a band.
    *(_q(f"retained_{band}", lambda t, ends=ends: inside(t.log_ratio, *ends)) for band, ends in LOG_BANDS.items()),
    # Perplexities of sequences, and their differences: log_ppl_diff is -g, g the mean of l.
    _q("rollout_log_ppl", lambda t: -t.rows.sum(t.rollout_logp) / t.rows.sizes, "sequence"),
    _q("tokens", lambda t: t.rows.sizes, "sequence"),
    _q("sequences", lambda r: np.ones_like(r["tokens"]), "sums"),
    _q("log_ppl_diff", lambda r: -r["log_ratio"] / r["tokens"], "sums"),
    _q("log_ppl_diff", lambda r: r["log_ppl_diff"], "sums", "min"),
    _q("log_ppl_diff", lambda r: r["log_ppl_diff"], "sums", "max"),
    _q("log_ppl_abs_diff", lambda r: abs(r["log_ppl_diff"]), "sums"),
    _q("training_log_ppl", lambda r: r["rollout_log_ppl"] + r["log_ppl_diff"], "sums"),
    _q("training_ppl", lambda r: np.exp(r["training_log_ppl"]), "sums"),
    _q("rollout_ppl", lambda r: np.exp(r["rollout_log_ppl"]), "sums"),
    _q("ppl_ratio", lambda r: np.exp(r["log_ppl_diff"]), "sums"),
    # Of the product of a sequence's ratios, e^S with S the sum of l; and S^2.
    _q("sequence_ratio", lambda r: r["log_ratio"], "sums", "log_sum_exp"),
    _q("sequence_ratio_sq", lambda r: 2 * r["log_ratio"], "sums", "log_sum_exp"),
    _q("sequence_log_ratio_sq", lambda r: r["log_ratio"] ** 2, "sums"),
    _q("chi2_seq", lambda r: np.expm1(2 * r["log_ratio"].clip(-CHI2_LIMIT, CHI2_LIMIT)), "sums"),
    _q("seq_tv", lambda r: 0.0 - np.expm1(np.minimum(r["log_ratio"], 0.0)), "sums"),
    *(
        _q(f"retained_geo_{band}", lambda r, ends=ends: inside(-r["log_ppl_diff"], *ends).astype(np.float64), "sums")
        for band, ends in LOG_BANDS.items()
    ),
    # Averages over tokens and then over sequences, which slime logs.
    _q("seq.k3", lambda r: r["k3"] / r["tokens"], "sums"),
    _q("seq.chi2", lambda r: r["chi2"] / r["tokens"], "sums"),
)


_OF_TOKENS = tuple(quantity for quantity in QUANTITIES if quantity.per != "sums")
_OF_SUMS = tuple(quantity for quantity in QUANTITIES if quantity.per == "sums")


def token_columns(tokens: Tokens, settings: DiagnosticSettings) -> Columns:
    """The quantities that need tokens, of whatever tokens are given (all of them, or those kept)."""
    columns, rows = Columns(), tokens.rows
    tables, reduced = columns.by_merge, {"sum": rows.sum, "min": rows.min, "max": rows.max}
    bound = math.log(settings.extreme_ratio)
    columns.sums["extreme"] = (
        rows.count(abs(tokens.log_ratio) > bound) if tokens.max_abs > bound else np.zeros(rows.n_rows)
    )
    for quantity in _OF_TOKENS:
        values = quantity.of(tokens)
        if quantity.per == "token":
            is_flag = values.dtype == tokens.xp.bool
            values = rows.count(values) if is_flag else reduced[quantity.merge](values)
        tables[quantity.merge][quantity.name] = values
    return columns


def diagnostics(of_tokens: Columns) -> Columns:
    """What the off-policy diagnostics need: the columns of tokens, and what follows from their sums."""
    columns = Columns(*map(dict, of_tokens.by_merge.values()))
    tables = columns.by_merge
    for quantity in _OF_SUMS:
        tables[quantity.merge][quantity.name] = quantity.of(columns.sums)
    return columns


def drift(tokens: Tokens, settings: DiagnosticSettings) -> Columns:
    """Old -> current policy, c = current - old: e^c, old - current, and tokens outside PPO's clips."""
    change = tokens.current_change
    if change is None or tokens.current_logp is None:
        return Columns()
    rows, ratio = tokens.rows, tokens.xp.exp(change)
    return Columns(
        sums={
            "drift.ratio": rows.sum(ratio),
            "drift.kl": -rows.sum(change),
            "drift.high": rows.count(ratio > 1 + settings.clip_high),
            "drift.low": rows.count(ratio < 1 - settings.clip_low),
        },
        maxs={"drift.ratio": rows.max(ratio)},
    )
