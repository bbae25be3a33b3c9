"""Rows that are picked: of checked batches into a RowSample, and the worst ones; what rows are known by.

Hashes of how they begin, and of all they hold, tell rows apart.  The worst have the largest of some number of each.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure.arrays import Device, host
from rlcorr_cli.measure.tokens import Tokens, trained_policies
from rlcorr_cli.plans.plan import Mode
from rlcorr_cli.reading.arrow_values import as_numpy, call, take
from rlcorr_cli.reading.batch import Batch
from rlcorr_cli.reading.batches import CheckedRows
from rlcorr_cli.reading.columns import Roles
from rlcorr_cli.reading.token_context import token_context
from rlcorr_cli.reading.values import texts
from rlcorr_cli.totals.flat import Floats, Ints, offsets_of, picker, ranges, starts_of
from rlcorr_cli.totals.row_keys import Keys, KeySample, join_keys, keys_of_floats
from rlcorr_cli.totals.row_sample import MOST_TOKENS, ColumnOfKeys, RowSample, SampleSum, highest_levels

NAME_BYTES = 1 << 10
"""Of an id, by which a row is named; rows are told apart by all of it."""
HEAD = 16
"""Tokens of a row that a sample of rows is drawn by."""


@dataclass
class LeastLevel:
    """The least level that the sample of the whole dump can have, as far as it is known: below it no row is copied.

    It rises with the valid tokens that were read, never with what is only guessed of those to come: a level that is too
    high would leave out rows that another split or encoding of the same dump takes.  A worker process has it as it was
    when its shard was sent, a task on Ray as it was at first.
    """

    level: int = 0

    def raise_to(self, level: int) -> None:
        """Hold it to the level of a part of the dump."""
        self.level = max(self.level, level)


@frozen(kw_only=True)
class Sampling:
    """How rows are sampled.

    mode: which trained policy is compared with the rollout's.  groups: the columns that rows are grouped by, where the
    sample is to tell groups apart.  most: as of RowSample.
    """

    mode: Mode = "decoupled"
    groups: tuple[str, ...] = ()
    most: int = MOST_TOKENS
    least: LeastLevel = field(default_factory=LeastLevel)


@dataclass
class RowSampler:
    """Takes a sample of the rows of batches that come one after another.  roles: as the rows were read."""

    sampling: Sampling
    roles: Roles
    _taken: SampleSum = field(default_factory=SampleSum, init=False)

    @property
    def level(self) -> int:
        """The level at which rows are taken."""
        return max(self.sampling.least.level, self._taken.level)

    def take(self, rows: CheckedRows) -> None:
        """Take those of these rows that belong to the sample."""
        batch = rows.batch
        trained, _ = trained_policies(batch, self.sampling.mode)
        # A hash of how both policies' log-probs begin, of the length and of the row's own id.
        of_rollout, of_trained = head_keys(batch.lengths, batch.rollout_logp, trained)
        keys = join_keys(join_keys(of_rollout, batch.lengths.astype(np.uint64)), of_trained)
        keys = keys if batch.row_keys is None else join_keys(keys, batch.row_keys)
        at, levels = np.flatnonzero(batch.filled), highest_levels(keys)
        lengths, n_masked = batch.lengths[at], batch.n_masked[at]
        least = self._taken.level_with(levels[at], lengths, lengths + n_masked, self.sampling.most)
        self.sampling.least.raise_to(least)
        at = at[levels[at] >= self.level]
        if len(at):
            self._taken.add(self._sampled(rows, at, keys[at]))

    @property
    def sample(self) -> RowSample:
        """Of the rows so far."""
        return self._taken.sample or RowSample(most=self.sampling.most, level=self.level, columns=self._columns)

    @property
    def _columns(self) -> tuple[str, str, str | None]:
        roles = self.roles
        trained = (roles.current if self.sampling.mode == "bypass" else None) or roles.train
        return roles.rollout, trained, roles.row_advantage or roles.advantages or roles.reward

    def _sampled(self, rows: CheckedRows, at: NDArray[np.int64], keys: Keys) -> RowSample:
        batch, roles = rows.batch, self.roles
        around = token_context(rows, roles, at)
        pick = picker(batch.offsets[at], batch.lengths[at])
        trained, _ = trained_policies(batch, self.sampling.mode)
        # Of three policies a prefill stands between the two, updates after them.
        rollout, train, _ = columns = self._columns
        third, legs = around.prefill, ()
        if third is not None:
            third = third if around.valid is None else third[around.valid]
            legs = rollout, roles.of_tokens["prefill"], train
        elif roles.current is not None and roles.current != train and batch.current_logp is not None:
            third = np.concatenate(pick(batch.current_logp))
            legs = rollout, train, roles.current
        advantages = batch.reward if around.advantages is None else batch.row_advantage
        n_name, names = _names(rows, roles, at)
        return RowSample(
            most=self.sampling.most,
            level=self.level,
            columns=columns,
            legs=legs,
            keys=keys,
            n_valid=batch.lengths[at],
            n_tokens=np.diff(around.offsets),
            ids=np.zeros(len(at), np.uint64) if batch.row_keys is None else batch.row_keys[at],
            prompts=np.zeros(len(at), np.uint64) if around.prompts is None else around.prompts,
            advantages=np.full(len(at), np.nan) if advantages is None else advantages[at],
            n_name=n_name,
            names=names,
            files=np.zeros(len(at), np.int64),
            numbers=np.asarray(rows.places.numbers, np.int64)[at],
            starts=np.full(len(at), rows.places.start, np.int64),
            levels={name: ColumnOfKeys(codes=codes, values=values) for name, (codes, values) in around.levels.items()},
            groups={
                # Without a column of batches, a key begins with None.
                name: ColumnOfKeys.of(batch.group_index[at].astype(np.int64), [key[1 + i] for key in batch.group_keys])
                for i, name in enumerate(self.sampling.groups)
            },
            rollout=np.concatenate(pick(batch.rollout_logp)),
            train=np.concatenate(pick(trained)),
            third=third,
            unscored=None if batch.unscored is None else np.concatenate(pick(batch.unscored)),
            valid=around.valid,
            token_ids=around.token_ids,
            kept_sizes=around.kept_sizes,
            kept_by_rollout=around.kept_by_rollout,
            kept_by_train=around.kept_by_train,
            versions=around.versions,
            head_tv=around.head_tv,
            head_kl=around.head_kl,
            paths=(rows.places.path,),
            units=(rows.places.unit,),
        )


def _names(rows: CheckedRows, roles: Roles, at: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """The first bytes of each of these rows' ids, and all of them one after another; none of rows without ids."""
    if not roles.ids:
        return np.zeros(len(at), np.int64), np.zeros(0, np.uint8)
    column = texts(take(rows.data.select([roles.ids[0]]), at).column(0))
    ends = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
    lengths = np.minimum(np.where(as_numpy(call("is_valid", column)), np.diff(ends), 0), NAME_BYTES)
    content = column.buffers()[2]
    every = np.zeros(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)
    return lengths, every[ranges(ends[:-1], lengths)]


def head_keys(lengths: Ints, *columns: NDArray[np.floating]) -> Keys:
    """A hash of how each row begins in each of C columns of log-probs, [V] each: u64[C, B].  lengths: i64[B]."""
    heads = np.minimum(lengths, HEAD)
    at = ranges(starts_of(lengths), heads)
    values = np.concatenate([column[at] for column in columns])
    return keys_of_floats(values, offsets_of(np.tile(heads, len(columns)))).reshape(len(columns), -1)


def rollout_keys(rollout: NDArray[np.floating], lengths: Ints) -> Keys:
    """A hash of each row's length and of how it begins, u64[B]: cheap, and the same wherever a rollout stands again."""
    return join_keys(head_keys(lengths, rollout)[0], lengths.astype(np.uint64))


def content_sample(batch: Batch) -> KeySample:
    """A sample of the rows with tokens by what they hold: the log-probs of both policies, to float32."""
    offsets = batch.offsets[np.concatenate([[True], batch.filled])]
    trained = (batch.old_logp, batch.current_logp)
    keys = keys_of_floats(batch.rollout_logp, offsets)
    for logp in (each for each in trained if each is not None):
        keys = join_keys(keys, keys_of_floats(logp, offsets))
    return KeySample.of(keys)


def largest_gaps(batch: Batch, device: Device, mode: Mode) -> Floats:
    """The largest |log-ratio| of a token in each row of a batch, f64[B]; NaN of a row without a valid token."""
    values, filled = np.full(batch.n_rows, np.nan), batch.filled
    if batch.n_tokens:
        gaps = np.abs(host(Tokens.of(batch, device, mode).log_ratio))
        values[filled] = np.maximum.reduceat(gaps, batch.offsets[:-1][filled])
    return values


def summed_squares(batch: Batch, device: Device, mode: Mode) -> Floats:
    """The sum of log-ratio^2 over the tokens of each row of a batch, f64[B]; NaN of a row without a valid token."""
    values, filled = np.full(batch.n_rows, np.nan), batch.filled
    if batch.n_tokens:
        log_ratio = host(Tokens.of(batch, device, mode).log_ratio)
        values[filled] = np.add.reduceat(log_ratio**2, batch.offsets[:-1][filled])
    return values


def largest(values: Floats, n: int) -> NDArray[np.int64]:
    """Indices of the n largest that are numbers, largest first, the earlier one first among equals."""
    known = np.flatnonzero(~np.isnan(values))
    if n < len(known):
        bound = np.partition(values[known], len(known) - n)[len(known) - n]
        known = known[values[known] >= bound]
    return known[np.argsort(-values[known], kind="stable")][:n]
