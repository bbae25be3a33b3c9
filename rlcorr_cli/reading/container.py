"""What a container's module offers: four functions under one name, READER, and what they pass on.

`index` opens a file once, and what that told is its Index: enough to settle its columns and to cut the work without
opening it again.  `parts` cuts it, `read` yields the rows of one part, and `peek` the first ones.

Columns that stand in the names of folders (`step=3/worker=a/part.parquet`, as Spark, Hive and polars write them) are a
file's Partition; one is a column where every file of the dump is below a folder of that name, and a file's own column
goes first.  Where no column tells the step, the file's name may (`steps_of`).  A number is a step where it is all that
a name holds (`12.jsonl`, `000012.rank0.parquet`) or follows a word for steps (`step_12`, `iter-0012`,
`global_step_40/rollout.jsonl`).  Numbers of shards, ranks, workers and dates are none, and so is a step that begins
anew with each epoch.  Three files or more whose names are the same but for one number are numbered by step, too
(`data_7`), unless the word before it says that it is another number.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from importlib import import_module
from urllib.parse import unquote

import pyarrow as pa

from rlcorr_cli.frozen import frozen
from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.batches import Rows
from rlcorr_cli.reading.columns import Roles
from rlcorr_cli.reading.find import Source
from rlcorr_cli.reading.formats import container
from rlcorr_cli.reading.names import STEPS

FILE = "file"
"""What rows of one file are grouped by where no column has that name."""
NULL = "__HIVE_DEFAULT_PARTITION__"
Value = int | str | None


@frozen
class Partition:
    """The columns that one file's folders name, each with the value of all its rows.

    whole: those of whole numbers.  numbered: whether STEP is one, of a number in the file's name, for want of a column.
    unwritten: those that rows do not have where they are written.
    """

    values: tuple[tuple[str, Value], ...] = ()
    whole: tuple[str, ...] = ()
    numbered: bool = False
    unwritten: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns."""
        return tuple(name for name, _ in self.values)

    def fields(self) -> list[pa.Field]:
        """The columns with their types: whole numbers where all files' values are, else text."""
        return [pa.field(name, pa.int64() if name in self.whole else pa.string()) for name, _ in self.values]

    def beside(self, schema: pa.Schema) -> "Partition":
        """Those of the columns that a file does not have itself."""
        if self.numbered and not set(STEPS).isdisjoint(schema.names):
            return self.unnumbered().beside(schema)
        return self._of([name for name in self.names if name not in schema.names])

    def unnumbered(self) -> "Partition":
        """The same without a step of the file's name."""
        others = [name for name in self.names if not self.numbered or name != STEPS[0]]
        return replace(self._of(others), numbered=False)

    def _of(self, names: Collection[str]) -> "Partition":
        return replace(self, values=tuple((name, value) for name, value in self.values if name in names))

    def added_to(self, schema: pa.Schema) -> pa.Schema:
        """A file's columns and these."""
        return pa.schema([*schema, *self.fields()], metadata=schema.metadata)

    def given_to(self, rows: Rows, needed: Sequence[str]) -> Rows:
        """Rows of the file with these columns, those of `needed` and all of a row that is whole."""
        if not self.values:
            return rows
        n = rows.data.num_rows
        columns = {
            field.name: pa.array([value] * n, field.type)
            for field, (_, value) in zip(self.fields(), self.values, strict=True)
        }
        data = rows.data
        for name in needed:
            if name in columns:
                data = data.append_column(name, columns[name])
        written = {name: column for name, column in columns.items() if name not in self.unwritten}
        original = None if rows.original is None else rows.original.with_columns(written)
        return replace(
            rows, data=data.select([name for name in needed if name in data.schema.names]), original=original
        )


def partitions(paths: Sequence[str]) -> dict[str, Partition]:
    """What the folders of each file name, of a dump's files; nothing of a name that not all have."""
    named: dict[str, dict[str, str]] = {}
    for path in paths:
        pairs = (folder.partition("=") for folder in os.path.dirname(path).split(os.sep) if "=" in folder)
        named[path] = {unquote(name): unquote(value) for name, _, value in pairs if name}
    shared = set[str]().union(*named.values()).intersection(*named.values())
    columns = [name for name in next(iter(named.values())) if name in shared]
    texts = {name: [values[name] for values in named.values()] for name in columns}
    whole = tuple(name for name, values in texts.items() if all(_is_whole(value) for value in values if value != NULL))
    return {
        path: Partition(tuple((name, _value(values[name], name in whole)) for name in columns), whole)
        for path, values in named.items()
    }


def named_by_files(paths: Sequence[str], *, file: bool, step: bool) -> dict[str, Partition]:
    """What folders name, and what files' own names tell besides: FILE where groups by it are wanted, and where no
    column is of steps each one's step, which is written where it tells rows apart."""
    folders = partitions(paths)
    steps = steps_of(paths) if step and not any({*STEPS} & {*named.names} for named in folders.values()) else {}
    is_known = len({os.path.basename(path) for path in paths}) == len(paths)
    for path, named in folders.items():
        own: dict[str, Value] = {STEPS[0]: steps[path]} if steps else {}
        unwritten = [STEPS[0]] if len({*steps.values()}) == 1 else []
        if file and FILE not in named.names:
            own[FILE] = os.path.basename(path) if is_known else path
            unwritten.append(FILE)
        folders[path] = Partition(
            values=(*named.values, *own.items()),
            whole=(*named.whole, *([STEPS[0]] if steps else [])),
            numbered=bool(steps),
            unwritten=tuple(unwritten),
        )
    return folders


def _is_whole(text: str) -> bool:
    return text.isascii() and text.lstrip("-").isdigit() and len(text) <= 18


def _value(text: str, whole: bool) -> Value:
    return None if text == NULL else int(text) if whole else text


NeededColumns = Callable[..., list[str]]
"""From a file's schema, and its first rows where they are objects of JSON, the columns that may be read, which are
checked while it is open."""


@frozen(kw_only=True)
class Index:
    """schema: all columns of the file itself.  partition: further ones, that the names of its folders tell.
    in_one: whether the file can only be read from end to end, as one shard.
    made: whether rows are made in its schema's columns, so that files of one dump can all have the columns of any.
    losses: what of it is not among its rows, and notes: what its reader should know besides, in sentences.

    group_rows: rows of each row group.  group_bytes: needed column -> its bytes in each row group, as compressed.
    """

    schema: pa.Schema
    losses: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    partition: Partition = Partition()
    in_one: bool = False
    made: bool = False
    group_rows: tuple[int, ...] = ()
    group_bytes: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])

    @property
    def all_columns(self) -> pa.Schema:
        """The file's own columns, and its folders'."""
        return self.partition.added_to(self.schema)


Piece = tuple[tuple[int, int] | None, int]
"""What Shard calls part and n_bytes."""


def runs(n: int, length: int, n_bytes: int) -> Sequence[Piece]:
    """So many in runs of a length, each with its share of the bytes."""
    ends = ((first, min(first + length, n)) for first in range(0, n, length))
    return [((first, end), n_bytes * (end - first) // n) for first, end in ends]


@frozen
class Reader:
    """One container: index opens a file once, parts cuts it by what that told, read yields one part's needed columns,
    peek the first rows of a file's first part.

    Of `read`, batch_tokens: how many tokens a batch will hold; what is yielded may be more or less.  whole: whether the
    rows come with all columns, or their own lines.
    """

    index: Callable[[Source, NeededColumns], Index]
    parts: Callable[[Source, Index, Roles], Sequence[Piece]]
    read: Callable[..., Iterator[Rows]]
    peek: Callable[[Shard, Roles], Rows | None]


def reader(format: str) -> Reader:
    """How files of a format are read; loads the container's module."""
    module, _, name = container(format).reader.partition(".")
    return getattr(import_module(f"rlcorr_cli.reading.{module}"), name)


WORDS = ("step", "iter(?:ation)?", "update", "rollout", "checkpoint|ckpt", "batch", "gen(?:eration)?", "dump")
"""What stands before a step, the surest first."""
_LABELLED = [
    re.compile(rf"(?:(?<![a-z])|global)(?:{word})s?[-_=. ]*(\d+)(?!\d)(?![-_. ]*of[-_. ]*\d)") for word in WORDS
]
_LABEL = re.compile(rf"(?<![a-z])(?:global)?[-_ ]*(?:{'|'.join(WORDS)})s?(?![a-z])")
_SHARD = "(?<![a-z])(?:rank|worker|shard|part|dp|tp|pp|gpu|node|host|engine|replica|proc)"
_OF_SHARD = re.compile(rf"{_SHARD}[-_ ]*\d+")
_NO_STEP = re.compile(rf"(?:{_SHARD}|(?<![a-z])(?:[a-z]|chunk|file|fold|run|seed|split|version|vllm|sglang))[-_ ]*$")
"""What stands before a number that is no step, a single letter (p0, v2) too."""
_SUFFIXES = re.compile(r"(\.[a-z]\w*)+$")
_EPOCH = re.compile(r"(?<![a-z])epoch[-_=. ]*\d")
_DATE = re.compile(r"(?:19|20)\d\d[-_.]?(?:0[1-9]|1[0-2])[-_.]?(?:0[1-9]|[12]\d|3[01])(?!\d)")
_YEAR = re.compile(r"(?:19|20)\d\d")
MOST_DIGITS = 9
"""A longer number is a time."""
FOLDERS = 3
"""So many folders above a file are looked at."""


def steps_of(paths: Iterable[str]) -> dict[str, int]:
    """The step of each of a dump's files; empty where the name of one does not tell it."""
    steps = {path: step_of(path) for path in paths}
    if None in steps.values():
        return _apart_by_one_number([*steps])
    return {path: step for path, step in steps.items() if step is not None}


def _apart_by_one_number(paths: Sequence[str]) -> dict[str, int]:
    """The only number in which the names of three files or more differ; none where it is that of another thing."""
    names = [re.split(r"(\d+)", path.lower()) for path in paths]
    if len(paths) < 3 or len({tuple(name[::2]) for name in names}) > 1 or _EPOCH.search(paths[0].lower()):
        return {}
    apart = [i for i in range(1, len(names[0]), 2) if len({name[i] for name in names}) > 1]
    if len(apart) != 1:
        return {}
    before, behind = "".join(names[0][: apart[0]]), names[0][apart[0] + 1]
    is_of_many = re.match(r"[-_. ]*of[-_. ]*$", behind)
    if "/" in behind or is_of_many or _NO_STEP.search(before) or _DATE.search(os.path.basename(paths[0])):
        return {}
    numbers = {path: name[apart[0]] for path, name in zip(paths, names, strict=True)}
    if any(len(number) > MOST_DIGITS or _DATE.fullmatch(number) for number in numbers.values()):
        return {}
    return {path: int(number) for path, number in numbers.items()}


def step_of(path: str) -> int | None:
    """The step of one file: the nearest that its name or those of its folders tell; None where they do not."""
    file, *folders = path.lower().split("/")[: -FOLDERS - 2 : -1]
    if any(map(_EPOCH.search, (file, *folders))):
        return None
    stem = _SUFFIXES.sub("", file)
    for step in (_labelled(file), _alone(stem)):
        if step is not None:
            return step
    if folders and folders[0].isdecimal() and not re.search(r"\d", stem) and not _YEAR.fullmatch(folders[0]):
        return _alone(folders[0])
    # A folder whose name says more, such as runs_of_step_3, may be of anything.
    named = (folder for folder in folders if not _LABEL.sub("", folder).strip("-_=. 0123456789"))
    return next((step for step in map(_labelled, named) if step is not None), None)


def _labelled(name: str) -> int | None:
    """The number behind the surest word for steps."""
    found = (pattern.findall(_DATE.sub("date", name)) for pattern in _LABELLED)
    return next((int(numbers[-1]) for numbers in found if numbers and len(numbers[-1]) <= MOST_DIGITS), None)


def _alone(name: str) -> int | None:
    """The number of a name that holds nothing else, apart from a word for steps and numbers of shards."""
    number = _LABEL.sub("", _OF_SHARD.sub("", name)).strip("-_. ")
    is_step = number.isascii() and number.isdigit() and len(number) <= MOST_DIGITS and not _DATE.fullmatch(number)
    return int(number) if is_step else None
