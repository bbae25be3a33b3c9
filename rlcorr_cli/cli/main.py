"""main(): where every command line comes in, and the one door through which every error leaves.

typer is imported for what needs it: converting arguments goes through pydantic, which takes twice as long as all of
`rlcorr presets` or `rlcorr explain NAME`, so these two go straight to their function when typed without options, and so
does `rlcorr explain --schema [NAME]`.
"""

import errno
import gc
import os
import re
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from typing import NoReturn

from rlcorr_cli.engines import interrupt
from rlcorr_cli.engines.interrupt import Terminated
from rlcorr_cli.errors import OutputError, RlcorrError, not_one_of
from rlcorr_cli.present.stdout import (
    ClosedStdout,
    clean,
    disarmed,
    disarmed_json,
    drop_stdout,
    has_emitted,
    tame_environment,
    write_stderr,
)

_REFUSED_CHOICE = re.compile(
    r"Invalid value for '(?P<option>--[\w-]+)'[^:]*: Value error, '(?P<value>.*)' is not one of (?P<choices>.*)\.",
    re.DOTALL,
)
"""What typer says of a value that is none of an option's choices."""
COMPLETE = "_RLCORR_COMPLETE"
"""The variable in which a shell says that it asks what could come next."""
_UNFOLDED = "100000"
"""A width at which no description of a value is folded: fish takes each further line of one for a value, too."""
INTERRUPTED = 130
_SELDOM = 50_000, 20, 100
"""When Python looks for garbage that refers to itself: what is kept of many groups is gone through each time, and of a
run little is such garbage."""
_QUOTED = re.compile("'([^']+)'")


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; never returns.  Exit statuses are those of README."""
    interrupt.install()
    gc.set_threshold(*_SELDOM)
    _occupy_streams()
    status = run(sys.argv[1:] if args is None else args)
    _end(status)


def _occupy_streams() -> None:
    """Open the null device in the place of a closed stream: else the first file that is opened gets its number, and
    what a library of C writes to stderr lands in that file."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _end(status: int) -> NoReturn:
    """Leave without taking the interpreter down: that costs half a second where torch is loaded, and would wait for
    worker threads that nobody waits for.  All that was written is in place by now, and nothing of ours runs at exit.
    """
    interrupt.settle()
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # closed by the caller, or by the reader
            stream.flush()
    os._exit(status)


def run(args: Sequence[str]) -> int:
    """The exit status of a command line, errors shown."""
    if os.environ.get(COMPLETE) != "complete_bash":
        return _run(list(args))
    from rlcorr_cli.cli import bash_words

    with bash_words.joined():
        return _run(list(args))


def _run(arguments: list[str]) -> int:
    tame_environment()
    if COMPLETE in os.environ:
        os.environ["TERMINAL_WIDTH"] = _UNFOLDED
    try:
        with _debug_lines() if "--debug" in arguments else nullcontext():
            return fast_path(arguments)
    except RlcorrError as error:
        return _show(error, arguments)
    except (BrokenPipeError, SystemExit) as error:
        if COMPLETE in os.environ and isinstance(error, SystemExit):
            return error.code if isinstance(error.code, int) else 0  # by which fish knows whether to offer files
        # rich and typer answer a closed pipe with SystemExit(1), and nothing else here raises one.
        drop_stdout()
        return 0
    except KeyboardInterrupt:
        return _interrupted()
    except Terminated as ended:
        interrupt.settle()
        return ended.exit_status
    except OSError as error:
        if error.errno != errno.ENOSPC:
            return _fault()
        return _show(OutputError("There is no space left to write to.", "Free some, or write elsewhere."), arguments)
    except MemoryError:
        return _show(RlcorrError("Out of memory.", "Try a smaller --batch-tokens, or fewer --threads."), arguments, 3)
    except Exception:
        return _fault()


@contextmanager
def _debug_lines() -> Generator[None]:
    """What the package logs goes to stderr, each in a line."""
    import logging

    log, lines = logging.getLogger("rlcorr_cli"), logging.StreamHandler()
    level, propagates = log.level, log.propagate
    log.addHandler(lines)
    log.setLevel(logging.DEBUG)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(lines)
        log.setLevel(level)
        log.propagate = propagates


def fast_path(args: list[str]) -> int:
    """Commands that need no options parsed, else the app.  A request for completion comes without arguments."""
    if args[:1] == ["presets"] and len(args) < 3 and all(map(_is_name, args[1:])) and args[1:] != ["show"]:
        from rlcorr_cli.present.terminal.presets import print_presets

        print_presets(*args[1:])
        return 0
    if len(args) == 2 and args[0] == "explain" and _is_name(args[1]):
        from rlcorr_cli.present.terminal.explain import print_explanation

        print_explanation(args[1])
        return 0
    if args[:2] == ["explain", "--schema"] and not any(arg.startswith("-") for arg in args[2:]) and len(args) < 4:
        from rlcorr_cli.present.terminal.schema import print_schema

        print_schema(args[2] if len(args) == 3 else None)
        return 0
    return parsed(args)


def _is_name(arg: str) -> bool:
    return bool(arg) and not arg.startswith("-")


def parsed(args: list[str]) -> int:
    """The status of a command line that typer parses."""
    import typer

    from rlcorr_cli.cli import app

    try:
        # Help and the version are printed by typer.
        with nullcontext() if sys.stdout is not None else redirect_stdout(ClosedStdout()):
            status = app.run(args)
        return status if status != INTERRUPTED else _interrupted()  # typer makes a status of an interrupt
    except typer.TyperException as error:
        refused = _REFUSED_CHOICE.match(error.format_message())
        if refused is not None:
            return _show(not_one_of(refused["option"], refused["value"], _QUOTED.findall(refused["choices"])), args)
        command = next((arg for arg in args if arg in app.COMMANDS), None)
        hint = f"`rlcorr {command} --help` lists what there is." if command else "`rlcorr --help` lists all."
        return _show(RlcorrError(error.format_message(), hint), args, status=2)
    except typer.Abort:
        return INTERRUPTED


def _interrupted() -> int:
    """Say where an interrupt left things as they were."""
    from rlcorr_cli.atomic import has_published

    interrupt.settle()
    nothing = not has_published() and not has_emitted()
    write_stderr("Interrupted: nothing was written.\n" if nothing else "Interrupted.\n")
    return INTERRUPTED


def _fault() -> int:
    _write_traceback()
    write_stderr("This is a fault of rlcorr, not yours.  Please open an issue with the lines above.\n")
    return 70


def _write_traceback() -> None:
    """The traceback of what is being handled, line by line; a message in it may be anything."""
    import traceback

    write_stderr(disarmed("\n".join(map(clean, traceback.format_exc().split("\n")))))


def _show(error: RlcorrError, args: list[str], status: int | None = None) -> int:
    """Two lines on stderr: what is wrong and where, then what to type."""
    status = error.exit_status if status is None else status
    error.word(str)  # the API has it speak of arguments
    if _asks(args, "--debug"):
        _write_traceback()
    if _asks(args, "--json"):
        import json

        document = {"error": {"message": error.message, "hint": error.hint, "exit_status": status}}
        write_stderr(disarmed_json(json.dumps(document)) + "\n")
    else:
        write_stderr(disarmed(f"Error: {_line(error.message)}\n{_line(error.hint)}".rstrip()) + "\n")
    return status


def _asks(args: Sequence[str], flag: str) -> bool:
    """Whether a flag is typed: for errors, parsing among them, the arguments are all there is."""
    if flag not in args:
        return False
    from rlcorr_cli.cli import app

    return flag in app.typed_options(args)


def _line(text: str) -> str:
    """One line without control characters: file and column names come from outside."""
    return clean(re.sub(r"[\n\t]", " ", text))
