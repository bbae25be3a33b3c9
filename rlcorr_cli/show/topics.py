"""The topics of `explain`, and every name that stands for no number: presets, causes, columns, corrections, frameworks.

How `compare` chooses a plan is here, too.  The limits of the choice stand in words because their module,
`results/recommend.py`, loads numpy; a test holds the two together.
"""

import re
import textwrap
from collections.abc import Iterable, Sequence

from rlcorr_cli.causes.table import ALL_CAUSES, ANOMALIES, KINDS, Cause
from rlcorr_cli.metrics.catalog import GROUPS, names
from rlcorr_cli.metrics.framework_names import RELEASES
from rlcorr_cli.metrics.metric import SYMBOLS, Metric
from rlcorr_cli.plans.plan import STATISTICS
from rlcorr_cli.plans.presets import ALIASES as PRESET_ALIASES
from rlcorr_cli.plans.presets import PRESETS, SCOPE_TERMS, TERMS, families, presets_with
from rlcorr_cli.reading.bad_rows import PROBLEMS
from rlcorr_cli.reading.names import ALIASES, AMBIGUOUS, COLUMNS
from rlcorr_cli.results.rules import RULES
from rlcorr_cli.show.glossary import BY_KEY, GLOSSARY
from rlcorr_cli.show.paragraphs import WIDTH, indented, where_in
from rlcorr_cli.show.presets import about_family, about_preset, records
from rlcorr_cli.show.stdout import emit

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


def known() -> list[str]:
    """Every name that can be explained but symbols, what depends on a plan, and what takes quoting in a shell."""
    problems = (*(row.name for row in PROBLEMS), *ALL_CAUSES)
    words = [key for key in BY_KEY if re.fullmatch(r"\w{2,}", key)]
    corrections = (STATISTICS, PRESETS, PRESET_ALIASES, TERMS, SCOPE_TERMS, FLAGS)
    tables = (names(), *corrections, problems, TOPICS, COLUMNS, RELEASES, words)
    return list(dict.fromkeys(name for table in tables for name in table))


def listed(name: str) -> list[str]:
    """The names of a topic, one line each."""
    match name:
        case "metrics":
            return [line for heading, rows in GROUPS.items() for line in (heading, *_metric_table(rows), "")][:-1]
        case "presets":
            return _table((row.name, row.when) for row in PRESETS.values())
        case "rules":
            return _table((rule.metric, f"{rule.severity}: should be {rule.limits}") for rule in RULES)
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
            return [*_about_weights(), *_metric_table(GROUPS["Importance weights"])]
        case "profiles":
            return _table(RELEASES.items())
        case "symbols":
            return _table(SYMBOLS.items())
        case "compare":
            return about_choice()
        case _:
            return []


def _metric_table(rows: Sequence[Metric]) -> list[str]:
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


def named(name: str, key: str) -> list[list[str]]:
    """The lines on a preset, a cause, a column, a correction and a framework of this name; empty without one."""
    preset = PRESETS.get(PRESET_ALIASES.get(key, key))
    return [
        [] if preset is None else [*about_preset(preset), *where_in(preset.when, records(preset.plan))],
        _problem(key),
        _column(name),
        _term(key),
        _flag(key),
        _framework(key),
    ]


def _problem(name: str) -> list[str]:
    """The lines on a class of bad rows, or on a cause; none of another name."""
    for row in (row for row in PROBLEMS if row.name == name):
        kind = "Class of bad rows: --on-bad-row says what is done about them."
        return [name, *indented(row.meaning, kind, f"Fix: {row.fix}", f"Seen in: {row.seen_in}.")]
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
    return [row.name, *indented(*texts)]


def _term(name: str) -> list[str]:
    """The lines on a kind of correction, with its presets, or on a rejection's scope."""
    if name in SCOPE_TERMS:
        return [name, *indented(f"Scope of a rejection. {SCOPE_TERMS[name]}"), *where_in(SCOPE_TERMS[name])]
    if name not in TERMS:
        return []
    rows = presets_with(name)
    table = _table(((row.name, row.when) for row in rows), "    ")
    return [name, *indented(TERMS[name]), *where_in(TERMS[name]), *table]


def _flag(name: str) -> list[str]:
    """The lines on a flag of `compare`."""
    if name not in FLAGS:
        return []
    return [name, *indented(f"Flag of `compare`: {FLAGS[name]}", "`rlcorr explain compare` says how it is used.")]


def _about_weights() -> list[str]:
    """How a plan weights tokens, before the table of what is measured."""
    text = (
        "An importance weight is the ratio of both policies: of a token e^l, of a whole sequence e^S, or their "
        "geometric mean e^g (--is token, sequence, geometric), clamped to bounds or 0 outside them (--is "
        "token:0.5,5:zero). `rlcorr presets` lists those of frameworks. What is measured of them:"
    )
    return ["weights", *indented(text), *where_in(text)]


def _column(name: str) -> list[str]:
    """The lines on a column of a dump, by its canonical name or a framework's."""
    if name in COLUMNS:
        aliases = ", ".join(ALIASES.get(name, ()))
        unsure = ", ".join(AMBIGUOUS.get(name, ()))
        also = f"Also read from {aliases}." if aliases else ""
        named = f"Only where --map says so: {unsure}." if unsure else ""
        return [name, *indented(f"Column of a dump: {COLUMNS[name]}.", also, named)]
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
