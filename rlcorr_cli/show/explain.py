"""`explain` on a terminal, from the tables the code uses; loads neither torch nor numpy.

A metric is explained here.  What else a name may stand for, and the topics, are in `topics.py`, which is loaded for
names of no metric.  The JSON Schema of every output is here, too.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rlcorr_cli.errors import UsageError, nearest
from rlcorr_cli.metrics.catalog import DEFINITIONS, define, logged_as
from rlcorr_cli.metrics.metric import SYMBOLS, Metric, symbols_in
from rlcorr_cli.plans.plan import STATISTICS
from rlcorr_cli.results.rules import RULES, Rule
from rlcorr_cli.show.glossary import BY_KEY, key_of
from rlcorr_cli.show.paragraphs import indented, where
from rlcorr_cli.show.stdout import emit

_OF_A_PATH = re.compile(r"(?<=.)(/(all|mean|avg|max|min|std|sum|median))+$")
"""What a path ends in that says no more than which number of a name it is."""


def print_explanation(asked: str) -> None:
    """Print a topic's names, or all that a name stands for; an unknown name is a UsageError with similar names."""
    name, key = asked.strip(), key_of(asked)
    lines = _topic(key) or _explained(name, key)
    if not lines:  # of what stands before a slash frameworks make groups
        name, key = (_OF_A_PATH.sub("", text).rsplit("/", 1)[-1] for text in (name, key))
        lines = _explained(name, key) or _key_of_json(key)
    if not lines:
        from rlcorr_cli.show.topics import known

        close = near_misses(key_of(asked), known())
        hint = f"Nearest: {', '.join(close)}." if close else "`rlcorr explain` lists the topics."
        raise UsageError(f"Unknown name '{asked}'.", hint)
    emit("\n".join(lines) + "\n")


def _topic(key: str) -> list[str]:
    """The names of a topic, which no metric is called by."""
    if define(key) is not None:
        return []
    from rlcorr_cli.show.topics import listed

    return listed(key)


def _explained(name: str, key: str) -> list[str]:
    """The lines on everything of this name; a symbol only in its own case, as S and s are not the same."""
    definition = define(key)
    statistic, word, symbol = _statistic(key), _word(name, key, definition), _symbol(name)
    if definition is not None:  # no other table has a metric's name
        return _separated(about_metric(definition), statistic, word, symbol)
    from rlcorr_cli.show.topics import named

    *others, framework = named(name, key)
    return _separated(statistic, *others, word, framework, symbol)


def _separated(*parts: list[str]) -> list[str]:
    """The parts that there are, with an empty line between each."""
    return [line for part in parts if part for line in (*part, "")][:-1]


def near_misses(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The known names that are a few typing errors away, nearest first, then those that contain the name."""
    allowed = max(1, len(name) // 3)
    distances = {other: _edit_distance(name, other) for other in known if abs(len(other) - len(name)) <= allowed}
    close = sorted((other for other, n_edits in distances.items() if n_edits <= allowed), key=distances.__getitem__)
    holding = sorted((other for other in known if len(name) > 2 and name in other), key=len)
    return list(dict.fromkeys([*close, *holding]))[:most]


def _edit_distance(first: str, second: str) -> int:
    """Levenshtein's: the fewest insertions, deletions and replacements, a row of the table at a time."""
    row = list(range(len(second) + 1))
    for i, letter in enumerate(first, 1):
        above, row[0] = row[0], i
        for j, other in enumerate(second, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (letter != other))
    return row[-1]


def about_metric(definition: Metric) -> list[str]:
    """A metric's definition, the default rules on it, and who else logs it, as lines."""
    name = definition.name
    lines = [name, *indented(definition.formula), *where(definition.formula)]
    lines += [*indented(definition.meaning), *indented(definition.note)]
    ideal = "" if definition.ideal is None else f" Ideal: {definition.ideal:g}, when the policies are the same."
    lines += indented(f"Unit: {definition.unit}.{ideal}") if definition.unit else []
    if definition.typical:
        lines += indented(f"Typical: {definition.typical}.")
    if definition.worry:
        lines += indented(f"Worry: {definition.worry}")
    for rule in rules_on(name):
        lines += indented(f"Rule ({rule.severity}): {rule.limits}.  {rule.remedy}")
    if definition.source:
        lines += indented(f"Source: {definition.source}.")
    logged = logged_as(name)
    return lines + (indented(f"Also logged as: {', '.join(logged)}.") if logged else [])


def rules_on(name: str) -> list[Rule]:
    """The default rules on a metric."""
    return [rule for rule in RULES if rule.metric == name]


def _symbol(name: str) -> list[str]:
    """The lines on a symbol, with those that its meaning is said in."""
    if name not in SYMBOLS:
        return []
    return [name, *indented(f"Symbol: {SYMBOLS[name]}."), *where(" ".join(list(symbols_in(name))[1:]))]


def _statistic(name: str) -> list[str]:
    """The lines on a statistic that rejections can bound."""
    if name not in STATISTICS:
        return []
    row = STATISTICS[name]
    budget = " A budget may be kept on it, too." if row.budgetable else ""
    return [name, *indented(f"Rejection statistic: {row.formula}.{budget}"), *where(row.formula)]


def _word(name: str, key: str, shown: Metric | None) -> list[str]:
    """The lines on a word of the glossary, with the metric that a heading stands for; none if that is shown already."""
    term = BY_KEY.get(key)
    metric = define(term.metric) if term is not None and term.metric else None
    if term is None or (metric is not None and metric is shown):
        return []
    also = f"Also: {', '.join(other for other in term.names if other != name)}." if len(term.names) > 1 else ""
    lines = [name, *indented(term.meaning, also)]
    return lines if metric is None else [*lines, "", *about_metric(metric)]


_CLAUSE = re.compile(r"(?:^|(?<=[.;]) )(?=[a-z_]+(?:, [a-z_]+)*: )")
_HEAD = re.compile(r"([a-z_]+(?:, [a-z_]+)*): ")


def _key_of_json(key: str) -> list[str]:
    """The lines on a key of JSON outputs, from the schema: what the records that have it say of it, or of themselves
    where none does."""
    told, untold = dict[str, list[str]](), dict[str, list[str]]()
    for record, row in schema()["$defs"].items():
        if key in (keys := row.get("properties", {})):
            description = row.get("description", "")
            own = keys[key].get("description") or _said_of(key, description)
            values = f" One of {', '.join(map(str, keys[key]['enum']))}." if "enum" in keys[key] else ""
            text = own or f"{_CLAUSE.split(description)[0].partition('. ')[0].rstrip(' ;.')}."
            (told if own else untold).setdefault(f"{text}{values}", []).append(record)
    if not (records := told or untold):
        return []
    lines = (f"In the record {' and '.join(names)}: {text}" for text, names in records.items())
    return [key, *indented("A key of JSON outputs. `rlcorr explain --schema` prints all of them.", *lines)]


def _said_of(key: str, description: str) -> str:
    """The clause on one key in a record's description, as a sentence; empty where there is none."""
    for part in _CLAUSE.split(description):
        if (named := _HEAD.match(part)) and key in named[1].split(", "):
            text = part[named.end() :].rstrip(" ;.")
            return f"{text[0].upper()}{text[1:]}."
    return ""


def print_schema(name: str | None) -> None:
    """The JSON Schema of every output, or of the one named."""
    document = schema()
    outputs = [output["$ref"].removeprefix("#/$defs/") for output in document["anyOf"]]
    if name is not None:
        if name not in outputs:
            raise UsageError(f"There is no output '{name}' with a schema.", f"Nearest: {nearest(name, outputs)}.")
        del document["anyOf"]
        document["$ref"] = f"#/$defs/{name}"
    emit(json.dumps(document, indent=2) + "\n")


def schema() -> dict[str, Any]:
    """results/schema.json with a description of every metric that has a fixed name.

    The descriptions restrict nothing: a metric is there or not as the plan and the dump have it.
    """
    text = (Path(__file__).parents[1] / "results" / "schema.json").read_text(encoding="utf-8")
    document = json.loads(text)
    metrics = document["$defs"]["metrics"]
    metrics["properties"] = {
        row.name: {"description": f"{row.meaning} {row.formula}; {row.unit}.", **metrics["additionalProperties"]}
        for row in DEFINITIONS.values()
    }
    return document
