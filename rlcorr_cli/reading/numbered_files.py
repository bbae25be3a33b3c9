"""The step that a file is of by its name, where no column tells: `steps_of` a dump's files.

A number is a step where it is all that a name holds (`12.jsonl`, `000012.rank0.parquet`) or follows a word for steps
(`step_12`, `iter-0012`, `global_step_40/rollout.jsonl`).  Numbers of shards, ranks, workers and dates are none, and so
is a step that begins anew with each epoch.  Three files or more whose names are the same but for one number are
numbered by step, too (`data_7`), unless the word before it says that it is another number.
"""

import os
import re
from collections.abc import Iterable, Sequence

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
