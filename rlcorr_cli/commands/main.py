"""main(): where every command line comes in, and the one door through which every error leaves.

typer is imported for what needs it: that takes as long as all else that `rlcorr presets` or `rlcorr explain NAME` do,
so these two go straight to their function when typed without options, and so does `rlcorr explain --schema [NAME]`.
"""

import errno
import gc
import mmap
import os
import re
import shlex
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from functools import partial
from typing import NoReturn

from rlcorr_cli.commands import config
from rlcorr_cli.engines import interrupt
from rlcorr_cli.engines.interrupt import Terminated
from rlcorr_cli.errors import OutputError, RlcorrError, address_space, require_address_space
from rlcorr_cli.places import without_secrets
from rlcorr_cli.show import stdout

COMPLETE = "_RLCORR_COMPLETE"
"""The variable in which a shell says that it asks what could come next."""
_UNFOLDED = "100000"
"""A width at which no description of a value is folded: fish takes each further line of one for a value, too."""
INTERRUPTED = 130
_SELDOM = 200_000, 20, 100
"""When Python looks for garbage that refers to itself: what is kept of many groups is gone through each time, and of a
run little is such garbage."""
LEAST_BYTES = 400_000_000
"""Of address space, which numpy and pyarrow take."""
SPARE_BYTES = 1 << 23
"""Of address space, kept so that what went wrong can be said where there is no more."""
LACKS_MEMORY = (
    "failed to map segment from shared object",
    "Cannot allocate memory",
    "cannot allocate memory",
    "can't allocate memory",
    "can't start new thread",
    "Failed to launch worker thread",
    "bad_alloc",
)
"""What errors of libraries say where there is no memory for them."""
FAILS_SILENTLY = ("without exception set", "without setting an exception")
"""What Python says of a library that failed, and did not say why: where address space is limited, for want of it."""


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; never returns.  Exit statuses are those of README."""
    gc.set_threshold(*_SELDOM)
    # Our products of matrices are small: with a thread for each core, BLAS starts them and then waits in them, which on
    # sixteen cores took more time than all else.  Read when numpy is loaded; workers inherit it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # The null device stands in the place of a closed stream: else the first file that is opened gets its number, and
    # what a library of C writes to stderr lands in that file.
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    args = sys.argv[1:] if args is None else args
    if not {"ray", "--engine=ray"} & {*args}:
        _end(run(args, interrupt.install))
    from rlcorr_cli.engines import ray_cluster

    said = mmap.mmap(-1, 1)
    _end(run(args, partial(ray_cluster.fork, said, args)), said)


def _end(status: int, said: mmap.mmap | None = None) -> NoReturn:
    """Leave without taking the interpreter down: that costs half a second where torch is loaded, and would wait for
    worker threads that nobody waits for.  All that was written is in place by now, and nothing of ours runs at exit.
    said: where a parent looks for the status.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # closed by the caller, or by the reader
            stream.flush()
    if said is not None:
        said[0] = status
    os._exit(status)


def run(args: Sequence[str], begin: Callable[[], None] = lambda: None) -> int:
    """The exit status of a command line, errors shown.  begin: called where what it raises is shown, too."""
    before = config.NOTES.set(())
    arguments = [*args]
    spare = mmap.mmap(-1, SPARE_BYTES)
    try:
        try:
            begin()
            stdout.tame_environment()
            if COMPLETE in os.environ:
                os.environ["TERMINAL_WIDTH"] = _UNFOLDED
            with _debug_lines() if "--debug" in arguments else nullcontext():
                status = fast_path(arguments)
                return parsed(arguments) if status is None else status
        finally:
            interrupt.signal_handled()
    except RlcorrError as error:
        return _show(error, arguments)
    except (BrokenPipeError, SystemExit) as error:
        if COMPLETE in os.environ and isinstance(error, SystemExit):
            return error.code if isinstance(error.code, int) else 0  # by which fish knows whether to offer files
        # rich and typer answer a closed pipe with SystemExit(1), and nothing else here raises one.
        stdout.drop_stdout()
        return 0
    except KeyboardInterrupt:
        return _interrupted()
    except Terminated as ended:
        return ended.exit_status
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            return _show(
                OutputError("There is no space left to write to.", "Free some, or write elsewhere."), arguments
            )
        spare.close()
        lacking = next(filter(None, map(_no_memory, _chain(error))), None)
        if lacking is not None:
            return _show(lacking, arguments, 3)
        _write_traceback()
        stdout.write_stderr("This is a fault of rlcorr, not yours.  Please open an issue with the lines above.\n")
        return 70
    finally:
        config.NOTES.reset(before)


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


def fast_path(args: list[str]) -> int | None:
    """The status of a command that needs no options parsed; None of any other.  A request for completion comes without
    arguments."""
    if args[:1] == ["presets"] and len(args) < 3 and all(map(_is_name, args[1:])) and args[1:] != ["show"]:
        from rlcorr_cli.show.presets import print_presets

        print_presets(*args[1:])
        return 0
    if len(args) == 2 and args[0] == "explain" and _is_name(args[1]):
        from rlcorr_cli.show.explain import print_explanation

        print_explanation(args[1])
        return 0
    if args[:2] == ["explain", "--schema"] and not any(arg.startswith("-") for arg in args[2:]) and len(args) < 4:
        from rlcorr_cli.show.explain import print_schema

        print_schema(args[2] if len(args) == 3 else None)
        return 0
    return None


def _is_name(arg: str) -> bool:
    return bool(arg) and not arg.startswith("-")


def parsed(args: list[str]) -> int:
    """The status of a command line that typer parses."""
    import typer

    from rlcorr_cli.commands import app

    if args[:1] and args[0] in app.COMMANDS and args[0] not in app.LIGHT and not {"-h", "--help"} & {*args}:
        require_address_space(LEAST_BYTES)
    try:
        # Help and the version are printed by typer.
        with nullcontext() if sys.stdout is not None else redirect_stdout(stdout.ClosedStdout()):
            asks_for_list = args[:1] in (["-h"], ["--help"])
            # typer looks at every option of every command that it has, which takes longer than all that `explain` does.
            # Without arguments it is the same list, or a shell that asks what could come next, which takes the options.
            names = (args[0],) if args[:1] and args[0] in app.COMMANDS else (*app.COMMANDS,)
            command = app.built(names, options=not asks_for_list)
            status = command(args=args, prog_name="rlcorr", standalone_mode=False) or 0
        return status if status != INTERRUPTED else _interrupted()  # typer makes a status of an interrupt
    except typer.TyperException as error:
        command = next((arg for arg in args if arg in app.COMMANDS), None)
        hint = f"`rlcorr {command} --help` lists what there is." if command else "`rlcorr --help` lists all."
        dump = next((arg for arg in args if not arg.startswith("-")), "")
        if command is None and (os.path.exists(dump) or re.search(r"[./]", dump)):
            hint = f"A command comes first: did you mean `rlcorr analyze {shlex.quote(dump)}`?"
        return _show(RlcorrError(error.format_message(), hint), args, status=2)
    except typer.Abort as aborted:  # what typer makes of an EOFError, as if one had been asked something
        raise aborted.__cause__ or aborted from None


def _interrupted() -> int:
    """Say where an interrupt left things as they were."""
    from rlcorr_cli.files.outputs import has_published

    nothing = not has_published() and not stdout.has_emitted()
    stdout.write_stderr("Interrupted: nothing was written.\n" if nothing else "Interrupted.\n")
    return INTERRUPTED


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those that it came of."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        error = error.__cause__ or error.__context__
    return iter(seen)


def _no_memory(error: BaseException) -> RlcorrError | None:
    """What to say where an error is one of memory, which libraries word in many ways as they are loaded."""
    limit = address_space()
    words = LACKS_MEMORY if limit is None else (*LACKS_MEMORY, *FAILS_SILENTLY)
    if not isinstance(error, MemoryError) and not any(word in str(error) for word in words):
        return None
    hint = "Try a smaller ⟦batch_tokens⟧, or fewer ⟦workers⟧."
    if limit is not None:
        hint += f" `ulimit -v` leaves {limit / 1e9:.2g} GB of address space, of which libraries alone take 0.7."
    return RlcorrError("Out of memory.", hint)


def _write_traceback() -> None:
    """The traceback of what is being handled, line by line; a message in it may be anything."""
    import traceback

    stdout.write_stderr(
        stdout.disarmed("\n".join(map(stdout.clean, without_secrets(traceback.format_exc()).split("\n"))))
    )


def _show(error: RlcorrError, args: list[str], status: int | None = None) -> int:
    """Two lines on stderr: what is wrong and where, then what to type."""
    status = error.exit_status if status is None else status
    # Not all that is wrong was typed.
    hint = " ".join(filter(None, (error.hint, *(config.NOTES.get() if status in (2, 3) else ()))))
    if _asks(args, "--debug"):
        _write_traceback()
    if _asks(args, "--json"):
        import json

        document = {"error": {"message": error.message, "hint": hint, "exit_status": status}}
        stdout.write_stderr(stdout.disarmed_json(json.dumps(document)) + "\n")
    else:
        stdout.write_stderr(stdout.disarmed(f"Error: {_line(error.message)}\n{_line(hint)}".rstrip()) + "\n")
    return status


def _asks(args: Sequence[str], flag: str) -> bool:
    """Whether a flag is typed: for errors, parsing among them, the arguments are all there is."""
    if flag not in args:
        return False
    from rlcorr_cli.commands import app

    return flag in app.typed_options(args)


def _line(text: str) -> str:
    """One line without control characters: file and column names come from outside."""
    return stdout.clean(re.sub(r"[\n\t]", " ", text))
