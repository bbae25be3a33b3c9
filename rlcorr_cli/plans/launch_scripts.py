"""Launch scripts of trainers: the options that a shell would hand over, without a shell.

First the script is cut into words and ends of commands; a comment is neither.  A word that sets a variable is
remembered, and put in where the variable stands later; nothing else of a shell is done.  Then the words are options:
flags, `--tis-clip 2.0`, whose names have underscores for hyphens, and Hydra's overrides, `algorithm.x.y=token`.  A flag
without a value is true, one with several is a list; the last of a name counts.  Values are YAML's scalars, and dotted
names are blocks.
"""

import re
from collections.abc import Iterator
from typing import Any

from rlcorr_cli.errors import UsageError
from rlcorr_cli.plans.documents import Document
from rlcorr_cli.plans.yaml_files import parse_yaml

_QUOTED = r"""\\.|"(?:\\.|[^"\\])*"|'[^']*'"""
_TOKENS = re.compile(rf"(?P<comment>#[^\n]*)|(?P<end>[\n;|&()])|(?P<word>(?:{_QUOTED}|[^\s\"'\\;|&()])+)", re.DOTALL)
_QUOTES = re.compile(r"""\\(.)|"((?:\\.|[^"\\])*)"|'([^']*)'""", re.DOTALL)
_CONTINUED = re.compile(r"\\\r?\n")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?-([^${}]*))?\})")
_FLAG = re.compile(r"--([A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)
_OVERRIDE = re.compile(r"\+{0,2}([A-Za-z_]\w*(?:\.\w+)+)=(.*)", re.DOTALL)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
LONGEST = 200
"""Characters of a variable that are kept: bounds and names have few, and variables of variables would grow for ever."""


def parse_script(text: str) -> Document:
    """The options of a script, None without one, and a note for every number that may not be meant as one."""
    options: dict[str, list[str]] = {}
    for name, values in _options(text):
        options[name] = values
    data: dict[str, Any] = {}
    notes: list[str] = []
    for name, values in options.items():
        read = [_scalar(value) for value in values]
        notes += [f"{name}: {note.partition(': ')[2]}" for document in read for note in document.notes]
        value = [document.data for document in read]
        _put(data, name.split("."), True if not value else value[0] if len(value) == 1 else value)
    return Document(data or None, tuple(notes))


def _options(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each option with the words of its value."""
    variables: dict[str, str] = {}
    name, values = "", []
    for word in _words(text):
        word = word and _VARIABLE.sub(lambda use: variables.get(use[1] or use[2], use[3] or use[0]), word)
        flag, override = _FLAG.fullmatch(word), _OVERRIDE.fullmatch(word)
        goes_on = word and not (flag or override) and not re.match(r"-[A-Za-z]|\$\{\w+\[", word)
        if name and goes_on:
            values.append(word)
            continue
        if name:
            yield name, values
            name, values = "", []
        if flag:
            name = flag[1].replace("-", "_")
            if flag[2] is not None:
                yield name, [flag[2]]
                name = ""
        elif override:
            yield override[1], [override[2]]
        elif assignment := _ASSIGNMENT.fullmatch(word):
            variables[assignment[1]] = assignment[2][:LONGEST]
    if name:
        yield name, values


def _words(text: str) -> Iterator[str]:
    """The words without their quotes, and '' where a command or a list of words begins or ends."""
    for token in _TOKENS.finditer(_CONTINUED.sub(" ", text)):
        if token["end"]:
            yield ""
        elif token["word"]:
            yield _QUOTES.sub(lambda part: part[1] or part[2] or part[3] or "", token["word"])


def _scalar(value: str) -> Document:
    """A value as YAML has it; as text where it is none."""
    try:
        return parse_yaml(value)
    except UsageError:
        return Document(value)


def _put(data: dict[str, Any], path: list[str], value: Any) -> None:
    """Put a value at a path; a block that is already there stays, and what stands where one is to be goes."""
    *blocks, last = path
    for block in blocks:
        inner = data.get(block)
        inner = inner if isinstance(inner, dict) else {}
        data[block] = inner
        data = inner
    if not isinstance(data.get(last), dict):
        data[last] = value
