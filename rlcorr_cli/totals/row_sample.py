"""A sample of a dump's rows, the same rows however the dump is split: in it the cause of a gap is sought.

A row has a key, a hash of how its log-probs begin, of its length and of its id.  Level 0 takes every row, and level L
those whose key is at most 2^64 * 2^(-L / 16), so that each level holds 4% fewer than the one before it.  While rows are
read, they are kept at the lowest level at which they hold `most` valid tokens at most (of masked ones: MASKED; of short
rows: SHORT).  Two samples add to the one that a single reading of both would have taken, because a part never needs a
higher level than the whole.  So the sample of a large dump holds nearly `most` tokens, and depends on no split, order,
encoding, engine or saved part.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.frozen import frozen
from rlcorr_cli.places import Place, Unit
from rlcorr_cli.totals.flat import Ints, picker, starts_of
from rlcorr_cli.totals.row_keys import Keys

MOST_TOKENS = 550_000
"""Valid tokens of a sample, unless another number is asked for."""
MASKED = 32
"""A row counts for its valid tokens, or for one in so many of all its tokens where that is more: something is kept of
masked tokens, too, which would fill the memory where hardly one is valid."""
SHORT = 4
"""A row counts for so many tokens at least: what is kept beside them, its keys and where it stands, takes as much."""
WAITING, PART = 2, 1000
"""So many whole samples may wait to be joined; a part counts for so many tokens besides its own."""
LEVELS = 16
"""How many levels up a sample holds half as many rows."""
MOST_LEVEL = 64 * LEVELS
TURN = "turn"
ARRAY = "array"
"""The key of a field's metadata that says what array it is."""
Of = Literal["rows", "valid tokens", "tokens", "bytes of names"]
"""What an array of a sample has a value for each of."""


@frozen(kw_only=True, eq=False)
class ColumnOfKeys:
    """A column of R rows (worker, step): the code of each row, i64[R], and the values that codes stand for."""

    codes: Ints
    values: tuple[Any, ...]

    @classmethod
    def of(cls, codes: Ints, values: Sequence[Any]) -> "ColumnOfKeys":
        """A column whose codes may stand for one value several times."""
        code = {value: i for i, value in enumerate(dict.fromkeys(values))}
        return cls(codes=np.array([code[value] for value in values], np.int64)[codes], values=tuple(code))

    def check_unpacked(self) -> None:
        """A ValueError of a code without a value, and of a value that no column of keys holds."""
        if self.codes.ndim != 1 or self.codes.dtype != np.int64:
            raise ValueError("codes of a column are numbers of its values")
        if not all(value is None or isinstance(value, (str, int, float)) for value in self.values):
            raise ValueError("a column of a sample holds no such values")
        if len(self.codes) and not 0 <= self.codes.min() <= self.codes.max() < len(self.values):
            raise ValueError("a code of a column stands for no value")

    @property
    def numbers(self) -> NDArray[np.float64]:
        """What each code stands for, NaN of what is no number: f64."""
        is_number = [isinstance(value, int | float) and not isinstance(value, bool) for value in self.values]
        return np.array([v if known else np.nan for v, known in zip(self.values, is_number, strict=True)], np.float64)

    def rows(self, at: Ints) -> "ColumnOfKeys":
        """These rows, and no more values than they have."""
        used, codes = np.unique(self.codes[at], return_inverse=True)
        return ColumnOfKeys(codes=codes.astype(np.int64), values=tuple(self.values[code] for code in used.tolist()))


@frozen
class _Array:
    """What an array of a RowSample holds; types, fill: as of `_array`."""

    of: Of
    types: tuple[Any, ...]
    fill: Any


def _array(of: Of, *types: Any, fill: Any = None) -> Any:
    """A field of an array with a value for each row, token or byte, in one of these types; empty unless it is given.

    fill: what stands for the tokens of a part that has no such array, beside one that has; with it the field may be
    None, and is unless it is given.
    """
    metadata = {ARRAY: _Array(of, types, fill)}
    if fill is not None:
        return field(default=None, metadata=metadata)
    return field(default_factory=partial(np.zeros, 0, types[0]), metadata=metadata)


@frozen(kw_only=True, eq=False)
class RowSample:
    """R rows with V valid tokens among T, none of them empty.

    most: how many valid tokens it may hold.  level: see the module.  columns: what the dump calls the rollout's
    log-probs, those that are compared with them, and the advantages or rewards (None without either).  legs: the names
    of three policies' log-probs, from the rollout's to the last, where there are three.

    Of rows: keys, u64[R]; n_valid and n_tokens, i64[R], valid tokens and all of them; ids, prompts, u64[R], hashes of a
    row's own id and of its prompt, 0 of an unknown one; advantages, f64[R], NaN of none; levels, by column; groups, the
    columns that rows are grouped by; n_name, i64[R], the bytes of its id as text; files, i64[R], into paths and units;
    numbers, starts, i64[R], as of a Place.

    Of valid tokens: rollout and train, log-probs as stored, [V]; third, those of the policy of `legs` that is neither,
    NaN where it has none, None of two policies; unscored, bool[V], tokens without a rollout log-prob,
    None where there are none.  Of all tokens: valid, bool[T], None where all are; token_ids, i64[T], -1 of an unknown
    one, None where no row has any; kept_sizes, versions, the same of how many tokens each was chosen among, and of the
    weights that sampled it; head_tv, head_kl, f64[T], the distances of recorded heads, and kept_by_rollout,
    kept_by_train, f64[T], the log of what each policy gives to the tokens that each was chosen among, NaN where there
    are none.
    names: u8, the ids as UTF-8, one after the other.
    """

    most: int = MOST_TOKENS
    level: int = 0
    columns: tuple[str, str, str | None] = ("rollout_log_probs", "old_log_probs", None)
    legs: tuple[str, ...] = ()
    keys: Keys = _array("rows", np.uint64)
    n_valid: Ints = _array("rows", np.int64)
    n_tokens: Ints = _array("rows", np.int64)
    ids: Keys = _array("rows", np.uint64)
    prompts: Keys = _array("rows", np.uint64)
    advantages: NDArray[np.float64] = _array("rows", np.float64)
    n_name: Ints = _array("rows", np.int64)
    files: Ints = _array("rows", np.int64)
    numbers: Ints = _array("rows", np.int64)
    starts: Ints = _array("rows", np.int64)
    levels: Mapping[str, ColumnOfKeys] = field(default_factory=dict[str, ColumnOfKeys])
    groups: Mapping[str, ColumnOfKeys] = field(default_factory=dict[str, ColumnOfKeys])
    rollout: NDArray[Any] = _array("valid tokens", np.float32, np.float64)
    train: NDArray[Any] = _array("valid tokens", np.float32, np.float64)
    third: NDArray[Any] | None = _array("valid tokens", np.float32, np.float64, fill=np.nan)
    unscored: NDArray[np.bool_] | None = _array("valid tokens", np.bool_, fill=False)
    valid: NDArray[np.bool_] | None = _array("tokens", np.bool_, fill=True)
    token_ids: Ints | None = _array("tokens", np.int64, fill=-1)
    kept_sizes: Ints | None = _array("tokens", np.int64, fill=-1)
    kept_by_rollout: NDArray[np.float64] | None = _array("tokens", np.float64, fill=np.nan)
    kept_by_train: NDArray[np.float64] | None = _array("tokens", np.float64, fill=np.nan)
    versions: Ints | None = _array("tokens", np.int64, fill=-1)
    head_tv: NDArray[np.float64] | None = _array("tokens", np.float64, fill=np.nan)
    head_kl: NDArray[np.float64] | None = _array("tokens", np.float64, fill=np.nan)
    names: NDArray[np.uint8] = _array("bytes of names", np.uint8)
    paths: tuple[str, ...] = ()
    units: tuple[Unit, ...] = ()

    def check_unpacked(self) -> None:
        """A ValueError of arrays that do not belong to the same rows and tokens, or hold what no dump does."""
        if self.most < 1 or not 0 <= self.level <= MOST_LEVEL:
            raise ValueError("a sample has no such size or level")
        for name, array in ARRAYS.items():
            values = getattr(self, name)
            if values is not None and (values.ndim != 1 or values.dtype not in array.types):
                raise ValueError(f"{name} of a sample of rows are of another type")
        n_rows, lengths = len(self.keys), (self.n_valid, self.n_tokens, self.n_name)
        if any(len(each) != n_rows or ((each < 0) | (each >= 1 << 40)).any() for each in lengths):
            raise ValueError("rows of a sample have no such numbers of tokens")
        if (self.n_valid == 0).any() or (self.n_valid > self.n_tokens).any():
            raise ValueError("a row of a sample has too few tokens")
        sizes = {"rows": n_rows, "valid tokens": int(self.n_valid.sum()), "tokens": int(self.n_tokens.sum())}
        sizes["bytes of names"] = int(self.n_name.sum())
        arrays = ((getattr(self, name), array.of) for name, array in ARRAYS.items())
        if any(values is not None and len(values) != sizes[of] for values, of in arrays):
            raise ValueError("a sample has other numbers of values than of rows and tokens")
        if any(len(column.codes) != n_rows for column in (*self.levels.values(), *self.groups.values())):
            raise ValueError("a column of a sample has another number of rows")
        if not all(np.isfinite(logp).all() and (logp <= 1e-6).all() for logp in (self.rollout, self.train)):
            raise ValueError("a sample holds what is no log-prob")
        if (self.third is not None and not (self.third[~np.isnan(self.third)] <= 1e-6).all()) or (
            len(self.legs) != (0 if self.third is None else 3)
        ):
            raise ValueError("a sample holds no third policy")
        if len(self.paths) != len(self.units) or (
            n_rows and not 0 <= self.files.min() <= self.files.max() < len(self.paths)
        ):
            raise ValueError("a row of a sample is of no file")
        if self.valid is not None and n_rows:
            n_valid = np.add.reduceat(self.valid, starts_of(self.n_tokens), dtype=np.int64)
            if (n_valid != self.n_valid).any():
                raise ValueError("valid tokens of a sample are not as many as its log-probs")

    @property
    def is_valid(self) -> NDArray[np.bool_]:
        """Which of all its tokens are valid: bool[T]."""
        return np.ones(int(self.n_tokens.sum()), np.bool_) if self.valid is None else self.valid

    def rows(self, at: Ints) -> "RowSample":
        """These rows, in order."""
        return _joined([(self, at)])

    def tokens(self, kept: NDArray[np.bool_]) -> "RowSample":
        """These of its valid tokens, bool[V]: the others are masked, and rows without any left out."""
        valid = self.is_valid.copy()
        valid[valid] = kept
        n_valid = np.add.reduceat(valid, starts_of(self.n_tokens), dtype=np.int64)
        arrays = ((name, getattr(self, name)) for name, array in ARRAYS.items() if array.of == "valid tokens")
        of_valid = {name: values[kept] for name, values in arrays if values is not None}
        return replace(self, valid=valid, n_valid=n_valid, **of_valid).rows(np.flatnonzero(n_valid))

    def with_tokens_in(self, order: Ints) -> "RowSample":
        """Its valid tokens alone, in another order.  order: i64[V], places among the valid ones; where tokens change
        rows by it, `parted` makes rows of them anew."""
        valid = self.is_valid
        arrays = ((name, array.of, getattr(self, name)) for name, array in ARRAYS.items())
        moved = {
            name: (values[valid] if of == "tokens" else values)[order]
            for name, of, values in arrays
            if of in ("tokens", "valid tokens") and values is not None
        }
        return replace(self, **{**moved, "valid": None}, n_tokens=self.n_valid)

    @cached_property
    def by_turn(self) -> "RowSample":
        """Each of its turns, runs of valid tokens, as a row, with TURN among the levels, from 1 on; what is masked
        belongs to the turn before it, and to the first one of its row."""
        if not self.n_rows:
            return self
        starts = starts_of(self.n_tokens)
        valid = self.is_valid
        begins = valid & ~np.concatenate([[False], valid[:-1]])
        begins[starts] = valid[starts]
        n_turns = np.add.reduceat(begins, starts, dtype=np.int64)
        first, at = starts_of(n_turns), np.flatnonzero(begins)
        at[first] = starts
        row = np.repeat(np.arange(self.n_rows), n_turns)
        turn = ColumnOfKeys(codes=np.arange(len(at)) - first[row], values=tuple(range(1, int(n_turns.max()) + 1)))
        return self.parted(at, row, {TURN: turn})

    def parted(self, at: Ints, row: Ints, levels: Mapping[str, ColumnOfKeys]) -> "RowSample":
        """Each part of a row as a row.  at: where each begins among all tokens, the first of a row at its start; row:
        whose it is; levels: of the parts, beside those of their rows.  Every part has a valid token."""
        valid = self.is_valid
        of_rows = {name: getattr(self, name)[row] for name, array in ARRAYS.items() if array.of == "rows"}
        of_rows |= {"n_tokens": np.diff(at, append=len(valid)), "n_valid": np.add.reduceat(valid, at, dtype=np.int64)}
        columns = {name: column.rows(row) for name, column in self.levels.items()}
        names = np.concatenate(picker(starts_of(self.n_name)[row], self.n_name[row])(self.names))
        groups = {name: column.rows(row) for name, column in self.groups.items()}
        return replace(self, **of_rows, names=names, levels={**columns, **levels}, groups=groups)

    @cached_property
    def scored(self) -> NDArray[Any]:
        """The rollout's log-probs, and training's of tokens without one: [V]."""
        return self.rollout if self.unscored is None else np.where(self.unscored, self.train, self.rollout)

    @property
    def ordered(self) -> "RowSample":
        """The same rows by their keys, in the order that no split changes."""
        return self.rows(np.lexsort((self.n_tokens, self.ids, self.keys)))

    def __add__(self, other: "RowSample") -> "RowSample":
        """The sample of both, as one reading would have taken it; a ValueError of samples of two sizes."""
        return sample_of((self, other))

    @property
    def n_rows(self) -> int:
        """R."""
        return len(self.keys)

    @property
    def n_valid_tokens(self) -> int:
        """V."""
        return len(self.rollout)

    def place(self, row: int) -> Place:
        """Where a row stands."""
        file = int(self.files[row])
        return Place(self.paths[file], self.units[file], int(self.numbers[row]), int(self.starts[row]))

    def name(self, row: int) -> str | None:
        """A row's id as text; None of a row without one."""
        end = int(self.n_name[: row + 1].sum())
        return (
            self.names[end - int(self.n_name[row]) : end].tobytes().decode(errors="replace")
            if self.n_name[row]
            else None
        )

    def groups_of(self, columns: Sequence[str]) -> dict[tuple[Any, ...], Ints]:
        """The rows of each group by some of the columns that rows are grouped by."""
        if not self.n_rows:
            return {}
        codes = np.stack([self.groups[name].codes for name in columns], axis=-1)
        distinct, group = np.unique(codes, axis=0, return_inverse=True)
        keys = [
            tuple(self.groups[name].values[code] for name, code in zip(columns, row, strict=True))
            for row in distinct.tolist()
        ]
        return {key: np.flatnonzero(group.ravel() == i) for i, key in enumerate(keys)}


ARRAYS: Mapping[str, _Array] = {each.name: each.metadata[ARRAY] for each in fields(RowSample) if each.metadata}
"""Name -> each array."""


def highest_levels(keys: Keys) -> Ints:
    """The highest level whose sample holds a row, by its key: LEVELS * (64 - log2 key), rounded down."""
    return (LEVELS * (64 - np.log2(np.maximum(keys, 1).astype(np.float64)))).astype(np.int64)


def tokens_by_level(sample: RowSample) -> NDArray[np.float64]:
    """What the rows of each highest level count for: f64[MOST_LEVEL + 1]."""
    return _by_level(highest_levels(sample.keys), sample.n_valid, sample.n_tokens)


def _by_level(levels: Ints, n_valid: Ints, n_tokens: Ints) -> NDArray[np.float64]:
    counted = np.maximum(np.maximum(n_valid, n_tokens // MASKED), SHORT)
    return np.bincount(levels, counted, MOST_LEVEL + 1).astype(np.float64)


def level_of(tokens: NDArray[np.float64], level: int, most: int) -> int:
    """The lowest level, from `level` on, whose rows count for `most` tokens at most.  tokens: of tokens_by_level."""
    n_from = tokens[::-1].cumsum()[::-1]
    return min(MOST_LEVEL, level + int((n_from[level:] > most).sum()))


def sample_of(parts: Sequence[RowSample]) -> RowSample:
    """The sample of the rows of one part or more, as one reading would have taken it; a ValueError of samples of two
    sizes."""
    first = parts[0]
    if any(part.most != first.most for part in parts):
        raise ValueError("samples of different sizes do not add")
    tokens = np.sum([tokens_by_level(part) for part in parts], axis=0)
    level = level_of(tokens, max(part.level for part in parts), first.most)
    chosen = [(part, np.flatnonzero(highest_levels(part.keys) >= level)) for part in parts]
    part, at = max(chosen, key=lambda each: len(each[1]))
    filled = [each for each in chosen if len(each[1])] or [(part, at)]
    is_whole = len(filled) == 1 and len(at) == part.n_rows
    return replace(part if is_whole else _joined(filled), level=level)


@dataclass(kw_only=True)
class SampleSum:
    """The sum of many samples, added one at a time.

    What was added waits until it is as much as the sum so far, and WAITING whole samples, because joining copies all
    rows and lists all files.  level: that of the sum, whether or not all of it is joined: no row below it will stay.
    """

    level: int = 0
    _sum: RowSample | None = None
    _waiting: list[RowSample] = field(default_factory=list[RowSample])
    _weight: int = 0
    _tokens: NDArray[np.float64] = field(default_factory=partial(np.zeros, MOST_LEVEL + 1))

    def add(self, part: RowSample) -> None:
        """Add one more."""
        self._waiting.append(part)
        self._weight += _weight(part)
        self._tokens += tokens_by_level(part)
        self.level = level_of(self._tokens, max(self.level, part.level), part.most)
        if self._weight >= max(WAITING * part.most, 0 if self._sum is None else _weight(self._sum)):
            self._join()

    def level_with(self, levels: Ints, n_valid: Ints, n_tokens: Ints, most: int) -> int:
        """The level that it would have with further rows, by the highest level, valid tokens and tokens of each."""
        return level_of(self._tokens + _by_level(levels, n_valid, n_tokens), self.level, most)

    @property
    def sample(self) -> RowSample | None:
        """The sum so far; None of none."""
        self._join()
        return self._sum

    def _join(self) -> None:
        parts = [*([] if self._sum is None else [self._sum]), *self._waiting]
        if self._waiting:
            self._sum, self._waiting, self._weight = sample_of(parts), [], 0


def _weight(sample: RowSample) -> int:
    """What it takes to hold it apart or to join it, in tokens: these, its rows and files, and its arrays' own."""
    return sample.n_valid_tokens + sample.n_rows + len(sample.paths) + PART


def _joined(parts: Sequence[tuple[RowSample, Ints]]) -> RowSample:
    """Some rows of each part, in their order: each value is copied once."""
    files = dict.fromkeys(file for part, _ in parts for file in zip(part.paths, part.units, strict=True))
    place, first = {file: i for i, file in enumerate(files)}, parts[0][0]
    present = [name for name in ARRAYS if any(getattr(part, name) is not None for part, _ in parts)]
    arrays: dict[str, list[Any]] = {name: [] for name in present}
    for part, at in parts:
        lengths = {"valid tokens": part.n_valid, "tokens": part.n_tokens, "bytes of names": part.n_name}
        pick = {of: picker(starts_of(n)[at], n[at]) for of, n in lengths.items()}
        pick["rows"] = lambda values, at=at: [values[at]]
        for name in present:
            array, values = ARRAYS[name], getattr(part, name)
            if values is not None:
                arrays[name] += pick[array.of](values)
            else:
                arrays[name].append(np.full(int(lengths[array.of][at].sum()), array.fill))
        files_of_part = np.array([place[file] for file in zip(part.paths, part.units, strict=True)], np.int64)
        arrays["files"][-1] = files_of_part[arrays["files"][-1]]
    joined: dict[str, Any] = {name: np.concatenate(values) for name, values in arrays.items()}
    return replace(
        first,
        **joined,
        levels=_joined_columns([(part.levels, at) for part, at in parts]),
        groups=_joined_columns([(part.groups, at) for part, at in parts]),
        paths=tuple(path for path, _ in files),
        units=tuple(unit for _, unit in files),
    )


def _joined_columns(parts: Sequence[tuple[Mapping[str, ColumnOfKeys], Ints]]) -> dict[str, ColumnOfKeys]:
    """Columns of some rows of all parts; a row of a part that lacks a column has None there."""
    joined: dict[str, ColumnOfKeys] = {}
    for name in dict.fromkeys(name for columns, _ in parts for name in columns):
        columns = [
            columns[name].rows(at) if name in columns else ColumnOfKeys(codes=np.zeros_like(at), values=(None,))
            for columns, at in parts
        ]
        code = {value: i for i, value in enumerate(dict.fromkeys(v for column in columns for v in column.values))}
        codes = [np.array([code[value] for value in column.values], np.int64)[column.codes] for column in columns]
        joined[name] = ColumnOfKeys(codes=np.concatenate(codes), values=tuple(code))
    return joined
