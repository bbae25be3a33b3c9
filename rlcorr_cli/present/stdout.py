"""Where text goes: one way to stdout, and how rich is set up for it.

Text is rendered first and written in one go, because rich turns a closed pipe into exit status 1; here it is no error.
"""

import io
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rlcorr_cli.errors import OutputError

if TYPE_CHECKING:
    from rich.console import Console


def emit(text: str) -> None:
    """Write to stdout; a reader that went away (`| head`) is fine, a full disk is an OutputError."""
    emit_pieces((text,))


def emit_pieces(pieces: Iterable[str]) -> None:
    """The same of a text that is too long to be held."""
    if sys.stdout is None:  # closed by the caller: `>&-`
        raise OutputError("Standard output is closed.", "Redirect it to a file, or use -o FILE.")
    encoding = sys.stdout.encoding or "ascii"
    try:
        for piece in pieces:
            sys.stdout.write(piece.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        drop_stdout()
    except OSError as error:
        drop_stdout()
        raise OutputError(f"Cannot write to standard output: {error.strerror}.", "Use -o FILE.") from None


def drop_stdout() -> None:
    """Send what is still buffered to the null device, so that the interpreter's own flush at exit cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def render(draw: "Callable[[Console], None]") -> None:
    """Draw on a console as wide as the terminal (80 columns when piped), and emit the result.

    NO_COLOR, like a pipe, means plain text: no bold or dim either.  No line starts with ::, which GitHub's runner would
    take for a command, whatever names a dump has and wherever they were wrapped.
    """
    from rich.console import Console

    terminal = sys.stdout is not None and sys.stdout.isatty()
    paper = io.StringIO()
    console = Console(
        file=paper,
        width=shutil.get_terminal_size((80, 24)).columns if terminal or "COLUMNS" in os.environ else 80,
        force_terminal=terminal,
        color_system=None if os.environ.get("NO_COLOR") or not terminal else "auto",
        highlight=False,
        emoji=False,
        markup=False,
    )
    draw(console)
    emit("\n".join(re.sub(r"^(\s*):(?=:)", r"\1: ", line.rstrip()) for line in paper.getvalue().split("\n")))


def is_unicode() -> bool:
    """Whether stdout can carry block characters."""
    return (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "").startswith("utf")


def clean(value: object) -> str:
    """Text from a dump as one printable line: control characters and escape sequences are shown, not sent."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(value))
