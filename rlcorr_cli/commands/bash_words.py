"""Completion in bash, which parts words at '=' and ':' and puts what it is offered behind the last part.

`--map old_log_probs=st` arrives as three words, and an answer of `old_log_probs=step` would follow the sign.  So the
parts are joined before typer reads them, and what stands before the last sign is taken off the answers.  Behind a
single answer bash sets a space; one that a value must follow, such as `kl=`, gets a second beside it against that.
"""

import io
import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, redirect_stdout

SIGNS = ("=", ":")
GOES_ON = (*SIGNS, "/")
WORDS, PLACE = "COMP_WORDS", "COMP_CWORD"


@contextmanager
def joined() -> Generator[None]:
    """The words of the line that bash asks about whole, and the answers to it without their first parts."""
    words, place = whole(os.environ.get(WORDS, "").split("\n"), int(os.environ.get(PLACE, "0")))
    os.environ[WORDS], os.environ[PLACE] = "\n".join(words), str(place)
    asked = words[place] if place < len(words) else ""
    answers = io.StringIO()
    try:
        with redirect_stdout(answers):
            yield
    finally:
        parted = asked[: 1 + max(map(asked.rfind, SIGNS))]
        lines = [line.removeprefix(parted) for line in answers.getvalue().splitlines()]
        if len(lines) == 1 and lines[0].endswith(GOES_ON):
            lines += [f"{lines[0]}…"]
        sys.stdout.write("".join(f"{line}\n" for line in lines))


def whole(words: Sequence[str], place: int) -> tuple[list[str], int]:
    """Words that were parted at signs as one each, and the place of the one that was at `place`."""
    lines: list[str] = []
    places: list[int] = []
    for i, word in enumerate(words):
        follows = i > 0 and word != "" and (word in SIGNS or words[i - 1] in SIGNS)
        lines = [*lines[:-1], lines[-1] + word] if follows else [*lines, word]
        places.append(len(lines) - 1)
    return lines, places[place] if place < len(places) else len(lines)
