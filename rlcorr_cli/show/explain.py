"""What there is to say of a name, from the tables that the code uses: `explain`, and the manual's page `metrics`.

A name is looked for among metrics, then among presets, bad rows, causes, columns and profiles, whose tables are loaded
for a name of no metric alone, then among statistics, words and symbols, and last among the keys of JSON outputs, whose
schema is here, too.  Words are those of the manual's page `glossary`, where each is written as `- **name** (also:
other, names): its meaning.`  The meaning of a column heading that shows a metric ends with "The metric NAME.", and the
metric's definition stands below it.  Nothing here loads torch or numpy.

`python -m rlcorr_cli.show.explain` writes the page `metrics`, which says the same of every metric.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcorr_cli.errors import UsageError, as_flags
from rlcorr_cli.frozen import frozen
from rlcorr_cli.metrics.catalog import DEFINITIONS, GROUPS, define, explained_names, logged_as
from rlcorr_cli.metrics.framework_names import LOGGED, RELEASES, VERL_DIFFERENCES, VERL_NAMES, VERL_PREFIXES
from rlcorr_cli.metrics.metric import MEASURED_ON, SYMBOLS, Metric, symbols_in
from rlcorr_cli.plans.plan import STATISTICS
from rlcorr_cli.results.rules import RULES
from rlcorr_cli.show.pages import MANUAL
from rlcorr_cli.show.paragraphs import indented, symbol_lines, symbol_lines_of_prose
from rlcorr_cli.show.stdout import emit

if TYPE_CHECKING:
    from rlcorr_cli.causes.table import Cause

LISTS = "`rlcorr help metrics`, `rlcorr help diagnose` and `rlcorr help glossary` list names."
"""The hint where no name is given, or one that no other is like."""

_OF_A_PATH = re.compile(r"(?<=.)(/(all|mean|avg|max|min|std|sum|median))+$")
"""What a path ends in that says no more than which number of a name it is."""


# The glossary.

_TERM = re.compile(r"- \*\*(?P<name>.+?)\*\*(?: \(also: (?P<also>.*?)\))?: (?P<meaning>.+)")
_METRIC = re.compile(r"The metric (\w+)\.$")


@frozen(kw_only=True)
class Term:
    """A word and what it means, in whole sentences.  also: other words for it.  metric: the one that it heads in a
    table, if any."""

    name: str
    meaning: str
    also: tuple[str, ...] = ()
    metric: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The name and the other words for it."""
        return (self.name, *self.also)


def read_glossary(page: str) -> dict[str, list[Term]]:
    """The terms of a page below each of its headings.  A line of a list that is no term is a ValueError."""
    sections = (section.partition("\n")[::2] for section in page.split("\n## ")[1:])
    return {heading: [_term(item) for item in body.split("\n- ")[1:]] for heading, body in sections}


def _term(item: str) -> Term:
    """A term of its item in a list, whose lines are joined."""
    found = _TERM.fullmatch(" ".join(f"- {item}".split()))
    if found is None:
        raise ValueError(f"no term of the glossary: {item}")
    also, metric = found["also"], _METRIC.search(found["meaning"])
    return Term(
        name=found["name"],
        meaning=found["meaning"],
        also=tuple(also.split(", ")) if also else (),
        metric=metric[1] if metric else "",
    )


GLOSSARY: Mapping[str, Sequence[Term]] = read_glossary((MANUAL / "glossary.md").read_text(encoding="utf-8"))
"""Heading of the page -> its terms."""


def key_of(name: str) -> str:
    """What a name is looked up by: `seq ESS`, `seq-ess` and `seq_ess` are the same, and so are `1%` and `1 %`; single
    letters keep their case."""
    words = name.strip().replace(" %", "%")
    return words if len(words) == 1 else re.sub(r"[\s_-]+", "_", words.lower())


BY_KEY: Mapping[str, Term] = {
    key_of(name): term for terms in GLOSSARY.values() for term in terms for name in term.names
}
"""A name's key -> its term."""


# A name on a terminal.


def print_explanation(asked: str) -> None:
    """Print all that a name stands for; an unknown name is a UsageError with similar names."""
    name, key = asked.strip(), key_of(asked)
    lines = _lines_on(name, key)
    if not lines:  # of what stands before a slash frameworks make groups
        name, key = (_OF_A_PATH.sub("", text).rsplit("/", 1)[-1] for text in (name, key))
        lines = _lines_on(name, key) or _key_of_json(key)
    if not lines:
        close = near_misses(key_of(asked), explainable_names())
        raise UsageError(f"Unknown name '{asked}'.", f"Nearest: {', '.join(close)}." if close else LISTS)
    emit("\n".join(lines) + "\n")


def _lines_on(name: str, key: str) -> list[str]:
    """The lines on everything of this name; a symbol only in its own case, as S and s are not the same."""
    definition = define(key)
    # No other table has a metric's name.
    others = list(_of_no_metric(name, key)) if definition is None else [about_metric(definition)]
    parts = (*others, _statistic_lines(key), _glossary_word(name, key, definition), _symbol_lines(name))
    return [line for part in parts if part for line in (*part, "")][:-1]


def explainable_names() -> list[str]:
    """Every name that can be explained but symbols, what depends on a plan, and what takes quoting in a shell."""
    from rlcorr_cli.causes.table import ALL_CAUSES
    from rlcorr_cli.plans.presets import ALIASES, PRESETS
    from rlcorr_cli.reading.bad_rows import PROBLEMS
    from rlcorr_cli.reading.names import COLUMNS

    words = [key for key in BY_KEY if re.fullmatch(r"\w{2,}", key)]
    problems = (*(row.name for row in PROBLEMS), *ALL_CAUSES)
    tables = (explained_names(), STATISTICS, PRESETS, ALIASES, problems, COLUMNS, RELEASES, words)
    return list(dict.fromkeys(name for table in tables for name in table))


def near_misses(name: str, known: Iterable[str]) -> list[str]:
    """Up to three known names: those a few typing errors away, nearest first, then those that contain the name."""
    allowed = max(1, len(name) // 3)
    distances = {other: _edit_distance(name, other) for other in known if abs(len(other) - len(name)) <= allowed}
    close = sorted((other for other, n_edits in distances.items() if n_edits <= allowed), key=distances.__getitem__)
    holding = sorted((other for other in known if len(name) > 2 and name in other), key=len)
    return list(dict.fromkeys([*close, *holding]))[:3]


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
    lines = [definition.name, *indented(definition.formula), *symbol_lines(definition.formula)]
    return [*lines, *indented(definition.meaning, definition.note, *metric_facts(definition))]


def metric_facts(definition: Metric) -> list[str]:
    """What there is to say of a metric beside its meaning, a sentence or two each, as the manual's page has it."""
    name, ideal, logged = definition.name, definition.ideal, logged_as(definition.name)
    lines = (
        f"Unit: {definition.unit}.{'' if ideal is None else f' Ideal: {ideal:g}.'}" if definition.unit else "",
        f"Typical: {definition.typical}." if definition.typical else "",
        f"Worry: {definition.worry}" if definition.worry else "",
        *(f"Rule ({rule.severity}): {rule.limits}. {rule.remedy}" for rule in RULES if rule.metric == name),
        f"Source: {definition.source}." if definition.source else "",
        f"Also logged as: {', '.join(logged)}." if logged else "",
    )
    return [line for line in lines if line]


def _symbol_lines(name: str) -> list[str]:
    """The lines on a symbol, with those that its meaning is said in."""
    if name not in SYMBOLS:
        return []
    return [name, *indented(f"Symbol: {SYMBOLS[name]}."), *symbol_lines(" ".join(list(symbols_in(name))[1:]))]


def _statistic_lines(name: str) -> list[str]:
    """The lines on a statistic that rejections can bound."""
    if name not in STATISTICS:
        return []
    row = STATISTICS[name]
    budget = " A budget may be kept on it, too." if row.budgetable else ""
    return [name, *indented(f"Rejection statistic: {row.formula}.{budget}"), *symbol_lines(row.formula)]


def _of_no_metric(name: str, key: str) -> Iterator[list[str]]:
    """The lines on a preset, a class of bad rows, a cause, a column and a profile of this name."""
    from rlcorr_cli.causes.table import ALL_CAUSES
    from rlcorr_cli.plans.presets import ALIASES, PRESETS
    from rlcorr_cli.reading.bad_rows import PROBLEMS
    from rlcorr_cli.show.presets import about_preset, plan_in_one_line

    preset = PRESETS.get(ALIASES.get(key, key))
    if preset is not None:
        yield [*about_preset(preset), *symbol_lines_of_prose(preset.when, plan_in_one_line(preset.plan))]
    for row in (row for row in PROBLEMS if row.name == key):
        kind = "Class of bad rows: --on-bad-row says what is done about them."
        yield [key, *indented(row.meaning, kind, f"Fix: {as_flags(row.fix)}", f"Seen in: {row.seen_in}.")]
    if key in ALL_CAUSES:
        yield _cause_lines(ALL_CAUSES[key])
    yield _column_lines(name)
    if name in RELEASES:
        yield [name, *indented(f"--profile {name}: {RELEASES[name]}")]


def _cause_lines(row: "Cause") -> list[str]:
    """The lines on a cause: what it is, how it looks, how sure one can be, what else looks like it, and what to do."""
    from rlcorr_cli.causes.table import KINDS

    texts = (
        row.meaning,
        f"Cause {KINDS[row.kind]}.",
        f"How it looks: {row.looks}",
        f"How sure one can be: {row.certainty}",
        f"What else looks like it: {row.alike}",
        f"What to do: {row.advice}",
        f"Source: {row.source}." if row.source else "",
    )
    return [row.name, *indented(*texts)]


def _column_lines(name: str) -> list[str]:
    """The lines on a column of a dump, by its canonical name or a framework's."""
    from rlcorr_cli.reading.names import ALIASES, AMBIGUOUS, COLUMNS

    if name in COLUMNS:
        aliases, unsure = (", ".join(table.get(name, ())) for table in (ALIASES, AMBIGUOUS))
        also = f"Also read from {aliases}." if aliases else ""
        named = f"Only where --map says so: {unsure}." if unsure else ""
        return [name, *indented(f"Column of a dump: {COLUMNS[name]}.", also, named)]
    certain, unsure = ([column for column in table if name in table[column]] for table in (ALIASES, AMBIGUOUS))
    if not certain and not unsure:
        return []
    asked = "" if certain else " where --map says so: frameworks mean different things by it"
    return [name, *indented(f"Column of a dump, read as {' or '.join((*certain, *unsure))}{asked}.")]


def _glossary_word(name: str, key: str, shown: Metric | None) -> list[str]:
    """The lines on a word of the glossary, with the metric that a heading stands for; none if that is shown already."""
    term = BY_KEY.get(key)
    metric = define(term.metric) if term is not None and term.metric else None
    if term is None or (metric is not None and metric is shown):
        return []
    also = f"Also: {', '.join(other for other in term.names if other != name)}." if len(term.names) > 1 else ""
    lines = [name, *indented(term.meaning, also), *symbol_lines_of_prose(term.meaning)]
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
            near = near_misses(name, outputs)
            hint = f"Nearest: {', '.join(near)}." if near else f"There are {', '.join(outputs)}."
            raise UsageError(f"There is no output '{name}' with a schema.", hint)
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


# The manual's page of metrics.

METRICS_PAGE = MANUAL / "metrics.md"

_METRICS_HEAD = f"""# Metrics

Every metric that a report prints: its formula, what it means, its value if the policies are equal (ideal), typical
sizes and when to worry. `rlcorr explain NAME` prints the same, also for a framework's name of it.

A metric without data is `null` in JSON and a dash in text. `kept_NAME` is the metric NAME over the tokens that a plan's
rejections keep. Typical sizes are of one model, sampled by engines of three precisions ({", ".join(MEASURED_ON)})
and scored again in fp32: the files of `sample_data`.
"""


def metrics_page() -> str:
    """The manual's page of metrics as Markdown."""
    rules = [(f"`{rule.metric}`", f"{rule.severity}s", rule.limits) for rule in RULES]
    statistics = [(f"`{row.name}`", row.formula) for row in STATISTICS.values()]
    tables = {
        "Symbols": _markdown_table(("symbol", "meaning"), [(f"`{symbol}`", text) for symbol, text in SYMBOLS.items()]),
        "Default rules": _markdown_table(("metric", "a broken rule", "limits"), rules),
        "What rejections bound": _markdown_table(("statistic", "formula"), statistics),
    }
    lists = [line for heading, rows in tables.items() for line in (f"## {heading}", "", *rows, "")]
    groups = [line for heading, rows in GROUPS.items() for line in (f"## {heading}", "", *_metric_sections(rows))]
    return "\n".join([_METRICS_HEAD, *lists, *groups, *_names_in_logs()])


def _metric_sections(rows: Sequence[Metric]) -> Iterator[str]:
    """A heading of each, the formula, and what there is to say, a line each."""
    for row in rows:
        yield from (f"### {row.name}", "", f"`{row.formula}`", "", row.meaning, "")
        yield from (*(f"- {fact}" for fact in metric_facts(row)), "")


def _names_in_logs() -> list[str]:
    """Names on other dashboards, and where their arithmetic departs from ours."""
    rows = [
        (row.framework, f"`{row.name}`", f"`{row.canonical}`" if row.canonical else "none", row.note) for row in LOGGED
    ]
    for name in sorted(VERL_NAMES):
        rows.append(("verl", f"`{VERL_PREFIXES[0]}{name}`", f"`{name}`", VERL_DIFFERENCES.get(name, "")))
    head = ("framework", "name there", "metric", "what differs")
    return [
        "## Names in frameworks' logs",
        "",
        *_markdown_table(head, sorted(rows, key=lambda row: row[0].lower())),
        "",
    ]


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return [f"| {' | '.join(row)} |" for row in cells]


if __name__ == "__main__":
    METRICS_PAGE.write_text(metrics_page(), encoding="utf-8")
