"""`presets` on a terminal, from the tables the code uses; loads neither torch nor numpy."""

import textwrap
from typing import TYPE_CHECKING

from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.plans.presets import COMPARED, PRESET_FAMILIES, PRESETS, Preset, families, of_family, preset
from rlcorr_cli.show.paragraphs import WIDTH, indented
from rlcorr_cli.show.stdout import emit, emit_json

if TYPE_CHECKING:
    from rlcorr_cli.frameworks.chosen import ChosenPlan
    from rlcorr_cli.frameworks.write import Lines

DEEDS = {
    "look": "change nothing",
    "weigh": "importance weights",
    "reject": "leave tokens or sequences out",
    "both": "reject, and weigh the rest",
}
"""What a plan does to a batch, in a word and in a few."""


def print_presets(name: str | None = None) -> None:
    """Print a table of the presets, by framework and what they do.

    Of a framework's name, a line on each of its presets; of `list`, on every one; of a preset's name, all of that one.
    """
    if name is None:
        emit("\n".join(_overview()) + "\n")
    elif keys := (*PRESET_FAMILIES,) if name == "list" else families(name):
        lines = [line for key in keys for line in about_family(key)]
        takes = ", --preset NAME takes it" if name == "list" else ""
        emit("\n".join([*lines, "", f"`rlcorr presets NAME` shows one with its plan{takes}.", ""]))
    else:
        print_preset(name)


def _overview() -> list[str]:
    """Every name, by framework and by what a plan does, to be taken in at once."""
    width = max(map(len, PRESET_FAMILIES)) + 2
    lines = [*textwrap.wrap("  ".join(f"{deed}: {what}." for deed, what in DEEDS.items()), WIDTH), ""]
    for key in PRESET_FAMILIES:
        head = f"{key:{width}}"
        for deed in DEEDS:
            names = [shortest_name(row) for row in of_family(key) if _deed(row.plan) == deed]
            start = f"{head}{deed:8}"
            indent = " " * len(start)
            lines += textwrap.wrap("  ".join(names), WIDTH, initial_indent=start, subsequent_indent=indent)
            head = " " * width if names else head
    return [
        *lines,
        "",
        "`rlcorr presets trl` says what each preset of TRL is for, `rlcorr presets list`",
        "says it for all, and `rlcorr presets NAME` shows one with its plan. Use a name",
        "with --preset.",
    ]


def _deed(plan: Plan) -> str:
    """Which of DEEDS a plan does."""
    if plan.weighting is not None:
        return "both" if plan.rules else "weigh"
    return "reject" if plan.rules else "look"


def print_presets_json(name: str | None = None) -> None:
    """The same presets for programs."""
    chosen = [row for key in families(name) for row in of_family(key)] if name else []
    file = _plan_file(name) if name else None
    if file is not None:
        emit_json([{**file.plan.to_dict(), "aliases": (), "when": "", "source": name}])
        return
    rows = chosen or (list(PRESETS.values()) if name in (None, "list") else [preset(name)])
    emit_json([{**row.plan.to_dict(), "aliases": row.aliases, "when": row.when, "source": row.source} for row in rows])


def about_family(key: str) -> list[str]:
    """A family's heading, then each preset under the name that is quickest to type."""
    rows = [(shortest_name(row), row.when) for row in of_family(key)]
    width = max(len(name) for name, _ in rows) + 2
    indent = " " * (width + 2)
    lines = (textwrap.wrap(f"  {name:{width}}{when}", WIDTH, subsequent_indent=indent) for name, when in rows)
    return [PRESET_FAMILIES[key], *(line for wrapped in lines for line in wrapped)]


def shortest_name(row: Preset) -> str:
    """The shortest of a preset's name and aliases."""
    return min((row.name, *row.aliases), key=len)


def print_preset(name: str) -> None:
    """Print one preset, with the framework's config and the plan file that mean the same; of a file, how it is read."""
    from rlcorr_cli.plans.files import plan_to_toml

    file = _plan_file(name)
    if file is not None:
        notes = [line for note in file.notes for line in _comment(note)]
        emit("\n".join([*notes, "# As a plan file, for --plan:", plan_to_toml(file.plan)]))
        return
    row = preset(name)
    config, lines = row.config, about_preset(row)
    if config is not None:
        profile = f"--profile {config.reader} " if config.reader else ""
        lines += ["", f"# In the framework's own words ({profile}--plan FILE reads it):", config.text]
    emit("\n".join([*lines, "", "# As a plan file, for --plan:", plan_to_toml(row.plan)]))


def print_lines(name: str | None, framework: str) -> None:
    """Print a plan as lines of a framework's config, or that it cannot express it; without a name, those of each plan
    that `compare` takes."""
    from rlcorr_cli.frameworks.write import lines_of

    file = _plan_file(name) if name else None
    plans = [file.plan] if file else [preset(name).plan] if name else [row.plan for row in COMPARED]
    written = [(plan, lines_of(plan, framework)) for plan in plans]
    blocks = [_as_lines(plan, lines) for plan, lines in written if lines is not None]
    none = [plan for plan, lines in written if lines is None]
    if none:
        what = plan_in_one_line(none[0]) if name else "see presets NAME for what each is"
        others = [row.name for row in PRESETS.values() if name and lines_of(row.plan, framework)]
        also = f" It has {', '.join(others)}." if others else ""
        names = ", ".join(plan.name for plan in none)
        blocks.append(
            _comment(f"{names}: {framework}'s config cannot express {'it' if name else 'these'}: {what}.{also}")
        )
    emit("\n\n".join("\n".join(block) for block in blocks) + "\n")


def _plan_file(name: str) -> "ChosenPlan | None":
    """What a plan file or a framework's config says; None of a name that is no file's."""
    from rlcorr_cli.plans.files import SUFFIXES

    if not name.endswith(SUFFIXES):
        return None
    from rlcorr_cli.frameworks.read import read_plan

    return read_plan(name, None)


def _as_lines(plan: Plan, lines: "Lines") -> list[str]:
    about = f"{plan.name} for {lines.framework}. {' '.join(lines.notes)}".strip()
    return [*_comment(about), *([f"# as flags: {lines.flags}"] if lines.flags else []), lines.text]


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="# ", subsequent_indent="# ")


def about_preset(row: Preset) -> list[str]:
    """What a preset is for, its other names, records, source and note, as lines."""
    also = f"Also named {', '.join(row.aliases)}." if row.aliases else ""
    lines = [row.name, *indented(row.when), *indented(also), *indented(plan_in_one_line(row.plan))]
    return [*lines, *indented(f"Source: {row.source}."), *indented(row.note)]


def plan_in_one_line(plan: Plan) -> str:
    """A plan's records in one line."""
    parts: list[str] = [plan.mode, plan.loss]
    if plan.weighting is not None:
        parts.append(f"weights {plan.weighting.rule}")
    parts += [f"keeps {rejection.rule} ({rejection.name})" for rejection in plan.rules]
    return "; ".join(parts)
