"""YAML as plain values: SafeLoader's types, keys once each, aliases and merges within the limits of `documents.py`.

What an alias comes to is counted while nodes are composed, before anything is made of them.

Launch scripts of trainers are here, too: the options that a shell would hand over, without a shell, whose values are
YAML's scalars.  First the script is cut into words and ends of commands; a comment is neither.  A word that sets a
variable is remembered, and put in where the variable stands later; nothing else of a shell is done.  Then the words are
options: flags, `--tis-clip 2.0`, whose names have underscores for hyphens, and Hydra's overrides,
`algorithm.x.y=token`.  A flag without a value is true, one with several is a list; the last of a name counts.  Dotted
names are blocks.
"""

import re
from collections.abc import Iterator
from typing import Any

import yaml

from rlcorr_cli.errors import UsageError, shortened
from rlcorr_cli.plans import documents

_TAG = "tag:yaml.org,2002:"
_NUMBERS = (f"{_TAG}int", f"{_TAG}float")
_CHECKED = tuple(f"{_TAG}{name}" for name in ("bool", "int", "float", "timestamp", "null"))
"""Tags whose constructors take it for granted that the text is one of theirs, which `!!bool maybe` is not."""
_SPECIAL_KEYS = (f"{_TAG}merge", f"{_TAG}value")
_PLAIN = (True, False)
"""Asks a resolver for the tag of a scalar without quotes."""


class Loader(yaml.SafeLoader):
    """SafeLoader that reads 1e-4 as a number, as YAML 1.2 and OmegaConf do, and refuses what others would guess at.

    ambiguous: numbers with an underscore and without quotes.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.ambiguous: list[yaml.ScalarNode] = []
        self._depth = self._n_nodes = 0
        # Node -> how many values it comes to, and how deep they go; only of nodes that are composed to their end.
        self._extents: dict[int, tuple[int, int]] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        """The next node, if all that it comes to is within the limits."""
        is_alias, mark = self.check_event(yaml.AliasEvent), self.peek_event().start_mark
        self._depth, self._n_nodes = self._depth + 1, self._n_nodes + 1
        if self._depth > documents.MOST_DEPTH:
            raise documents.too_deep()
        if self._n_nodes > documents.MOST_VALUES:
            raise documents.too_many()
        node = super().compose_node(parent, index)
        self._depth -= 1
        if not is_alias:
            self._extents[id(node)] = self._extent(node)
        elif id(node) not in self._extents:
            raise _refused("an alias stands inside what it names", mark)
        return node

    def _extent(self, node: Any) -> tuple[int, int]:
        if isinstance(node, yaml.ScalarNode):
            return 1, 1
        parts = node.value if isinstance(node, yaml.SequenceNode) else [part for pair in node.value for part in pair]
        extents = [self._extents[id(part)] for part in parts]
        n_values, depth = 1 + sum(n for n, _ in extents), 1 + max((deep for _, deep in extents), default=0)
        if n_values > documents.MOST_VALUES:
            raise documents.too_many()
        if depth > documents.MOST_DEPTH:
            raise documents.too_deep()
        return n_values, depth

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        """A scalar, which is noted where it is a number that may not be meant as one."""
        is_plain = self.peek_event().style is None
        node = super().compose_scalar_node(anchor)
        if is_plain and node.tag in _NUMBERS and re.fullmatch(r"[0-9.]+_[0-9_.]+", node.value):
            self.ambiguous.append(node)
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """A mapping, whose own keys come once each; those that it merges give way to them, as YAML has it."""
        node = super().compose_mapping_node(anchor)
        keys: set[Any] = set()
        for key_node in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            key = key_node.value if key_node.tag in _SPECIAL_KEYS else self.construct_object(key_node)
            if key in keys:
                raise documents.twice(key, key_node.start_mark.line + 1)
            keys.add(key)
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        """A value, if a scalar is what its tag says."""
        if isinstance(node, yaml.ScalarNode) and node.tag in _CHECKED and not self._is_of_its_tag(node):
            raise _refused(f"{shortened(node.value)} is no {node.tag.removeprefix(_TAG)}", node.start_mark)
        return super().construct_object(node, deep)

    def _is_of_its_tag(self, node: yaml.ScalarNode) -> bool:
        tag = self.resolve(yaml.ScalarNode, node.value, _PLAIN)
        return tag == node.tag or (tag in _NUMBERS and node.tag == f"{_TAG}float")


Loader.add_implicit_resolver(
    f"{_TAG}float", re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def parse_yaml(text: str) -> documents.Document:
    """What a text in YAML holds, and a note for every scalar that may not mean what it shows."""
    try:
        loader = Loader(text)
        node = loader.get_single_node()
        data = None if node is None else loader.construct_document(node)
        notes = tuple(_note(loader, scalar) for scalar in loader.ambiguous)
    except yaml.MarkedYAMLError as error:
        problem = error.problem or "it is not YAML"
        problem = f"{error.context}, {problem}" if error.context and problem.startswith("but ") else problem
        raise _refused(problem, error.problem_mark) from None
    except yaml.YAMLError as error:
        raise documents.invalid("YAML", " ".join(str(error).split())) from None
    except OverflowError:  # a note on an integer, or a float of base 60
        raise documents.too_large() from None
    except ValueError as error:  # a date that is none, a number of too many digits
        raise documents.not_valid("YAML", error) from None
    return documents.Document(data, notes)


def _note(loader: Loader, node: yaml.ScalarNode) -> str:
    return (
        f"line {node.start_mark.line + 1}: {shortened(node.value, quotes=False)} without quotes is the number "
        f"{float(loader.construct_object(node)):g}, to the trainer as well; quote it if two bounds are meant."
    )


def _refused(problem: str, mark: Any) -> UsageError:
    where = "" if mark is None else f" in line {mark.line + 1}"
    return documents.invalid("YAML", f"{problem}{where}")


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


def parse_script(text: str) -> documents.Document:
    """The options of a script, None without one, and a note for every number that may not be meant as one."""
    data: dict[str, Any] = {}
    notes: list[str] = []
    for name, values in dict(_script_options(text)).items():  # the last of a name counts
        read = [_script_value(value) for value in values]
        notes += [f"{name}: {note.partition(': ')[2]}" for document in read for note in document.notes]
        value = [document.data for document in read]
        _put(data, name.split("."), True if not value else value[0] if len(value) == 1 else value)
    return documents.Document(data or None, tuple(notes))


def _script_options(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each option with the words of its value."""
    variables: dict[str, str] = {}
    name, values = "", []
    for word in _script_words(text):
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


def _script_words(text: str) -> Iterator[str]:
    """The words without their quotes, and '' where a command or a list of words begins or ends."""
    for token in _TOKENS.finditer(_CONTINUED.sub(" ", text)):
        if token["end"]:
            yield ""
        elif token["word"]:
            yield _QUOTES.sub(lambda part: part[1] or part[2] or part[3] or "", token["word"])


def _script_value(value: str) -> documents.Document:
    """A value as YAML has it; as text where it is none."""
    try:
        return parse_yaml(value)
    except UsageError:
        return documents.Document(value)


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
