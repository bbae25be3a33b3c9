"""The help of a command, as plain text: `--help` has what people use, `--help-all` every option.

Which of the two an option stands in, its `Opt` says.  Nothing is boxed, and no choice is broken inside a word.
"""

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Literal, get_args, get_origin

from rlcorr_cli.commands.declared import Declared, Opt

NARROWEST, WIDEST = 40, 120
"""Columns between which help takes the width of the terminal."""
GAP = 2
LONGEST_LEFT = 34
"""Characters of an option with its value; what is said of a longer one begins on the next line."""
HELP = ("-h, --help", "Show this help.")
HELP_ALL = "--help-all"


def help_text(command: str, about: str, options: Mapping[str, Declared], examples: Sequence[str], *, full: bool) -> str:
    """What `rlcorr COMMAND --help` prints, or with `full` what `--help-all` does."""
    width = min(max(shutil.get_terminal_size().columns, NARROWEST), WIDEST)
    shown = [(option, option.by) for option in options.values() if isinstance(option.by, Opt) and not option.by.hidden]
    arguments = [(by.metavar or option.name.upper(), by.help) for option, by in shown if not option.panel]
    usage = f"Usage: rlcorr {command} [OPTIONS] {' '.join(name for name, _ in arguments)}"
    panels: dict[str, list[tuple[str, str]]] = {}
    n_left_out = 0
    for option, by in shown:
        if option.panel and (full or not by.rare):
            panels.setdefault(option.panel, []).append((_written(option, by), _about(option, by)))
        n_left_out += bool(option.panel) and not full and by.rare
    panels.setdefault(next(reversed(panels), "Options"), []).append(HELP)
    # Where the right column begins.
    longest = min(LONGEST_LEFT, width // 2 - 2 * GAP)
    every = (*arguments, *(row for rows in panels.values() for row in rows))
    left = GAP + max(len(name) for name, _ in every if len(name) <= longest) + GAP
    lines = [
        usage.rstrip(),
        "",
        *textwrap.wrap(about, width),
        "",
        *_rows(arguments, left, width),
        *([""] if arguments else []),
    ]
    for panel, rows in panels.items():
        lines += [panel, *_rows(rows, left, width), ""]
    if n_left_out:
        lines += [f"`rlcorr {command} {HELP_ALL}` has {n_left_out} more options.", ""]
    return "\n".join([*lines, *examples])


def _written(option: Declared, by: Opt) -> str:
    """An option as it is typed: '--mode <decoupled|bypass>'."""
    flags = ", ".join(sorted(option.flags, key=len))
    if option.typed is bool:
        return flags
    kinds = (option.typed, *get_args(option.typed))
    choices = next((get_args(kind) for kind in kinds if get_origin(kind) is Literal), ())
    plain = "NUMBER" if {int, float} & {*kinds} else "TEXT"
    value = by.metavar or (f"<{'|'.join(choices)}>" if choices else plain)
    return f"{flags} {value}"


def _about(option: Declared, by: Opt) -> str:
    """What is said of an option, with its default where that is a value of one's own."""
    default = option.default
    tells = default is None or default is False or default == [] or "default" in by.help
    return by.help if tells else f"{by.help} [default: {default}]"


def _rows(rows: Sequence[tuple[str, str]], left: int, width: int) -> list[str]:
    lines: list[str] = []
    for name, about in rows:
        head = " " * GAP + name
        text = textwrap.wrap(about, width - left, break_on_hyphens=False, break_long_words=False)
        if len(head) + GAP > left:
            lines += [head, *(" " * left + line for line in text)]
        else:
            lines += [head.ljust(left) + (text[0] if text else ""), *(" " * left + line for line in text[1:])]
    return [line.rstrip() for line in lines]
