"""Where text goes: one way to stdout, one to stderr, and how rich is set up for the first and for a bar on the second.

Text is rendered first and written in one go, because rich turns a closed pipe into exit status 1; here it is no error.
What comes from outside is made harmless twice: `clean` takes a value's control characters, `disarmed` whatever a CI
system's log would take for a command in the text as it is written, wherever names were joined or wrapped.
"""

import codecs
import io
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from rlcorr_cli.errors import OutputError

if TYPE_CHECKING:
    from rich.console import Console


NARROWEST, WIDEST = 20, 500
"""Columns: rich pads lines to the width that COLUMNS asks for, whatever memory that takes."""

_AT_START = re.compile(r"^(\s*):(?=:)", re.MULTILINE)
_ANYWHERE = re.compile(r"#(?=#\w*\[)")
"""GitHub's runner obeys `::error::` at the start of a line and `##[error]` anywhere in one; `##vso[...]` is Azure's."""


def disarmed(text: str) -> str:
    """Lines of which none is, or holds, a command to a CI system that reads them: ': :error::', '# #[error]'."""
    return _ANYWHERE.sub("# ", _AT_START.sub(r"\1: ", text))


def disarmed_json(text: str) -> str:
    """The same of JSON, which stays the same JSON: its strings hold '\\u0023#[error]', and begin no line."""
    return _ANYWHERE.sub(r"\\u0023", text)


def write_stderr(text: str) -> None:
    """Write to stderr; closed or full, it has nobody to tell, and changes no result."""
    if sys.stderr is not None:
        with suppress(OSError):
            sys.stderr.write(text)
            sys.stderr.flush()


@contextmanager
def reading_bar(n_bytes: int) -> Generator[Callable[[int, int], None]]:
    """A bar of bytes done on stderr, with tokens a second.  It yields what counts one more shard as done, of its tokens
    and its bytes."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    rate = TextColumn("{task.fields[rate]}")
    columns = (TextColumn("reading"), BarColumn(), DownloadColumn(), rate, TimeRemainingColumn())
    progress = Progress(*columns, console=Console(file=sys.stderr), transient=True)
    task = progress.add_task("reading", total=n_bytes or None, rate="")
    n_tokens, started = 0, time.perf_counter()

    def advance(tokens: int, n_bytes: int) -> None:
        nonlocal n_tokens
        n_tokens += tokens
        rate = n_tokens / max(time.perf_counter() - started, 1e-9)
        progress.update(task, advance=n_bytes, rate=f"{rate / 1e6:.1f} M tokens/s")

    with progress:
        yield advance


_has_emitted = False
_is_dropped = False


def has_emitted() -> bool:
    """Whether this process has begun to write to stdout."""
    return _has_emitted


class ClosedStdout(io.TextIOBase):
    """A stdout that its caller closed (`>&-`), for libraries that print: to the None that Python has they say nothing,
    and nobody would know."""

    def write(self, text: str, /) -> int:
        """An OutputError."""
        raise _closed()


def _closed() -> OutputError:
    return OutputError("Standard output is closed.", "Redirect it to a file, or use ⟦output FILE⟧.")


def emit_json(value: Any) -> None:
    """Write a value to stdout as indented JSON."""
    emit_json_pieces((json.dumps(value, indent=2, allow_nan=False), "\n"))


def emit_json_pieces(pieces: Iterable[str]) -> None:
    """The same of JSON that is text already, too long to be held, and nowhere cut inside a string."""
    _emit(map(disarmed_json, pieces))


SPELT = "rlcorr.spelt"
"""The error handler of codecs that spells signs which an encoding lacks."""
SPELLINGS = {
    "±": "+-",
    "²": "2",
    "–": "-",
    "−": "-",
    "×": "x",
    "…": "...",
    "χ": "chi",
    "·": "-",
    "⟨": "<",
    "⟩": ">",
    "↵": "\\",
}
"""Sign -> how ASCII spells it; any other one is a question mark."""


def _spelt(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(SPELLINGS.get(sign, "?") for sign in error.object[error.start : error.end]), error.end


codecs.register_error(SPELT, _spelt)


def emit(text: str) -> None:
    """Write lines to stdout; a reader that went away (`| head`) is fine, a full disk is an OutputError."""
    _emit((disarmed(text),))


def _emit(pieces: Iterable[str]) -> None:
    if sys.stdout is None:  # closed by the caller: `>&-`
        raise _closed()
    global _has_emitted
    _has_emitted = True
    encoding = sys.stdout.encoding or "ascii"
    try:
        for piece in pieces:
            sys.stdout.write(piece.encode(encoding, SPELT).decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        drop_stdout()
    except OSError as error:
        drop_stdout()
        raise OutputError(f"Cannot write to standard output: {error.strerror}.", "Use ⟦output FILE⟧.") from None


def has_reader() -> bool:
    """Whether stdout is still read, by what its last write told."""
    return not _is_dropped


def drop_stdout() -> None:
    """Send what is still buffered to the null device, so that the interpreter's own flush at exit cannot fail."""
    global _is_dropped
    _is_dropped = True
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def render(draw: "Callable[[Console], None]", at_end: "Callable[[Console], None] | None" = None) -> None:
    """Draw on a console as wide as the terminal (80 columns when piped), and emit the result.

    at_end: draws what ends a text that is longer than the terminal is high, of which only the end stays in sight.

    NO_COLOR, like a pipe, means plain text: no bold or dim either.  FORCE_COLOR means colours in a pipe, too.
    """
    from rich.console import Console

    terminal = sys.stdout is not None and sys.stdout.isatty()
    colours = not os.environ.get("NO_COLOR") and (terminal or bool(os.environ.get("FORCE_COLOR")))
    paper = io.StringIO()
    console = Console(
        file=paper,
        width=_width(terminal),
        force_terminal=terminal or colours,
        color_system=("auto" if terminal else "standard") if colours else None,
        highlight=False,
        emoji=False,
        markup=False,
    )
    draw(console)
    if at_end is not None and terminal and paper.getvalue().count("\n") >= shutil.get_terminal_size().lines:
        at_end(console)
    emit("\n".join(line.rstrip() for line in paper.getvalue().split("\n")))


def _width(terminal: bool) -> int:
    columns = 80
    if terminal or "COLUMNS" in os.environ:
        import shutil

        columns = shutil.get_terminal_size((80, 24)).columns
    return min(max(columns, NARROWEST), WIDEST)


def tame_environment() -> None:
    """Keep what the environment says of the terminal's width within reason, for typer and rich read it themselves."""
    for name in ("COLUMNS", "TERMINAL_WIDTH"):
        columns = os.environ.get(name, "")
        if columns and not re.fullmatch(r"[1-9][0-9]{0,8}", columns):
            del os.environ[name]
        elif columns:
            os.environ[name] = str(min(max(int(columns), NARROWEST), WIDEST))


def is_unicode() -> bool:
    """Whether stdout can carry block characters."""
    return (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "").startswith("utf")


def clean(value: object) -> str:
    """Text from a dump as one printable line: control characters and escape sequences are shown, not sent."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(value))


LONGEST = 120
"""Characters of a text from the dump in a file."""


def clean_cut(value: object, longest: int = LONGEST) -> str:
    """The same in at most so many characters."""
    text = clean(value)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
