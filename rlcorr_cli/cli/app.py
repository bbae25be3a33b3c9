"""The app's registrations, and the one door through which every error leaves.

Commands import what they need when they run, so that `--help` and completion load neither torch nor pyarrow.
"""

import errno
import json
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from types import FrameType
from typing import Annotated, NoReturn

import typer

from rlcorr_cli import __version__
from rlcorr_cli.cli import analyze, explain, presets
from rlcorr_cli.errors import OutputError, RlcorrError
from rlcorr_cli.present.sink import drop_stdout

app = typer.Typer(
    name="rlcorr",
    help="Offline log-prob analysis for LLM reinforcement learning: how far apart were the rollout and the training "
    "policy, and what would each correction do to the batch?",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("analyze")(analyze.analyze)
app.command("presets")(presets.presets)
app.command("explain")(explain.explain)


class Terminated(BaseException):
    """SIGTERM, raised so that temporary files are removed on the way out."""


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Print the version or the help when no command is named."""
    if version:
        typer.echo(f"rlcorr {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; never returns.  Exit statuses are those of README."""
    given = list(sys.argv[1:] if args is None else args)
    signal.signal(signal.SIGTERM, _terminate)
    status = _run(given)
    if status in (130, 143):
        os._exit(status)  # worker threads may be in the middle of a shard; nobody waits for them
    sys.exit(status)


def _run(args: list[str]) -> int:
    try:
        return app(args=args, prog_name="rlcorr", standalone_mode=False) or 0
    except RlcorrError as error:
        return _show(error, args)
    except typer.TyperException as error:
        command = next((a for a in args if not a.startswith("-")), "")
        known = {registered.name for registered in app.registered_commands}
        hint = f"`rlcorr {command} --help` lists what there is." if command in known else "`rlcorr --help` lists all."
        return _show(RlcorrError(error.format_message(), hint), args, status=2)
    except (BrokenPipeError, SystemExit):
        # rich and typer answer a closed pipe with SystemExit(1), and nothing else here raises one.
        drop_stdout()
        return 0
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except Terminated:
        return 143
    except OSError as error:
        if error.errno != errno.ENOSPC:
            return _fault()
        return _show(OutputError("There is no space left to write to.", "Free some, or write elsewhere."), args)
    except MemoryError:
        return _show(RlcorrError("Out of memory.", "Try a smaller --batch-tokens, or fewer --threads."), args, status=3)
    except Exception:
        return _fault()


def _fault() -> int:
    traceback.print_exc()
    print("This is a fault of rlcorr, not yours.  Please open an issue with the lines above.", file=sys.stderr)
    return 70


def _show(error: RlcorrError, args: list[str], status: int | None = None) -> int:
    """Two lines on stderr: what is wrong and where, then what to type."""
    status = error.exit_status if status is None else status
    if "--debug" in args:
        traceback.print_exc()
    if "--json" in args:
        text = json.dumps({"error": {"message": error.message, "hint": error.hint, "exit_status": status}})
    else:
        text = f"Error: {_line(error.message)}\n{_line(error.hint)}".rstrip()
    try:
        print(text, file=sys.stderr)
    except BrokenPipeError:
        pass
    return status


def _line(text: str) -> str:
    """One line without control characters: file and column names come from outside."""
    return "".join(c if c.isprintable() else " " if c in "\n\t" else repr(c)[1:-1] for c in text)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated
