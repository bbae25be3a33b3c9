"""What a layout is: how a framework's file is known by its contents, and what its rows are in canonical columns.

`table.LAYOUTS` has them all.  A framework's JSON lines are one row of data in `json_layouts`; a batch of padded tensors
is one in `padded`; what no row can say is a function that a row names.  Nothing else names a framework's files or keys.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from importlib import import_module
from operator import attrgetter
from typing import Any

from rlcorr_cli.frozen import frozen
from rlcorr_cli.layouts.recognise import FileStart

Sample = Mapping[str, Any]
"""One sequence: canonical column -> its value, a one-dimensional array of tokens or a scalar; None and absent are null.
"""

KEPT_SETS = (
    "kept_set_size is among how many tokens the sampler chose each token; which tokens these were is not taken over. "
    "Log-probs are over the kept set, so a set of one token is 0 on both sides."
)
"""A note on files that record the kept sets of a truncated sampler."""


@frozen(kw_only=True)
class OpenedDump:
    """One unit of a dump, opened: the files that are read together.

    columns: names out of canonical.TYPES that the samples may have, and further ones that `types` tells the type of.
    types: of columns that are narrower than canonical.TYPES, or not there.
    missing_policy_hint: of a unit without a trained policy, why, and what to switch on in the framework to get one.
    samples: called for every reading, the unit's sequences in order.  losses: what of its responses is not among them,
    and notes: what its reader should know besides, in sentences.
    """

    columns: Sequence[str]
    samples: Callable[[], Iterator[Sample]]
    losses: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    types: Mapping[str, Any] = field(default_factory=dict[str, Any])
    missing_policy_hint: str = ""


@frozen(kw_only=True)
class LeftOut:
    """What a reader gives in place of a row, or after one of which it does not read a part: why, and of what.

    note: what goes on after '3 of 24 responses '.  none: what goes on after 'none of its 24 responses ' where no row is
    left, and hint: what to type then; both '' where rows are read all the same.  response: the id of an unfinished one.
    """

    note: str
    none: str = ""
    hint: str = ""
    response: str | None = field(default=None, compare=False)


def each_alone(paths: Sequence[str]) -> list[tuple[str, ...]]:
    """Every file is a unit of its own."""
    return [(path,) for path in paths]


@frozen(kw_only=True)
class Layout:
    """One kind of file.

    name: what `--format` takes.  framework: whose it is.  title: as messages name it.  suffixes: of its files' names.
    recognise: the sign by which a file is known to be so, in words; None where it is not.  It must not take another's.
    open: one unit's files, first to last; errors are DataErrors that go on after "PATH: ".
    files_of_a_step: the paths that were found, cut into units that are read together, such as the ranks of one step;
    it may leave paths out.  left_out: why it does, after "X is left out: ".
    beside: files that are read with those that were found, though nobody named them.
    covers: names of layouts whose files are left out beside this one's, which hold the same sequences and more.
    added_to: whether its files are only added to while a run goes on, and are read as far as they were when opened.
    trained: whether the framework writes a trained policy beside the rollout's.  trained_later: whether it does so in
    records of its own, so that some rows have none: they are no part of what compares two policies.
    """

    name: str
    framework: str
    title: str
    suffixes: tuple[str, ...] = (".jsonl",)
    recognise: Callable[[FileStart], str | None]
    open: Callable[[Sequence[str]], OpenedDump]
    files_of_a_step: Callable[[Sequence[str]], list[tuple[str, ...]]] = each_alone
    left_out: str = ""
    beside: Callable[[Sequence[str]], list[str]] = lambda paths: []
    covers: tuple[str, ...] = ()
    added_to: bool = False
    trained: bool = False
    trained_later: bool = False


@frozen(kw_only=True)
class Held:
    """What a batch in memory holds, whatever object held it.

    values: by name, a tensor or array of one or two dimensions, a list with a value or a tensor for each row, or one
    value for all rows.  facts: what it says of the whole batch.  step: the training step, where its caller knows it.
    framework: whose batch it is, where that was found out.
    """

    values: Mapping[str, Any]
    facts: Mapping[Any, Any] = field(default_factory=dict[Any, Any])
    step: int | None = None
    framework: str = ""


@frozen(kw_only=True)
class BatchLayout:
    """One kind of batch in memory.

    title: as notes name it.  keys: those by which a batch is known to be so, all of them there and not None.
    names: of the values that are looked at.  columns: the batch as columns, canonical ones under their names: arrays
    [B] or [B, T], or lists of a value or an array for each row.
    """

    title: str
    keys: tuple[str, ...]
    names: Callable[[], Collection[str]]
    columns: Callable[[Held], Mapping[str, Any]]


def later(function: str) -> Callable[..., Any]:
    """'module.function' of this package, or 'module.VALUE.method', whose module is loaded by the first call."""
    module, _, name = function.partition(".")
    return lambda *args: attrgetter(name)(import_module(f"rlcorr_cli.layouts.{module}"))(*args)
