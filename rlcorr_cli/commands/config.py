"""Defaults of a command line: from the nearest rlcorr.toml or pyproject.toml.

The nearest file is looked for from the working directory upward: an rlcorr.toml, or a pyproject.toml with a table
`[tool.rlcorr]`.  Its keys are options without their dashes.  A table named as a command holds for that command alone,
and overrides the keys above it.  Such a file may be another person's: options that act (`Act`) and URIs are
refused in it, and it is named before anything runs.  What is typed overrides it; an option that may be repeated is
replaced as a whole.

`apply` gives the defaults to typer's context and keeps a sentence on where they come from in NOTES, which results and
errors of that command line show.  Python callers have no command line, and so no such defaults.
"""

import os
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from rlcorr_cli.errors import UsageError, nearest, shortened
from rlcorr_cli.places import scheme

FILE, PROJECT = "rlcorr.toml", "pyproject.toml"
TYPED_ALONE = ("json", "debug", "help")
"""Options that are looked for in the arguments themselves, before a line is parsed."""
PLAN_SOURCES = ("preset", "plan")
PLAN_OPTIONS = (*PLAN_SOURCES, "is", "normalize", "rs", "veto")
"""Options that make one plan: where a preset or a plan file is named, those of lower precedence do not hold."""
PATHS = ("FILE", "PATH", "REPORT", "DUMP")
"""What stands for a path in an option's help: such a value in a file is relative to the folder of that file."""
_TABLE = re.compile(rb"^[ \t]*\[[ \t]*tool[ \t]*\.[ \t]*[\"']?rlcorr\b", re.MULTILINE)
"""The head of a table of ours in a pyproject.toml."""

NOTES: ContextVar[tuple[str, ...]] = ContextVar("NOTES", default=())
"""Which options of the command line that is running come from a file, in a sentence."""


def apply(
    context: Any, command: Any, typed: Sequence[Any], names: Container[str], *, every: Callable[[], Iterable[Any]]
) -> None:
    """Set the defaults of a command in typer's context.

    command: typer's command that is about to run.  typed: the parameters typed.  names: of all commands.  every: makes
    all commands; it is slow, and called only where a key is no option of this one.
    """
    options = _options(command)
    path, shared, own = _of_file(command, options, names, every)
    keys = [key for key, option in options.items() if option in typed]
    values = _without_plan(_without_plan(shared, own) | own, keys)
    values = {key: value for key, value in values.items() if key not in keys}
    context.default_map = {options[key].name: value for key, value in values.items()}
    NOTES.set((f"Options from {path}: {', '.join(values)}.",) if values else ())


def _options(command: Any) -> dict[str, Any]:
    """A command's options by their keys in a file."""
    long = (
        (option, flag[2:])
        for option in command.params
        if option.param_type_name == "option"
        for flag in option.opts
        if flag.startswith("--")
    )
    return {key: option for option, key in long}


def _without_plan(values: dict[str, Any], above: Sequence[str] | Mapping[str, Any]) -> dict[str, Any]:
    """Values without those of a plan, where what has precedence over them names another plan."""
    named = any(key in above for key in PLAN_SOURCES)
    return {key: value for key, value in values.items() if not (named and key in PLAN_OPTIONS)}


def _nearest_file() -> tuple[str, dict[str, Any]] | None:
    """The file that holds, as it is called from here, and its table."""
    try:
        here = Path.cwd()
    except OSError:  # the directory is gone
        return None
    for folder in (here, *here.parents):
        for name in (FILE, PROJECT):
            path = folder / name
            # Most projects say nothing of rlcorr, and reading TOML takes a while.
            if not os.path.isfile(path) or (name == PROJECT and not _mentions(path)):
                continue
            from rlcorr_cli.plans.files import load

            called = os.path.relpath(path, here)
            table, _ = load(called, "file of options")
            if name == PROJECT:
                tool = table.get("tool")
                table = tool.get("rlcorr") if isinstance(tool, dict) else None
            if table is None:
                continue
            if not isinstance(table, dict):
                raise UsageError(
                    f"{called}: tool.rlcorr is no table.", 'Write [tool.rlcorr] and a key: group-by = "step".'
                )
            return called, table
    return None


def _mentions(path: Path) -> bool:
    """Whether a pyproject.toml has a table of ours, as far as a look at its lines tells."""
    try:
        return _TABLE.search(path.read_bytes()) is not None
    except OSError:
        return False


def _of_file(
    command: Any, options: Mapping[str, Any], names: Container[str], every: Callable[[], Iterable[Any]]
) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The file that holds, what it says of all commands, and what it says of this one."""
    nearest_file = _nearest_file()
    if nearest_file is None:
        return "", {}, {}
    path, table = nearest_file
    own = table.get(command.name, {})
    if not isinstance(own, dict):
        raise UsageError(f"{path}: {command.name} is no table.", f"Write [{command.name}], and options below it.")
    shared = {key: value for key, value in table.items() if not (key in names and isinstance(value, dict))}
    for key in shared:
        if key not in options:
            known = {name for each in every() for name in _options(each)}
            if key not in known:
                raise _unknown(path, key, "there is no option", known)
    for key in own:
        if key not in options:
            raise _unknown(path, key, f"{command.name} has no option", options)
    for key in (*shared, *own):
        if key in options and (key in TYPED_ALONE or options[key].name in command.callback.acting):
            why = "" if key in TYPED_ALONE else ": it may run a command, write files or connect"
            what = f"{path}: {key} is only read from the command line{why}."
            raise UsageError(what, f"Leave it out; type --{key}.")
    of_all, of_this = (
        {key: _value(path, key, value, options[key]) for key, value in each.items() if key in options}
        for each in (shared, own)
    )
    return path, of_all, of_this


def _unknown(path: str, key: str, what: str, known: Any) -> UsageError:
    close = nearest(key, [name for name in known if name not in TYPED_ALONE], 1)
    return UsageError(f"{path}: {what} {shortened(key, quotes=False)}.", f"Try {close}.")


def _value(path: str, key: str, value: Any, option: Any) -> Any:
    """A value of a file as if it had been typed."""
    wanted = "text or a number"
    if option.is_flag:
        if isinstance(value, bool):
            return value
        wanted = "true or false"
    elif option.multiple:
        wanted = "text, or a list of texts"
        listed = value if isinstance(value, list) else [value]
        if isinstance(value, dict) and "=" in (option.metavar or "") and all(map(_is_plain, value.values())):
            listed = [f"{name}={each}" for name, each in value.items()]
        if all(map(_is_plain, listed)):
            return [_located(path, key, str(each), option) for each in listed]
    elif _is_plain(value):
        return _located(path, key, str(value), option)
    raise UsageError(f"{path}: {key} should be {wanted}, not {shortened(value)}.", "See `rlcorr help ci`.")


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _located(path: str, key: str, text: str, option: Any) -> str:
    """A path of a file of options as it is reached from here, which no name on a hub looks like; any other text as it
    is, but for a URI, which is a UsageError."""
    if scheme(text) not in ("", "file"):
        what = f"{path}: {key} is {shortened(text)}, and a file of options opens no connection."
        raise UsageError(what, f"Leave it out, and type --{key} URI.")
    is_path = (option.metavar or "") in PATHS and text and not scheme(text) and text[0] not in "~-"
    return os.path.join(os.path.dirname(path) or os.curdir, text) if is_path else text
