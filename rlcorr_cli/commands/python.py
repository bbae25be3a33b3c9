"""A command's function as Python sees it: with its whole signature and documentation, and errors that name arguments.

All of it follows from the declarations.
"""

from collections.abc import Callable
from functools import wraps
from inspect import Signature, cleandoc
from textwrap import fill
from typing import Any

from rlcorr_cli.commands.declared import Declared, Opt, declared, refuse_wrong
from rlcorr_cli.errors import RlcorrError, as_arguments


def for_python(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with every argument in its signature and its documentation, and errors that speak of arguments."""
    every = [each for each in declared(function) if not (isinstance(each.by, Opt) and each.by.hidden)]
    every.sort(key=lambda each: each.parameter.kind)
    signature = Signature([each.parameter.replace(annotation=each.type) for each in every])

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
            error.word(as_arguments)
            if error.hint:
                error.add_note(error.hint)  # tracebacks show it below the message
            raise

    text = cleandoc(function.__doc__ or "")
    told = [_told(each) for each in every if each.by is not None]
    speaking.__doc__ = "\n".join((text, "", "Arguments:", *told) if told else (text,))
    speaking.__module__ = "rlcorr_cli.api"
    speaking.__signature__ = signature  # pyrefly: ignore[missing-attribute]  # what inspect looks for
    return speaking


def _told(each: Declared) -> str:
    """An argument's lines in the documentation."""
    text = getattr(each.by, "help", "").removesuffix(" Repeatable.")
    if isinstance(each.by, Opt):
        text += f" {each.by.python}" if each.by.python else ""
    return fill(f"{each.name}: {text}", 100, initial_indent="    ", subsequent_indent=" " * 8, break_on_hyphens=False)
