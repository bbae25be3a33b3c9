"""Write anew what README and the manual show of a command's output: `python tests/transcript/shown.py`.

A block ```text below a block ```sh whose last line is a command shows parts of what the command prints, with "  ..."
for what is left out; a block that begins with "$ rlcorr" shows a command and its output.  tests/test_readme.py holds
both.  A part is found again by its first and its last line, as the lines of the output that are most like them; read
what `git diff` then shows.
"""

import difflib
import re
import shlex
from collections.abc import Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import BytesIO, StringIO, TextIOWrapper
from os import environ
from pathlib import Path
from tempfile import TemporaryDirectory

from rlcorr_cli.commands import main

ROOT = Path(__file__).parents[2]

LEFT_OUT = "  ...\n"
BELOW = re.compile(r"(?<=rlcorr )([^\n]*)(\n```\n\n```text\n)(.*?)(?=```)", re.DOTALL)
INSIDE = re.compile(r"(?<=```text\n\$ rlcorr )([^\n]*)(\n)(.*?)(?=```)", re.DOTALL)


def printed(command: str) -> list[str]:
    """What a command prints at 80 columns, line by line."""
    out = TextIOWrapper(BytesIO(), encoding="utf-8", write_through=True)
    environ["COLUMNS"] = "80"
    with redirect_stdout(out), redirect_stderr(StringIO()):
        main.run(shlex.split(command, comments=True))
    out.seek(0)
    return out.readlines()


def likeness(line: str, other: str) -> float:
    """How like two lines are, from 0 to 1, whatever stands between their words."""
    return (
        difflib.SequenceMatcher(None, line.split(), other.split(), autojunk=False).ratio()
        + difflib.SequenceMatcher(None, line, other, autojunk=False).ratio()
    )


def most_like(line: str, lines: Sequence[str], start: int) -> int:
    """The place of the line most like another one, from a place on; of equals the first."""
    return max(range(start, len(lines)), key=lambda place: likeness(line, lines[place]), default=start)


def part_again(part: str, lines: Sequence[str]) -> str:
    """The lines of an output in the place of a part of an older one."""
    old = part.strip("\n").splitlines(keepends=True)
    if not old or part in "".join(lines):
        return part
    above = part[: len(part) - len(part.lstrip("\n"))]
    first = most_like(old[0], lines, 0)
    wanted = "".join(old[-2:])
    ends = range(first, len(lines))
    last = max(ends, key=lambda place: likeness(wanted, "".join(lines[max(first, place - 1) : place + 1])))
    return above + "".join(lines[first : last + 1])


def block_again(block: re.Match[str]) -> str:
    """A block with its command, as the command prints it now."""
    command, between, shown = block.groups()
    lines = printed(command)
    parts = [part_again(part, lines) for part in shown.split(LEFT_OUT)]
    return f"{command}{between}{LEFT_OUT.join(parts)}"


def without_time(text: str) -> str:
    """A page without the seconds that runs took."""
    return re.sub(r"\d+\.\d+ s\b", "T s", text)


if __name__ == "__main__":
    with TemporaryDirectory() as folder, chdir(folder):
        for name in ("sample_data", "tests"):
            Path(name).symlink_to(ROOT / name)
        for page in [ROOT / "README.md", *sorted((ROOT / "rlcorr_cli" / "manual").glob("*.md"))]:
            before = page.read_text(encoding="utf-8")
            after = INSIDE.sub(block_again, BELOW.sub(block_again, before))
            if without_time(after) != without_time(before):
                page.write_text(after, encoding="utf-8")
                print(page.relative_to(ROOT), "changed")
