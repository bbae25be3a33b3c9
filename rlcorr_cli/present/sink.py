"""Where text goes: one way to stdout, and how rich is set up for it.

Text is rendered first and written in one go, because rich turns a closed pipe into exit status 1; here it is no error.
"""

import os
import sys
from collections.abc import Callable

from rich.console import Console


def emit(text: str) -> None:
    """Write to stdout; a reader that went away (`| head`) is fine."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except UnicodeEncodeError:
        encoding = sys.stdout.encoding or "ascii"
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))


def render(draw: Callable[[Console], None]) -> None:
    """Draw on a console as wide as the terminal (80 columns when piped), and emit the result.

    NO_COLOR, like a pipe, means plain text: no bold or dim either.
    """
    plain = bool(os.environ.get("NO_COLOR")) or not sys.stdout.isatty()
    console = Console(
        file=sys.stdout, color_system=None if plain else "auto", highlight=False, emoji=False, markup=False
    )
    with console.capture() as capture:
        draw(console)
    emit("\n".join(line.rstrip() for line in capture.get().split("\n")))


def is_unicode() -> bool:
    """Whether stdout can carry block characters."""
    return (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")


def clean(value: object) -> str:
    """Text from a dump as one printable line: control characters and escape sequences are shown, not sent."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(value))
