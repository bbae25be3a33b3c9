"""A command's function as Python sees it: with its whole signature and documentation, and messages without flags.

All of it follows from the declarations.  Messages inside the package name flags; `as_arguments` says them as arguments.
"""

import re
from collections.abc import Callable, Iterable
from functools import cache, wraps
from inspect import Signature, cleandoc
from textwrap import fill
from typing import Any, Literal, get_args, get_origin

from rlcorr_cli.commands.declared import Declared, Opt, declared, options, refuse_wrong
from rlcorr_cli.errors import RlcorrError

NUMBER = r"-?(?:[\d.]*\d(?:e-?\d+)?\b|nan\b|inf\b)"
PAIR = r"[^\s=]+=[^\s,;:]*[^\s,;:.]"
TEXT = r"[\w/-]+[._:][\w.,:/-]*\w|[A-Z]+\b|step\b"
"""What is a value and no word of a sentence: token_is, report.json, k3.token:,0.01, COLUMN."""

Flags = dict[str, Declared]
"""Flag -> its option."""

_FLAG = re.compile(r"(?<![\w-])(?P<flag>--[a-z][a-z-]*[a-z]|-o)(?![\w-])")
_COMMAND = re.compile(r"rlcorr (?P<command>[a-z]+) DUMP(?P<words>(?: [a-z_]+=(?:\"[^\"]*\"|[^\s`]+))+)?")


def for_python(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with every argument in its signature and its documentation, and errors that speak of arguments."""
    every = [each for each in declared(function) if not (isinstance(each.by, Opt) and each.by.hidden)]
    every.sort(key=lambda each: each.parameter.kind)
    signature = Signature([each.parameter.replace(annotation=each.type) for each in every])
    own = _flags((function,))

    @wraps(function)
    def speaking(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{function.__name__}() {error}") from None
        try:
            refuse_wrong(every, given)
            return function(*args, **kwargs)
        except RlcorrError as error:
            error.word(lambda text: as_arguments(text, {**all_flags(), **own}))
            if error.hint:
                error.add_note(error.hint)  # tracebacks show it below the message
            raise

    text = as_arguments(cleandoc(function.__doc__ or ""), own)
    told = [_told(each, own) for each in every if each.by is not None]
    speaking.__doc__ = "\n".join((text, "", "Arguments:", *told) if told else (text,))
    speaking.__module__ = "rlcorr_cli.api"
    speaking.__signature__ = signature  # pyrefly: ignore[missing-attribute]  # what inspect looks for
    return speaking


def as_arguments(text: str, flags: Flags) -> str:
    """A message with its flags said as arguments: 'Use --device cpu.' -> 'Use device="cpu".'"""
    words: list[str] = []
    end = 0
    for match in _FLAG.finditer(text):
        if match["flag"] not in flags or match.start() < end:
            continue
        option = flags[match["flag"]]
        value = re.compile(rf"[ =](?P<value>{_pattern(option)})").match(text, match.end())
        words += [text[end : match.start()], _written(option, value and value["value"])]
        end = match.end() if value is None else value.end()
    text = "".join((*words, text[end:]))
    return _COMMAND.sub(lambda call: f"{call['command']}({', '.join(('dumps', *(call['words'] or '').split()))})", text)


def _told(each: Declared, flags: Flags) -> str:
    """An argument's lines in the documentation."""
    text = as_arguments(getattr(each.by, "help", ""), flags).removesuffix(" Repeatable.")
    if isinstance(each.by, Opt):
        text += f" {each.by.python}" if each.by.python else ""
    return fill(f"{each.name}: {text}", 100, initial_indent="    ", subsequent_indent=" " * 8, break_on_hyphens=False)


def _pattern(option: Declared) -> str:
    """What a value of an option looks like, behind its flag in a message."""
    choices = [choice for member in (option.typed, *get_args(option.typed)) for choice in get_args(member)]
    if get_origin(option.typed) is Literal or any(get_origin(each) is Literal for each in get_args(option.typed)):
        return "|".join(rf"{choice}\b" for choice in choices if isinstance(choice, str))
    if option.typed is bool:
        return r"(?!)"
    if {int, float} & {option.typed, *get_args(option.typed)}:
        return NUMBER
    metavar = getattr(option.by, "metavar", None) or ""
    if "=" in metavar:
        return PAIR
    named = [rf"{name}\b" for name in metavar.strip("<>").split("|") if name.islower()]
    return "|".join((TEXT, *named))


def _written(option: Declared, value: str | None) -> str:
    """An option, and its value if it stands there, as an argument."""
    if option.typed is bool:
        return f"{option.name}=True"
    if value is None:
        return option.name
    key, equals, amount = value.partition("=")
    shown = amount if equals else value
    quoted = shown if re.fullmatch(NUMBER, shown) else f'"{shown}"'
    return f'{option.name}={{"{key}": {quoted}}}' if equals else f"{option.name}={quoted}"


def _flags(functions: Iterable[Callable[..., Any]]) -> Flags:
    """Every flag of those functions; of the same flag twice the first."""
    flags: Flags = {}
    for function in functions:
        for option in options(function):
            for flag in option.flags:
                flags.setdefault(flag, option)
    return flags


@cache
def all_flags() -> Flags:
    """Every flag of all commands."""
    from rlcorr_cli.commands import app

    return _flags(app.function(command) for command in app.COMMANDS)
