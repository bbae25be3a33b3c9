"""`explain` on a terminal, from the tables the code uses; loads neither torch nor numpy.

How `compare` chooses a plan, and the JSON Schema of every output, are here, too.  The limits of the choice stand in
words because their module, `results/recommend.py`, loads numpy; a test holds the two together.
"""

import json
import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rlcorr_cli.causes.table import ALL_CAUSES, ANOMALIES, KINDS, Cause
from rlcorr_cli.errors import UsageError, nearest
from rlcorr_cli.metrics.catalog import DEFINITIONS, GROUPS, define, logged_as, names
from rlcorr_cli.metrics.framework_names import RELEASES
from rlcorr_cli.metrics.metric import SYMBOLS, Metric, symbols_in
from rlcorr_cli.plans.plan import STATISTICS
from rlcorr_cli.plans.presets import ALIASES as PRESET_ALIASES
from rlcorr_cli.plans.presets import PRESETS, SCOPE_TERMS, TERMS, families, presets_with
from rlcorr_cli.reading.bad_rows import PROBLEMS
from rlcorr_cli.reading.names import ALIASES, AMBIGUOUS, COLUMNS
from rlcorr_cli.results.rules import RULES, Rule
from rlcorr_cli.show.glossary import BY_KEY, GLOSSARY, key_of
from rlcorr_cli.show.presets import WIDTH, about_family, about_preset, indented, records
from rlcorr_cli.show.stdout import emit

_FORMULA = re.compile(r"\w*\^?\|?\w+\|?\^\w+|\w\^\|?\w\|?|\brho\b|\bA (?=[<>])")

TOPICS = {
    "metrics": "what reports measure",
    "presets": "corrections by name",
    "rules": "what `check` and `analyze` judge by",
    "problems": "what can be wrong with rows and files",
    "causes": "why policies may differ: what `diagnose` names",
    "statistics": "what rejections can bound",
    "terms": "kinds of corrections, and scopes of rejections",
    "glossary": "all other words that reports, pages and helps print",
    "columns": "the columns of a dump, and what frameworks call them",
    "weights": "the weights that a plan can give, and their metrics",
    "profiles": "the numbers of one framework release",
    "symbols": "the letters of formulas",
    "compare": "how `compare` chooses a plan, and what it cannot tell",
}


def print_topics() -> None:
    """Print the topics that `explain` knows."""
    lines = [
        "rlcorr explain NAME defines every name that a report prints: a metric (also",
        "by a framework's name), a preset, a cause, a heading. These list the names:",
        "",
        *_table((f"rlcorr explain {topic}", meaning) for topic, meaning in TOPICS.items()),
    ]
    emit("\n".join(lines) + "\n")


def print_explanation(name: str) -> None:
    """Print a topic's names, or all that a name stands for; an unknown name is a UsageError with similar names."""
    key = key_of(name)
    lines = _topic(key) or _explained(name.strip(), key)
    if not lines:
        close = near_misses(key, known())
        hint = f"Nearest: {', '.join(close)}." if close else "`rlcorr explain` lists the topics."
        raise UsageError(f"Unknown name '{name}'.", hint)
    emit("\n".join(lines) + "\n")


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


def known() -> list[str]:
    """Every name that can be explained but symbols, what depends on a plan, and what takes quoting in a shell."""
    problems = (*(row.name for row in PROBLEMS), *ALL_CAUSES)
    words = [key for key in BY_KEY if re.fullmatch(r"\w{2,}", key)]
    corrections = (STATISTICS, PRESETS, PRESET_ALIASES, TERMS, SCOPE_TERMS, FLAGS)
    tables = (names(), *corrections, problems, TOPICS, COLUMNS, RELEASES, words)
    return list(dict.fromkeys(name for table in tables for name in table))


def _topic(name: str) -> list[str]:
    """The names of a topic, one line each."""
    match name:
        case "metrics":
            return [line for heading, rows in GROUPS.items() for line in (heading, *_metrics(rows), "")][:-1]
        case "presets":
            return _table((row.name, row.when) for row in PRESETS.values())
        case "rules":
            return _table((rule.metric, f"{rule.severity}: should be {limit_of(rule)}") for rule in RULES)
        case "problems":
            return _table((row.name, row.meaning) for row in (*PROBLEMS, *ANOMALIES))
        case "causes":
            return _table((row.name, row.meaning) for row in ALL_CAUSES.values())
        case "statistics":
            return _table((row.name, row.formula) for row in STATISTICS.values())
        case "terms":
            return _table((*TERMS.items(), *SCOPE_TERMS.items()))
        case "glossary":
            return [
                line
                for heading, terms in GLOSSARY.items()
                for line in (heading, *_table(((term.name, term.meaning) for term in terms), indent="  "), "")
            ][:-1]
        case "columns":
            more = "`rlcorr explain old_log_probs` lists what frameworks call that one."
            return [*_table(COLUMNS.items()), "", more]
        case "weights":
            return [*_about_weights(), *_metrics(GROUPS["Importance weights"])]
        case "profiles":
            return _table(RELEASES.items())
        case "symbols":
            return _table(SYMBOLS.items())
        case "compare":
            return about_choice()
        case _:
            return []


def _metrics(rows: Sequence[Metric]) -> list[str]:
    return _table(((row.name, row.meaning) for row in rows), indent="  ")


def _table(rows: Iterable[tuple[str, str]], indent: str = "") -> list[str]:
    """Names and what they are, whole, beside each other in 80 columns."""
    pairs = list(rows)
    width = len(indent) + max((len(name) for name, _ in pairs), default=0) + 2
    return [
        line
        for name, text in pairs
        for line in textwrap.wrap(
            text,
            WIDTH,
            initial_indent=f"{indent}{name}".ljust(width),
            subsequent_indent=" " * width,
            break_on_hyphens=False,
        )
    ]


def _explained(name: str, key: str) -> list[str]:
    """The lines on everything of this name; a symbol only in its own case, as S and s are not the same."""
    definition = define(key)
    preset = PRESETS.get(PRESET_ALIASES.get(key, key))
    parts = [
        [] if definition is None else about_metric(definition),
        _statistic(key),
        [] if preset is None else [*about_preset(preset), *_where_in(preset.when, records(preset.plan))],
        _problem(key),
        _column(name),
        _term(key),
        _flag(key),
        _word(name, key, definition),
        _framework(key),
        _symbol(name),
    ]
    lines = [line for part in parts if part for line in (*part, "")][:-1]
    if not lines and "/" in name:
        return _explained(name.rsplit("/", 1)[-1], key.rsplit("/", 1)[-1])
    return lines or _key_of_json(key)


def about_metric(definition: Metric) -> list[str]:
    """A metric's definition, the default rules on it, and who else logs it, as lines."""
    name = definition.name
    lines = [name, *indented(definition.formula), *_where(definition.formula)]
    lines += [*indented(definition.meaning), *indented(definition.note)]
    ideal = "" if definition.ideal is None else f" Ideal: {definition.ideal:g}, when the policies are the same."
    lines += indented(f"Unit: {definition.unit}.{ideal}")
    if definition.typical:
        lines += indented(f"Typical: {definition.typical}.")
    if definition.worry:
        lines += indented(f"Worry: {definition.worry}")
    for rule in rules_on(name):
        lines += indented(f"Rule ({rule.severity}): {limit_of(rule)}.  {rule.remedy}")
    if definition.source:
        lines += indented(f"Source: {definition.source}.")
    logged = logged_as(name)
    return lines + (indented(f"Also logged as: {', '.join(logged)}.") if logged else [])


def limit_of(rule: Rule) -> str:
    """What a rule asks for, with the metric that is its limit if it has one."""
    return f"{rule}, or {rule.limit} if that is lower" if rule.limit else str(rule)


def rules_on(name: str) -> list[Rule]:
    """The default rules on a metric."""
    return [rule for rule in RULES if rule.metric == name]


def _where(formula: str) -> list[str]:
    """The formula's symbols, one a line: 'where l = a - b, ...'."""
    lines: list[str] = []
    for symbol, meaning in symbols_in(formula).items():
        head = "    where " if not lines else "          "
        lines += textwrap.wrap(
            f"{symbol}: {meaning}", WIDTH, initial_indent=head, subsequent_indent=" " * (len(head) + 2)
        )
    return lines


def _symbol(name: str) -> list[str]:
    """The lines on a symbol, with those that its meaning is said in."""
    if name not in SYMBOLS:
        return []
    return [name, *indented(f"Symbol: {SYMBOLS[name]}."), *_where(" ".join(list(symbols_in(name))[1:]))]


def _where_in(*texts: str) -> list[str]:
    """The symbols of the formulas within sentences: of powers such as e^l, rho and the sign of A, as words may be
    letters of formulas, too."""
    formulas = [formula for text in texts for formula in _FORMULA.findall(text)]
    return _where(" ".join(formulas))


def _statistic(name: str) -> list[str]:
    """The lines on a statistic that rejections can bound."""
    if name not in STATISTICS:
        return []
    row = STATISTICS[name]
    budget = " A budget may be kept on it, too." if row.budgetable else ""
    return [name, *indented(f"Rejection statistic: {row.formula}.{budget}"), *_where(row.formula)]


def _problem(name: str) -> list[str]:
    """The lines on a class of bad rows, or on a cause; none of another name."""
    for row in (row for row in PROBLEMS if row.name == name):
        kind = "Class of bad rows: --on-bad-row says what is done about them."
        return [name, *_paragraphs(row.meaning, kind, f"Fix: {row.fix}", f"Seen in: {row.seen_in}.")]
    return _cause(ALL_CAUSES[name]) if name in ALL_CAUSES else []


def _cause(row: Cause) -> list[str]:
    """The lines on a cause: what it is, how it looks, how sure one can be, what else looks like it, and what to do."""
    texts = (
        row.meaning,
        f"Cause {KINDS[row.kind]}.",
        f"How it looks: {row.looks}",
        f"How sure one can be: {row.certainty}",
        f"What else looks like it: {row.alike}",
        f"What to do: {row.advice}",
        f"Source: {row.source}." if row.source else "",
    )
    return [row.name, *_paragraphs(*texts)]


def _paragraphs(*texts: str) -> list[str]:
    return [line for text in texts for line in indented(text)]


def _term(name: str) -> list[str]:
    """The lines on a kind of correction, with its presets, or on a rejection's scope."""
    if name in SCOPE_TERMS:
        return [name, *indented(f"Scope of a rejection. {SCOPE_TERMS[name]}"), *_where_in(SCOPE_TERMS[name])]
    if name not in TERMS:
        return []
    rows = presets_with(name)
    table = _table(((row.name, row.when) for row in rows), "    ")
    return [name, *indented(TERMS[name]), *_where_in(TERMS[name]), *table]


def _flag(name: str) -> list[str]:
    """The lines on a flag of `compare`."""
    if name not in FLAGS:
        return []
    return [name, *_paragraphs(f"Flag of `compare`: {FLAGS[name]}", "`rlcorr explain compare` says how it is used.")]


def _word(name: str, key: str, shown: Metric | None) -> list[str]:
    """The lines on a word of the glossary, with the metric that a heading stands for; none if that is shown already."""
    term = BY_KEY.get(key)
    metric = define(term.metric) if term is not None and term.metric else None
    if term is None or (metric is not None and metric is shown):
        return []
    also = f"Also: {', '.join(other for other in term.names if other != name)}." if len(term.names) > 1 else ""
    lines = [name, *_paragraphs(term.meaning, also)]
    return lines if metric is None else [*lines, "", *about_metric(metric)]


def _about_weights() -> list[str]:
    """How a plan weights tokens, before the table of what is measured."""
    text = (
        "An importance weight is the ratio of both policies: of a token e^l, of a whole sequence e^S, or their "
        "geometric mean e^g (--is token, sequence, geometric), clamped to bounds or 0 outside them (--is "
        "token:0.5,5:zero). `rlcorr presets` lists those of frameworks. What is measured of them:"
    )
    return ["weights", *indented(text), *_where_in(text)]


def _column(name: str) -> list[str]:
    """The lines on a column of a dump, by its canonical name or a framework's."""
    if name in COLUMNS:
        aliases = ", ".join(ALIASES.get(name, ()))
        unsure = ", ".join(AMBIGUOUS.get(name, ()))
        also = f"Also read from {aliases}." if aliases else ""
        named = f"Only where --map says so: {unsure}." if unsure else ""
        return [name, *_paragraphs(f"Column of a dump: {COLUMNS[name]}.", also, named)]
    meant = [canonical for canonical, names in (*ALIASES.items(), *AMBIGUOUS.items()) if name in names]
    if not meant:
        return []
    asked = " where --map says so: frameworks mean different things by it" if name not in _READ else ""
    return [name, *indented(f"Column of a dump, read as {' or '.join(meant)}{asked}.")]


_READ = {alias for aliases in ALIASES.values() for alias in aliases}


def _framework(key: str) -> list[str]:
    """The lines on a framework or a release of one: its profiles and its presets."""
    releases = {name: text for name, text in RELEASES.items() if _is_of(name.replace("-", "_"), key)}
    presets = [line for family in families(key) for line in about_family(family)]
    if not releases and not presets:
        return []
    profiles = [line for name, text in releases.items() for line in indented(f"--profile {name}: {text}")]
    return [key.replace("_", "-"), *profiles, *presets]


def _is_of(release: str, key: str) -> bool:
    return release == key or release.startswith(f"{key}_")


FLAGS = {
    "moved": "the policies earn different rewards: |advantage_shift| above 0.2 and above three standard errors. "
    "That is staleness; no plan is safe, token weights are the least bad.",
    "outliers": "a few tokens carry the gap: token_ess below 0.9 at a token_tv below 0.05. Only plans that zero or "
    "drop tokens outside bounds are considered, if one of them has an info of at least 0.5.",
    "far": "too far apart for any plan to be safe: token_ess below 0.9 at a token_tv of 0.05 or more, or "
    "token_tv above 0.1. `rlcorr inspect` and `rlcorr analyze` look for the cause.",
    "near": "none of these, and seq_tv below 0.05: there is nothing to correct.",
    "weight": "none of these: use token weights.",
}
"""Every flag with when it holds, in their order."""

_CHOICE = (
    "The plan with the largest worth is recommended. Among plans within 0.01 of it (0.02 if the flag is near), the "
    "one with the fewest records is chosen, then the first of the list; no correction comes last. No plan is "
    "recommended with fewer than 32 sequences, with a largest worth below 0.3, or if the flag is far and no "
    "advantages differ.",
)

_EVIDENCE = (
    "Token weights are the first-order part of the sequence weight (Zheng et al. 2025). They remove nearly all the "
    "bias of a lasting mismatch and add almost no variance. Sequence weights are unbiased and cost 1 / info: on "
    "average they are no better even at 65,536 sequences, and with a cap of 2 they are biased under drift.",
    "Noise that is new in every call biases nothing, so corrections only cost. A dump cannot tell it from lasting "
    "noise: under `weight`, `compare` says what token weights would cost.",
    "Geometric rejection at +-0.001 keeps too little, and if l depends on the reward, it removes the signal itself. "
    "The spread of g falls like 1 / sqrt(n), so it keeps long sequences; rejection on S keeps short ones.",
    "In simulation (tabular policies with exact gradients, 396 settings of eleven kinds of mismatch) the choice lost "
    "0.014 of the best plan's progress at 16,384 sequences, no correction 0.034, sequence weights capped at 2 0.030, "
    "geometric rejection at 0.001 0.36.",
    "The simulation has no collapse that feeds on itself, no sequences of thousands of tokens, and no PPO clip. "
    "`worth`, flags and choice are heuristics; the columns themselves are exact.",
)


def about_choice() -> list[str]:
    """The lines of the topic."""
    lines = [
        "compare",
        *indented("Flags say what kind of gap there is. The first flag that applies is the headline:"),
        "",
    ]
    for name, text in FLAGS.items():
        lines += indented(f"{name}: {text}")
    for heading, paragraphs in (("The choice", _CHOICE), ("Why", _EVIDENCE)):
        lines += ["", heading, *(line for text in paragraphs for line in (*indented(text), ""))][:-1]
    return lines


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
    return [key, *_paragraphs("A key of JSON outputs. `rlcorr explain --schema` prints all of them.", *lines)]


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
