"""GapTotals: what tells why two policies differ, as plain numbers that add.

Per valid token: l = log p_train - log p_rollout = a - b; p = e^b, q = e^a; e = 1 - min(p, q); r = l / max(e, 1e-5);
x = ln|r| held to X_RANGE; u = logit p and v = logit q, of log-probs held to LOGP_RANGE; d = v - u.  A token is *inside*
where b < 0, |u| < 9 and |v| < 9, and *graded* where e > 1e-4.

Log-odds, because a change of a logit moves l by about (1 - p) times it (arXiv 2512.23087): noise of an engine has one
spread of d at all levels of surprise, another temperature is a straight line, and top-p a step.

What is counted stands by a token's *part* (PARTS) and by the bin of its u.  A row is *odd* where its two columns do not
belong to each other.  Everything adds but a maximum.
`gap_sums` works the letters out for some rows and sums them, and the rules read the sums (`features`).
"""

from collections.abc import Mapping
from dataclasses import field, fields, replace
from functools import partial
from typing import Any

import numpy as np

from rlcorr_cli.frozen import frozen
from rlcorr_cli.totals.flat import Floats

PARTS = ("odd", "first", "last", "gap", "after_gap", "early", "body")
"""Where a token stands: in an odd row; its row's first; its last; the first after a masked stretch inside the row; the
next three; the row's second to fourth; elsewhere."""
ODD, BODY = PARTS.index("odd"), PARTS.index("body")
FIELDS = ("odd", "body")
"""Parts of which more is kept."""
KINDS = (*FIELDS, "apart")
"""Kinds of tokens: of odd rows, of the bodies of others, and of all their other parts."""
LOGP_RANGE = (-60.0, -1e-5)
X_RANGE = (float(np.log(1e-6)), float(np.log(60)))
FARTHEST = 9.0
"""|u| and |v| of tokens that are inside."""
SURPRISE_EDGES = (
    *(-9.0, -7.0, -5.5, -4.5, -3.75, -3.0, -2.5, -2.0, -1.5, -1.0, -0.5, 0.0),
    *(0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.75, 4.5, 5.5, 7.0, 9.0),
)
"""Edges of the bins of u: 22 between them, then below, above, and b = 0."""
N_SURPRISE = len(SURPRISE_EDGES) + 2
BELOW, ABOVE, CERTAIN = range(len(SURPRISE_EDGES) - 1, N_SURPRISE)
"""The bins of u below all edges, above them, and of b = 0 exactly."""
TOKEN_SUMS = ("n", "n_inside", "l", "l2", "k3", "e2", "u", "d", "u2", "ud", "d2")
"""Sums over tokens by bin of u: of all, and, of u and d, of those inside."""
SPREAD_LEAST, SPREAD_FACTOR, SPREAD_STEPS = 1e-3, 1.15, 72
"""Bins of d: |d| below the least stands for 0 (the middle bin), then this many a side, each wider by the factor."""
N_SPREAD = 2 * SPREAD_STEPS + 1
INDEX_EDGES = (0, 1, 2, 3, *sorted({f * 2**k for k in range(1, 22) for f in (2, 3)}))
"""Bins of the place in the row: 0 1 2 3 4 6 8 12 16 24 ..., the last open."""
PLACE_SUMS = ("n", "l2", "k3", "n_graded", "x", "x2", "n_far", "n_positive", "n_certain")
"""Sums over tokens of a place, x and x2 of graded ones; far: |l| > ln 2; positive: l > 0; certain: b = 0."""
CERTAIN_LEAST, CERTAIN_STEP, N_CERTAIN = float(np.log(1e-3)), 0.02, 560
"""Bins of ln(-a), the first for all that is smaller, the last open."""
ROW_SUMS = (
    *("rows", "positive", "differing", "positive2_by_differing"),
    *("n", "a", "a2", "s", "t", "s2", "t2", "st", "as", "at"),
)
"""Sums over rows that are not odd, of their body: P tokens with l > 0, V with l != 0, P^2 / V; and of those with an
advantage A (else reward), s = P / sqrt(V) and t = sqrt(V)."""
SIZE_LEAST, SIZE_STEP, N_SIZES = -14.0, 0.125, 146
SIZE_SUMS = ("rows", "tokens", "l2", "e2")
"""Of rows by y, the mean x of all their graded tokens: bins of y, and what is added up in each."""
LEVEL_SUMS = ("rows", "y", "y2", "l2", "e2")
"""Of a level's rows that are not odd: of those that have a y, and over the tokens of all."""
MOMENTS = ("held_rho_minus_1", "held_inverse_minus_1")
"""Sums of rho - 1 and of its inverse - 1, of l held to +-20."""
GAP_SUMS = ("n", "l2", "k3")
"""Of all tokens, whatever their part."""
TURNS = 16
"""Runs of the mask that are told apart, the last open."""
REPEAT_SUMS = ("n", "d", "d2")
PROMPT_BUCKETS, ID_BUCKETS = 16, 16_384
FIRST_BUCKETS = 256
"""Buckets of prompts by which first tokens are counted: a multiple of PROMPT_BUCKETS."""
GROUPS = 32
"""Groups of rows by hash, for the jackknife."""
LINES = ("u", "u_high", "u_low", "v", "v_high", "v_low")
"""Lines of d on u or v: over all inside tokens, those with it above 1, those with it below -1."""
LINE_SUMS = ("n", "x", "d", "x2", "d2", "xd")
HELD_RATIO = 2.0
"""What ln rho is held to in ODD_SUMS."""
ODD_SUMS = ("n", "rho", "rho2", "inverse", "inverse2")
"""Over tokens of odd rows: how many, min(rho, e^HELD_RATIO) and its square, and the same of 1 / rho."""
MOST_LEVELS = 256
"""A column of more levels is not looked at by level."""


@frozen(kw_only=True, eq=False)
class Levels:
    """Sums by the levels of one column.

    keys: L levels.  rows: f64[L, LEVEL_SUMS].  gap: f64[L, GROUPS, GAP_SUMS], by the jackknife's groups.  surprise:
    f64[L, N_SURPRISE], all tokens.  A column of more than MOST_LEVELS has none, and is `too_many`.
    """

    keys: tuple[Any, ...]
    rows: Floats
    gap: Floats
    surprise: Floats
    too_many: bool = False

    @classmethod
    def none(cls, *, too_many: bool = False) -> "Levels":
        """No level."""
        empty: dict[str, Any] = {name: np.zeros((0, *shape)) for name, shape in LEVEL_SHAPES.items()}
        return cls(keys=(), **empty, too_many=too_many)

    def __add__(self, other: "Levels") -> "Levels":
        keys = sorted({*self.keys, *other.keys}, key=order_of_keys)
        if self.too_many or other.too_many or len(keys) > MOST_LEVELS:
            return Levels.none(too_many=True)
        place = {key: i for i, key in enumerate(keys)}
        tables: dict[str, Any] = {name: np.zeros((len(keys), *shape)) for name, shape in LEVEL_SHAPES.items()}
        for levels in (self, other):
            at = [place[key] for key in levels.keys]
            for name, table in tables.items():
                table[at] += getattr(levels, name)
        return Levels(keys=tuple(keys), **tables)


def order_of_keys(key: Any) -> tuple[str, Any]:
    """By which levels of any types are in one order for every split: numbers by value, all else by its text."""
    is_number = isinstance(key, (int, float)) and not isinstance(key, bool)
    return ("", key) if is_number else (type(key).__name__, str(key))


LEVEL_SHAPES = {"rows": (len(LEVEL_SUMS),), "gap": (GROUPS, len(GAP_SUMS)), "surprise": (N_SURPRISE,)}


@frozen(kw_only=True, eq=False)
class Vocabulary:
    """Sums that take token ids, over inside body tokens.

    repeats: f64[N_SURPRISE, 2, REPEAT_SUMS], tokens met for the first time in their row and again (d held to +-5).
    by_id: f64[PROMPT_BUCKETS, ID_BUCKETS, 2], n and d (held to +-2) by prompt and by id.  spread: f64[REPEAT_SUMS], of
    all of these.
    """

    repeats: Floats = field(default_factory=partial(np.zeros, (N_SURPRISE, 2, len(REPEAT_SUMS))))
    by_id: Floats = field(default_factory=partial(np.zeros, (PROMPT_BUCKETS, ID_BUCKETS, 2)))
    spread: Floats = field(default_factory=partial(np.zeros, (len(REPEAT_SUMS),)))

    def __add__(self, other: "Vocabulary") -> "Vocabulary":
        return Vocabulary(
            repeats=self.repeats + other.repeats, by_id=self.by_id + other.by_id, spread=self.spread + other.spread
        )


@frozen(kw_only=True, eq=False)
class GapTotals:
    """See the module; each array's last axis is named by the table that its comment names.

    n_rows, n_odd: rows with a token, and odd ones.  tokens: f64[KINDS, N_SURPRISE, TOKEN_SUMS].  spread: f64[FIELDS,
    N_SURPRISE, N_SPREAD], counts.  places: f64[PARTS, PLACE_SUMS], and indexes: f64[INDEX_EDGES, PLACE_SUMS] of body
    tokens by their place in the row.  turns: f64[TURNS, GROUPS, GAP_SUMS] and turns_surprise: f64[TURNS, N_SURPRISE],
    all tokens by the run of the mask that they stand in.  surprise_gap: f64[N_SURPRISE, GROUPS, GAP_SUMS], all tokens.
    certain: f64[2, N_CERTAIN], counts of tokens of rows not odd by ln(-a), for b = 0 and b < 0.  largest_unsure: the
    largest b < 0 of these, -inf without one; both only where some token has b = 0.  firsts: f64[FIRST_BUCKETS, 2],
    first tokens by prompt, and those of them that are off by more than a factor of 2.  rows: f64[ROW_SUMS].  sizes:
    f64[N_SIZES, SIZE_SUMS].  columns: by name, `length` (octaves, as floor log2) among them.  vocabulary: None without
    token ids.  moments: f64[FIELDS, GROUPS, 2], sums of rho - 1 and its inverse - 1;
    curves: f64[FIELDS, GROUPS, N_SURPRISE, 3], n, l, l2; lines: f64[FIELDS, GROUPS, LINES, LINE_SUMS].  odd:
    f64[ODD_SUMS].
    """

    n_rows: int = 0
    n_odd: int = 0
    tokens: Floats = field(default_factory=partial(np.zeros, (len(KINDS), N_SURPRISE, len(TOKEN_SUMS))))
    spread: Floats = field(default_factory=partial(np.zeros, (len(FIELDS), N_SURPRISE, N_SPREAD)))
    places: Floats = field(default_factory=partial(np.zeros, (len(PARTS), len(PLACE_SUMS))))
    indexes: Floats = field(default_factory=partial(np.zeros, (len(INDEX_EDGES), len(PLACE_SUMS))))
    turns: Floats = field(default_factory=partial(np.zeros, (TURNS, GROUPS, len(GAP_SUMS))))
    turns_surprise: Floats = field(default_factory=partial(np.zeros, (TURNS, N_SURPRISE)))
    surprise_gap: Floats = field(default_factory=partial(np.zeros, (N_SURPRISE, GROUPS, len(GAP_SUMS))))
    certain: Floats = field(default_factory=partial(np.zeros, (2, N_CERTAIN)))
    largest_unsure: float = float("-inf")
    firsts: Floats = field(default_factory=partial(np.zeros, (FIRST_BUCKETS, 2)))
    rows: Floats = field(default_factory=partial(np.zeros, (len(ROW_SUMS),)))
    sizes: Floats = field(default_factory=partial(np.zeros, (N_SIZES, len(SIZE_SUMS))))
    columns: Mapping[str, Levels] = field(default_factory=dict[str, Levels])
    vocabulary: Vocabulary | None = None
    moments: Floats = field(default_factory=partial(np.zeros, (len(FIELDS), GROUPS, 2)))
    curves: Floats = field(default_factory=partial(np.zeros, (len(FIELDS), GROUPS, N_SURPRISE, 3)))
    lines: Floats = field(default_factory=partial(np.zeros, (len(FIELDS), GROUPS, len(LINES), len(LINE_SUMS))))
    odd: Floats = field(default_factory=partial(np.zeros, (len(ODD_SUMS),)))

    def __add__(self, other: "GapTotals") -> "GapTotals":
        names = dict.fromkeys((*self.columns, *other.columns))
        columns = {
            name: self.columns.get(name, Levels.none()) + other.columns.get(name, Levels.none()) for name in names
        }
        vocabularies = [each for each in (self.vocabulary, other.vocabulary) if each is not None]
        sums = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self) if f.name not in _APART}
        return replace(
            self,
            **sums,
            largest_unsure=max(self.largest_unsure, other.largest_unsure),
            columns=columns,
            vocabulary=sum(vocabularies[1:], vocabularies[0]) if vocabularies else None,
        )

    def sums(self, *kinds: str) -> Mapping[str, Floats]:
        """TOKEN_SUMS by name over some kinds (all without a name), by bin of u: f64[N_SURPRISE] each."""
        table = self.tokens[[KINDS.index(kind) for kind in kinds or KINDS]].sum(axis=0)
        return dict(zip(TOKEN_SUMS, table.T, strict=True))


_APART = frozenset({"largest_unsure", "columns", "vocabulary"})
