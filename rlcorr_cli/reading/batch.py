"""The contract between io and measure: what is read in one step, and what is decided about it.

A Batch holds *valid* tokens only, flat, with offsets per row.  Reading drops the
masked ones, because the values must be checked after masking anyway (a NaN on a masked token is fine, on a valid token
it is an error that must name its file and row) and because fewer bytes then travel to a device.  So no formula carries
a mask and a mean is a mean.  Empty rows stay, with length 0.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.frozen import frozen
from rlcorr_cli.places import Stamp
from rlcorr_cli.records.fields import Form, Key
from rlcorr_cli.records.record import Record
from rlcorr_cli.totals.flat import Floats
from rlcorr_cli.totals.provenance import ShardId
from rlcorr_cli.totals.totals import GroupKey

Schema = Any
"""An Arrow schema, which only io looks into."""
Partition = Any
"""A container.Partition, which only readers look into; of no columns where the folders name none."""
Table = Any
"""A table of Arrow's, which only readers look into."""


class InMemory(str):
    """The name of a table that is in memory, and the table."""

    table: Table
    notes: tuple[str, ...]

    def __new__(cls, table: Table, notes: tuple[str, ...] = ()) -> "InMemory":
        """`table`: its columns are read where they lie.  notes: what its reader should know, in sentences."""
        name = super().__new__(cls, "<table in memory>")
        name.table, name.notes = table, notes
        return name


@frozen(kw_only=True)
class Unit:
    """Files that are read together.

    path: of the first.  format: of all.  n_bytes: what reading them costs.  stamp: which state of the first was found.
    companions: the others, such as the other ranks of a step, each with its state.
    """

    path: str
    format: str
    n_bytes: int
    stamp: Stamp | None = None
    companions: tuple[tuple[str, Stamp | None], ...] = ()

    @property
    def files(self) -> tuple[tuple[str, Stamp | None], ...]:
        """All that is read together, each with its state."""
        return ((self.path, self.stamp), *self.companions)


@frozen(kw_only=True)
class Shard(Unit):
    """A small description of work: one part of one input.

    index: its place in the dump's order.  part: Parquet row groups (first, past the last), or a byte range of a
    plain JSON-lines file; None is the whole file.
    schema: its needed columns, whole_schema: all that are made of it, partition: the columns that its folders name;
    only io looks into these.
    """

    index: int
    part: tuple[int, int] | None
    schema: Schema = None
    whole_schema: Schema = None
    partition: Partition = None

    @property
    def id(self) -> ShardId:
        """What totals that cover it call it."""
        return ShardId(self.path, self.part)


@frozen(kw_only=True)
class Batch:
    """B rows with V valid tokens together; checked once, by the reader.

    offsets: i64[B+1], starts at 0, ends at V.
    rollout_logp, old_logp, current_logp: the policies as the dump has them, f32 or f64 [V], finite, <= 1e-6, nats; old
    is the policy before updates, current the one after.  One of the two may be None; measure decides
    which are compared.
    advantages: f64[V], finite, where the plan looks at them, else None.  row_advantage: f64[B], the mean over each
    row's valid tokens, NaN of a row without, where nothing but means is told of them; else None.
    n_masked: i64[B], tokens the mask left out.  reward: f64[B], none where not finite; None without a reward column.
    group_index: i32[B], index into group_keys: which group each row belongs to.
    row_keys: u64[B], a hash of each row's own id, 0 of a row without one; None without a sample_id column.
    cluster_keys: u64[B], a hash of what a bootstrap draws together, 0 of a row without it; None where nothing but the
    rollout itself tells.
    unscored: bool[V], tokens without a rollout log-prob, on which the rollout policy is taken to agree with any that it
    is compared with; in its place rollout_logp holds another's.  None where there are none.
    rollout_keys: u64[B], a hash of the rollout that each row is a sample of, 0 of a row without one; None where nobody
    asks for rollouts.
    """

    offsets: NDArray[np.int64]
    rollout_logp: NDArray[Any]
    old_logp: NDArray[Any] | None
    current_logp: NDArray[Any] | None
    advantages: NDArray[np.float64] | None
    n_masked: NDArray[np.int64]
    reward: NDArray[np.float64] | None
    group_index: NDArray[np.int32]
    group_keys: tuple[GroupKey, ...]
    row_keys: NDArray[np.uint64] | None = None
    row_advantage: NDArray[np.float64] | None = None
    cluster_keys: NDArray[np.uint64] | None = None
    unscored: NDArray[np.bool_] | None = None
    rollout_keys: NDArray[np.uint64] | None = None

    def between(self, first: int, last: int) -> "Batch":
        """Rows `first` to `last - 1`; the same memory."""
        start, end = int(self.offsets[first]), int(self.offsets[last])
        of_tokens = ("rollout_logp", "old_logp", "current_logp", "advantages", "unscored")
        of_rows = ("n_masked", "reward", "group_index", "row_keys", "row_advantage", "cluster_keys", "rollout_keys")
        places = dict.fromkeys(of_tokens, slice(start, end)) | dict.fromkeys(of_rows, slice(first, last))
        columns = {name: column[of] for name, of in places.items() if (column := getattr(self, name)) is not None}
        return replace(self, offsets=self.offsets[first : last + 1] - start, **columns)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Valid tokens of each row, i64[B]."""
        return self.offsets[1:] - self.offsets[:-1]

    @cached_property
    def filled(self) -> NDArray[np.bool_]:
        """Rows with a valid token, bool[B]."""
        return self.lengths > 0

    @property
    def n_rows(self) -> int:
        """Rows, empty ones included."""
        return len(self.offsets) - 1

    @property
    def n_tokens(self) -> int:
        """Valid tokens."""
        return int(self.offsets[-1])


@frozen(kw_only=True)
class TokenContext:
    """What stands around the valid tokens of a Batch of B rows, and is looked at to tell why its policies differ.

    offsets: i64[B+1] into all T tokens, masked ones included.  valid: bool[T], None where all are.  token_ids: i64[T],
    -1 in rows without; None where no row has any.  kept_sizes, versions: the same of how many tokens each was chosen
    among, and of the weights that sampled it.  kept_by_rollout, kept_by_train: f64[T], the log of what each policy
    gives to these, prefill: f64[T], the rollout engine's log-probs in one forward pass, and head_tv, head_kl: f64[T],
    as of `head_distances`, NaN of unknown ones; None where the dump has none.
    levels: column -> (i64[B] codes, the levels they stand for).
    prompts: u64[B], a hash of each row's prompt; None where the dump does not tell.  advantages: f64[B], the mean of
    each row's, NaN of none; None where the dump has no such column.
    """

    offsets: NDArray[np.int64]
    valid: NDArray[np.bool_] | None
    token_ids: NDArray[np.int64] | None
    levels: Mapping[str, tuple[NDArray[np.int64], tuple[Any, ...]]]
    prompts: NDArray[np.uint64] | None
    advantages: Floats | None = None
    kept_sizes: NDArray[np.int64] | None = None
    kept_by_rollout: Floats | None = None
    kept_by_train: Floats | None = None
    versions: NDArray[np.int64] | None = None
    prefill: Floats | None = None
    head_tv: Floats | None = None
    head_kl: Floats | None = None


@frozen(kw_only=True)
class Decision:
    """What a plan decides about B rows (empty ones too) with V valid tokens, on the host.

    weights: f64[V], as applied; None where the plan weights nothing.  keep: bool[V].  n_valid, n_kept: f64[B].
    row_weights: f64[B], mean weight of the tokens kept (1 each where nothing is weighted), 0 of none.
    rejected: rejection -> bool[B], rows it takes whole or takes tokens of.  coefs: f64[V], each token's coefficient in
    the objective's gradient, 0 where rejected; None without an objective.
    """

    weights: Floats | None
    keep: NDArray[np.bool_]
    n_valid: Floats
    n_kept: Floats
    row_weights: Floats
    rejected: Mapping[str, NDArray[np.bool_]]
    coefs: Floats | None = None

    def with_empty(self, filled: NDArray[np.bool_]) -> "Decision":
        """What is decided about rows without a token is added.  filled: which rows have one; this is about these."""
        n = len(filled)

        def at_rows(values: NDArray[Any]) -> NDArray[Any]:
            column = np.zeros(n, values.dtype)
            column[filled] = values
            return column

        return replace(
            self,
            n_valid=at_rows(self.n_valid),
            n_kept=at_rows(self.n_kept),
            row_weights=at_rows(self.row_weights),
            rejected={name: at_rows(rows) for name, rows in self.rejected.items()},
        )

    @property
    def kept_fraction(self) -> Floats:
        """Share of valid tokens kept: f64[B], NaN of none."""
        with np.errstate(invalid="ignore"):
            return self.n_kept / self.n_valid


@frozen(kw_only=True)
class Input(Record):
    """One file as it was read: for the report's `inputs`.

    columns: canonical name -> the file's column.  modified: when it was last changed, in UTC to the minute
    (2026-11-22T20:21Z); None of standard input, of tables in memory, and where a store does not tell.
    """

    path: str
    format: str
    rows: int
    n_bytes: Annotated[int, Key(name="bytes")]
    columns: dict[str, str]
    modified: Annotated[str | None, Key(after="bytes", omit=True), Form(pattern=r"\d{4}-\d\d-\d\dT\d\d:\d\dZ")] = None
