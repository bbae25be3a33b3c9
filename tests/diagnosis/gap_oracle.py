"""A slow oracle of GapTotals: rows one by one, written from the definitions in rlcorr_cli/causes/gap.py."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from rlcorr_cli.causes.gap import (
    ABOVE,
    BELOW,
    CERTAIN,
    CERTAIN_LEAST,
    CERTAIN_STEP,
    FARTHEST,
    FIELDS,
    GAP_SUMS,
    GROUPS,
    ID_BUCKETS,
    INDEX_EDGES,
    KINDS,
    LEVEL_SHAPES,
    LINE_SUMS,
    LINES,
    LOGP_RANGE,
    N_CERTAIN,
    N_SIZES,
    N_SPREAD,
    PARTS,
    PROMPT_BUCKETS,
    REPEAT_SUMS,
    SIZE_LEAST,
    SIZE_STEP,
    SPREAD_FACTOR,
    SPREAD_LEAST,
    SPREAD_STEPS,
    SURPRISE_EDGES,
    TURNS,
    X_RANGE,
    GapTotals,
    Levels,
    Vocabulary,
)
from rlcorr_cli.totals.row_sample import ColumnOfKeys, RowSample

ROLLOUT, TRAIN = "rollout_log_probs", "old_log_probs"
NOT_LEVELS = {"sample_id", "token_ids", "response_mask", ROLLOUT, TRAIN, "reward", "advantage"}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row as a dump has it: b and a of all its tokens, and what stands beside them."""

    rollout: Sequence[float]
    train: Sequence[float]
    mask: Sequence[int] | None = None
    ids: Sequence[int] | None = None
    advantage: float | None = None
    key: int = 0
    prompt: int | None = None
    name: str = ""
    number: int = 0
    levels: Mapping[str, Any] = field(default_factory=dict)


def rows_of(path: Path) -> list[Row]:
    """The rows of a canonical dump; every other column is one of levels, and step - policy_version is the lag."""
    rows = []
    for i, record in enumerate(pq.read_table(path).to_pylist()):
        levels = {name: record[name] for name in record if name not in NOT_LEVELS}
        if "step" in levels and "policy_version" in levels:
            levels["lag"] = levels["step"] - levels["policy_version"]
        advantage = record.get("advantage", record.get("reward"))
        row = Row(
            rollout=record[ROLLOUT],
            train=record[TRAIN],
            mask=record.get("response_mask"),
            ids=record.get("token_ids"),
            advantage=advantage,
            key=hashed(i),
            prompt=hashed(record["group_id"]) if "group_id" in record else None,
            name=record.get("sample_id", str(i)),
            number=i,
            levels=levels,
        )
        rows.append(row)
    return rows


def hashed(value: Any) -> int:
    """A u64 of a value."""
    return int.from_bytes(hashlib.blake2b(repr(value).encode(), digest_size=8).digest(), "little")


def sample_of(rows: Sequence[Row]) -> RowSample:
    """The rows with a valid token, as a search has them."""
    masks = [np.ones(len(row.rollout), np.bool_) if row.mask is None else np.array(row.mask, np.bool_) for row in rows]
    rows, masks = [row for row, mask in zip(rows, masks, strict=True) if mask.any()], [m for m in masks if m.any()]
    if not rows:
        return RowSample()
    n, names = len(rows), [row.name.encode() for row in rows]
    of_rows = {name: [row.levels[name] for row in rows] for name in rows[0].levels}
    has_ids, has_advantage = rows[0].ids is not None, rows[0].advantage is not None
    return RowSample(
        columns=(ROLLOUT, TRAIN, "advantage" if has_advantage else None),
        keys=np.array([hashed(row.key) for row in rows], np.uint64),
        n_valid=np.array([mask.sum() for mask in masks]),
        n_tokens=np.array([len(mask) for mask in masks]),
        ids=np.array([row.key + 1 for row in rows], np.uint64),
        prompts=np.array([0 if row.prompt is None else hashed(row.prompt) for row in rows], np.uint64),
        advantages=np.array([row.advantage if has_advantage else np.nan for row in rows], np.float64),
        n_name=np.array([len(name) for name in names]),
        files=np.zeros(n, np.int64),
        numbers=np.array([row.number for row in rows]),
        starts=np.zeros(n, np.int64),
        levels={name: ColumnOfKeys.of(np.arange(n), values) for name, values in of_rows.items()},
        rollout=np.concatenate([np.array(r.rollout, np.float64)[mask] for r, mask in zip(rows, masks, strict=True)]),
        train=np.concatenate([np.array(r.train, np.float64)[mask] for r, mask in zip(rows, masks, strict=True)]),
        valid=np.concatenate(masks),
        token_ids=np.concatenate([np.array(row.ids, np.int64) for row in rows]) if has_ids else None,
        names=np.frombuffer(b"".join(names), np.uint8),
        paths=("dump.parquet",),
        units=("row",),
    )


def totals_of(rows: Sequence[Row]) -> GapTotals:
    """Of rows, each added to those before it."""
    total = GapTotals()
    for row in rows:
        total = total + of_row(row)
    return total


def of_row(row: Row) -> GapTotals:
    """Of a single row."""
    valid = np.flatnonzero(np.ones(len(row.rollout)) if row.mask is None else np.asarray(row.mask))
    if len(valid) == 0:
        return GapTotals(vocabulary=None if row.ids is None else Vocabulary())
    t = Tokens(np.asarray(row.rollout, np.float64)[valid], np.asarray(row.train, np.float64)[valid])
    part = parts_by_place(valid)
    is_body = part == PARTS.index("body")
    y = float(t.x[t.graded].mean()) if t.graded.any() else None
    odd = is_odd(t, is_body)
    if odd:
        part = np.full(len(valid), PARTS.index("odd"))
    group, kinds = row.key % GROUPS, np.array([KINDS.index(name if name in FIELDS else "apart") for name in PARTS])
    chosen = part == (PARTS.index("odd") if odd else PARTS.index("body"))
    return GapTotals(
        n_rows=1,
        n_odd=int(odd),
        tokens=table(t.sums(), (kinds[part], len(KINDS)), (t.bin, CERTAIN + 1)),
        spread=_spread(t, chosen, odd),
        places=table(t.place_sums(), (part, len(PARTS))),
        indexes=_indexes(t, valid, is_body & (not odd)),
        turns=_turns(t, valid, group),
        turns_surprise=table(np.ones((len(valid), 1)), (_runs(valid), TURNS), (t.bin, CERTAIN + 1))[:, :, 0],
        surprise_gap=table(t.gap_sums(), (t.bin, CERTAIN + 1), (np.full(len(valid), group), GROUPS)),
        certain=_certain(t) if not odd else np.zeros((2, N_CERTAIN)),
        largest_unsure=float(max(t.b[t.b < 0], default=-np.inf)) if not odd else -np.inf,
        rows=_row_sums(row, t, is_body) if not odd else np.zeros(14),
        sizes=_sizes(t, y) if not odd else np.zeros((N_SIZES, 4)),
        columns=_columns(row, t, y, odd, group),
        vocabulary=None if row.ids is None else _vocabulary(row, t, valid, is_body & (not odd)),
        moments=_at(odd, group, np.array([np.expm1(held[chosen]).sum() for held in (t.held, -t.held)])),
        curves=_at(odd, group, table(t.sums()[:, [0, 2, 3]][chosen], (t.bin[chosen], CERTAIN + 1))),
        lines=_at(odd, group, _lines(t, chosen)),
        odd=_odd_sums(t) if odd else np.zeros(5),
    )


def odd_and_far(row: Row) -> tuple[float, float]:
    """The sum of l^2 of an odd row, and y of any other; NaN of a row that is none."""
    valid = np.flatnonzero(np.ones(len(row.rollout)) if row.mask is None else np.asarray(row.mask))
    t = Tokens(np.asarray(row.rollout, np.float64)[valid], np.asarray(row.train, np.float64)[valid])
    if is_odd(t, parts_by_place(valid) == PARTS.index("body")):
        return float((t.l**2).sum()), np.nan
    return np.nan, float(t.x[t.graded].mean()) if t.graded.any() else np.nan


class Tokens:
    """The quantities of the valid tokens of a row, named as in the module of GapTotals."""

    def __init__(self, b: np.ndarray, a: np.ndarray) -> None:
        self.b, self.a, self.l = b, a, a - b
        p, q = np.exp(b), np.exp(a)
        self.e = 1 - np.minimum(p, q)
        with np.errstate(divide="ignore"):
            self.x = np.clip(np.log(np.abs(self.l) / np.maximum(self.e, 1e-5)), *X_RANGE)
        self.u, self.v = (held - np.log(-np.expm1(held)) for held in (np.clip(c, *LOGP_RANGE) for c in (b, a)))
        self.d = self.v - self.u
        self.inside = (b < 0) & (np.abs(self.u) < FARTHEST) & (np.abs(self.v) < FARTHEST)
        self.graded = self.e > 1e-4
        self.bin = np.array([_surprise_bin(b_i, u_i) for b_i, u_i in zip(b, self.u, strict=True)])
        self.held = np.clip(self.l, -20, 20)
        self.k3 = np.expm1(np.clip(self.l, -700, 700)) - self.l

    def sums(self) -> np.ndarray:
        """[V, TOKEN_SUMS]."""
        n, i = np.ones(len(self.l)), self.inside
        inside = [i * self.u, i * self.d, i * self.u**2, i * self.u * self.d, i * self.d**2]
        return np.stack([n, i, self.l, self.l**2, self.k3, self.e**2, *inside], axis=1).astype(np.float64)

    def place_sums(self) -> np.ndarray:
        """[V, PLACE_SUMS]."""
        n, g = np.ones(len(self.l)), self.graded
        far = np.abs(self.l) > np.log(2)
        sums = [n, self.l**2, self.k3, g, g * self.x, g * self.x**2, far, self.l > 0, self.b >= 0]
        return np.stack(sums, axis=1).astype(np.float64)

    def gap_sums(self) -> np.ndarray:
        """[V, GAP_SUMS]."""
        return np.stack([np.ones(len(self.l)), self.l**2, self.k3], axis=1)


def table(values: np.ndarray, *axes: tuple[np.ndarray, int]) -> np.ndarray:
    """Sums of values[V, K] at the places that each axis (its index by token, its length) names."""
    out = np.zeros((*(length for _, length in axes), values.shape[1]))
    np.add.at(out, tuple(index for index, _ in axes), values)  # one after another, as a loop would
    return out


def _surprise_bin(b: float, u: float) -> int:
    if b >= 0:
        return CERTAIN
    if u < SURPRISE_EDGES[0]:
        return BELOW
    if u >= SURPRISE_EDGES[-1]:
        return ABOVE
    return int(np.searchsorted(SURPRISE_EDGES, u, side="right")) - 1


def parts_by_place(valid: np.ndarray) -> np.ndarray:
    """Of a row that is not odd; valid: where its valid tokens stand."""
    parts = []
    since_gap = 99
    for place, position in enumerate(valid):
        since_gap = 0 if place and position != valid[place - 1] + 1 else since_gap + 1
        if place == 0:
            name = "first"
        elif place == len(valid) - 1:
            name = "last"
        elif since_gap == 0:
            name = "gap"
        elif since_gap <= 3:
            name = "after_gap"
        elif place <= 3:
            name = "early"
        else:
            name = "body"
        parts.append(PARTS.index(name))
    return np.array(parts)


def is_odd(t: Tokens, is_body: np.ndarray) -> bool:
    """Whether the two columns of a row do not belong to each other."""
    if is_body.sum() < 16 or not (is_body & t.graded).any():
        return False
    a, b = np.maximum(t.a[is_body], -8), np.maximum(t.b[is_body], -8)
    if min(a.std(), b.std()) <= 0.2:
        return False
    return bool(np.corrcoef(a, b)[0, 1] < 0.5 and t.x[is_body & t.graded].mean() > -1.5)


def _odd_sums(t: Tokens) -> np.ndarray:
    rho, inverse = (np.exp(np.minimum(side, 2)) for side in (t.l, -t.l))
    return np.array([len(t.l), rho.sum(), (rho**2).sum(), inverse.sum(), (inverse**2).sum()])


def _spread(t: Tokens, chosen: np.ndarray, odd: bool) -> np.ndarray:
    out = np.zeros((len(FIELDS), CERTAIN + 1, N_SPREAD))
    for u_bin, d in zip(t.bin[chosen & t.inside], t.d[chosen & t.inside], strict=True):
        step = 0
        if abs(d) >= SPREAD_LEAST:
            step = min(SPREAD_STEPS, 1 + int(np.log(abs(d) / SPREAD_LEAST) / np.log(SPREAD_FACTOR)))
        out[0 if odd else 1, u_bin, SPREAD_STEPS + int(np.sign(d)) * step] += 1
    return out


def _indexes(t: Tokens, valid: np.ndarray, body: np.ndarray) -> np.ndarray:
    index = np.searchsorted(INDEX_EDGES, valid - valid[0], side="right") - 1
    return table(t.place_sums()[body], (index[body], len(INDEX_EDGES)))


def _runs(valid: np.ndarray) -> np.ndarray:
    return np.minimum(np.cumsum(np.diff(valid, prepend=valid[0] - 1) > 1), TURNS - 1)


def _turns(t: Tokens, valid: np.ndarray, group: int) -> np.ndarray:
    return table(t.gap_sums(), (_runs(valid), TURNS), (np.full(len(valid), group), GROUPS))


def _certain(t: Tokens) -> np.ndarray:
    out = np.zeros((2, N_CERTAIN))
    for a, b in zip(t.a, t.b, strict=True):
        surprise = np.log(-a) if a < 0 else -np.inf
        k = 0 if surprise < CERTAIN_LEAST else 1 + int((surprise - CERTAIN_LEAST) / CERTAIN_STEP)
        out[0 if b >= 0 else 1, min(k, N_CERTAIN - 1)] += 1
    return out


def grid_of(column: np.ndarray) -> np.ndarray:
    """[GRID_SUMS]."""
    x = column[column != 0].astype(np.float32)
    size = np.abs(x).astype(np.float64)
    octave = np.floor(np.log2(size))
    near = [np.abs(size * 10**k - np.round(size * 10**k)) <= size * 10**k * 2.0**-23 for k in (2, 3, 4)]
    is_bf16 = x.view(np.uint32) & 0xFFFF == 0
    is_fp16 = x.astype(np.float16).astype(np.float32) == x
    squares = [((2.0 ** (octave - bits)) ** 2 / 12).sum() for bits in (7, 10)]
    return np.array([len(x), is_bf16.sum(), is_fp16.sum(), *(on.sum() for on in near), *squares], np.float64)


def _row_sums(row: Row, t: Tokens, body: np.ndarray) -> np.ndarray:
    positive, differing = float((t.l[body] > 0).sum()), float((t.l[body] != 0).sum())
    if not differing:
        return np.zeros(14)
    out = [1.0, positive, differing, positive**2 / differing] + [0.0] * 10
    if row.advantage is not None:
        a, s, t_ = row.advantage, positive / np.sqrt(differing), np.sqrt(differing)
        out[4:] = [1, a, a * a, s, t_, s * s, t_ * t_, s * t_, a * s, a * t_]
    return np.array(out)


def _sizes(t: Tokens, y: float | None) -> np.ndarray:
    out = np.zeros((N_SIZES, 4))
    if y is not None:
        k = int(np.clip((y - SIZE_LEAST) // SIZE_STEP, 0, N_SIZES - 1))
        out[k] = [1, len(t.l), (t.l**2).sum(), (t.e**2).sum()]
    return out


def _columns(row: Row, t: Tokens, y: float | None, odd: bool, group: int) -> dict[str, Levels]:
    rows = [0.0] * 3 if odd or y is None else [1.0, y, y * y]
    sums = [
        np.array([*rows, *((0.0, 0.0) if odd else ((t.l**2).sum(), (t.e**2).sum()))]),
        table(t.gap_sums(), (np.full(len(t.l), group), GROUPS)),
        table(np.ones((len(t.l), 1)), (t.bin, CERTAIN + 1))[:, 0],
    ]
    assert [part.shape for part in sums] == list(LEVEL_SHAPES.values())
    tables = {name: part[None] for name, part in zip(LEVEL_SHAPES, sums, strict=True)}
    levels = {**row.levels, "length": int(np.log2(len(t.l)))}
    return {name: Levels(keys=(level,), **tables) for name, level in levels.items()}


def _vocabulary(row: Row, t: Tokens, valid: np.ndarray, body: np.ndarray) -> Vocabulary:
    repeats = np.zeros((CERTAIN + 1, 2, len(REPEAT_SUMS)))
    by_id = np.zeros((PROMPT_BUCKETS, ID_BUCKETS, 2))
    spread = np.zeros(len(REPEAT_SUMS))
    bucket = (row.key if row.prompt is None else row.prompt) % PROMPT_BUCKETS
    assert row.ids is not None
    for i in np.flatnonzero(body & t.inside):
        again = row.ids[valid[i]] in list(row.ids[: valid[i]])
        d5, d2 = float(np.clip(t.d[i], -5, 5)), float(np.clip(t.d[i], -2, 2))
        repeats[t.bin[i], int(again)] += [1, d5, d5 * d5]
        by_id[bucket, row.ids[valid[i]] % ID_BUCKETS] += [1, d2]
        spread += [1, d2, d2 * d2]
    return Vocabulary(repeats=repeats, by_id=by_id, spread=spread)


def _lines(t: Tokens, chosen: np.ndarray) -> np.ndarray:
    out = np.zeros((len(LINES), len(LINE_SUMS)))
    for i, name in enumerate(LINES):
        x = t.u if name[0] == "u" else t.v
        on = chosen & t.inside & {"": x == x, "_high": x > 1, "_low": x < -1}[name[1:]]
        x, d = x[on], t.d[on]
        out[i] = [on.sum(), x.sum(), d.sum(), (x * x).sum(), (d * d).sum(), (x * d).sum()]
    return out


def _at(odd: bool, group: int, value: np.ndarray) -> np.ndarray:
    out = np.zeros((len(FIELDS), GROUPS, *value.shape))
    out[0 if odd else 1, group] = value
    return out


assert GAP_SUMS == ("n", "l2", "k3")
