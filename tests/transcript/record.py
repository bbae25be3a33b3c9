"""Play the commands of the transcripts and show what they did: `python tests/transcript/record.py [NAME...]`.

A transcript is a text file beside this module.  Each line of it that begins with "$ rlcorr" is a command, and the lines
below it are what the command did: its exit status where that is not 0, its standard output, its standard error, and
every file that it wrote or changed, under the file's name in brackets.  A command may be preceded by variables of its
surroundings (COLUMNS=60; TTY=1 makes standard output a terminal) and followed by `< FILE`.  The commands of a
transcript run one after another in one folder, which holds the sample data under short names, and the files of
`inputs`.

The tests play every transcript and fail on what changed.  Where the change is meant, this script writes the transcripts
anew, those named or all; read what `git diff` then shows.  A new command needs its line alone before that.

Texts are shown as they are, without spaces at the ends of lines.  JSON is laid out anew, without commas, a page is
shown as its reader sees it, a data set by its columns and two rows, a picture by its name and size.  Numbers have 12
digits; one of more than 8 may differ by one part in 10^9 from the recorded one, and then stays as it was recorded.
Times are left out.
"""

import difflib
import io
import json
import math
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[2]))  # what is recorded is what this checkout does
from rlcorr_cli import __version__
from rlcorr_cli.commands import main

HERE = Path(__file__).parent
SAMPLE = HERE.parents[1] / "sample_data"
TRANSCRIPTS = sorted(path.stem for path in HERE.glob("*.txt"))
MODIFIED = 1_767_322_800  # 2026-01-02 03:00 UTC
"""When every file of the folder was last changed, which reports tell."""
COLUMNS = "80"
FAULT = 70
"""The exit status of a command that has failed by a fault of ours, which is not to be recorded."""
ALIKE, ALIKE_NEAR_ZERO = 1e-9, 1e-12
"""The relative and the absolute difference of two numbers that count as the same."""
SURE_DIGITS = 9
"""From so many on, a number's last digits may hang on the order of a sum."""
MANY = 20
"""Numbers in a row of which nobody reads each."""
NUMBER = re.compile(r"[-+]?\d+\.?\d*(?:e[-+]?\d+)?")


class Stream(io.TextIOWrapper):
    """What a command writes to; terminal: whether it is to look like one."""

    def __init__(self, *, terminal: bool = False) -> None:
        super().__init__(io.BytesIO(), "utf-8", write_through=True)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    @property
    def text(self) -> str:
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode()


def commands(transcript: str) -> tuple[str, dict[str, list[str]]]:
    """What stands before the first command of a transcript, and each command with the lines that it showed."""
    start, *blocks = re.split(r"^\$ (?=.*\brlcorr\b)", transcript, flags=re.MULTILINE)
    lines = [block.rstrip("\n").split("\n") for block in blocks]
    shown = {first: rest for first, *rest in lines}
    assert len(shown) == len(blocks), "a command is there twice"
    return start, shown


def played(recorded: dict[str, list[str]], folder: Path) -> dict[str, list[str]]:
    """The commands of a transcript, and what they show now; a line that is as good as the recorded one is that one."""
    for path in (*HERE.glob("inputs/*"), *SAMPLE.glob("smollm2_*"), SAMPLE / "native", SAMPLE / "metrics.jsonl"):
        copy = shutil.copytree if path.is_dir() else shutil.copy
        copy(path, folder / path.name.removeprefix("smollm2_"))
    set_times(folder)
    return {command: settled(lines, shown(command, folder)) for command, lines in recorded.items()}


def shown(command: str, folder: Path) -> list[str]:
    """The lines that a command shows, run in a folder."""
    before = contents(folder)
    words = shlex.split(command)
    given, args = words[: words.index("rlcorr")], words[words.index("rlcorr") + 1 :]
    stdin = folder / args.pop() if "<" in args else None
    if stdin is not None:
        args.remove("<")
    variables = {"COLUMNS": COLUMNS, **dict(word.split("=", 1) for word in given)}
    out, err = Stream(terminal=variables.pop("TTY", "") == "1"), Stream()
    with surroundings(folder, variables, stdin), redirect_stdout(out), redirect_stderr(err):
        status = main.run(args)
    assert status != FAULT, err.text
    set_times(folder)
    parts = [f"[exit status {status}]"] if status else []
    parts.append(in_json(out.text) if "--json" in args and out.text.startswith(("{", "[")) else out.text)
    if err.text:
        parts += ["[stderr]", err.text]
    for name, data in contents(folder).items():
        if data != before.get(name):
            parts += [f"[{re.sub(r'[0-9]{10}', 'TIME', name)}]", of_file(name, data)]
    parts += [f"[{name} is gone]" for name in sorted(set(before) - set(contents(folder)))]
    text = plain("\n".join(part.rstrip("\n") for part in parts), folder)
    lines = [line.rstrip() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


@contextmanager
def surroundings(folder: Path, variables: dict[str, str], stdin: Path | None) -> Iterator[None]:
    """A folder, the variables that say how to print, and a standard input, for as long as a command runs."""
    home, environment, usual = os.getcwd(), dict(os.environ), sys.stdin
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "TERMINAL_WIDTH", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        os.environ.pop(name, None)
    os.environ |= {"TERM": "xterm-256color", **variables}
    os.chdir(folder)
    with open(os.devnull if stdin is None else stdin, encoding="utf-8") as sys.stdin:
        try:
            yield
        finally:
            sys.stdin = usual
            os.chdir(home)
            os.environ.clear()
            os.environ |= environment


def contents(folder: Path) -> dict[str, bytes]:
    """The bytes of every file below a folder, by its name from there."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def set_times(folder: Path) -> None:
    for path in folder.rglob("*"):
        os.utime(path, (MODIFIED, MODIFIED))


def plain(text: str, folder: Path) -> str:
    """A text without what another run, folder or release has otherwise, and with numbers of 12 digits."""
    text = text.replace(f"{folder}/", "").replace(str(folder), "FOLDER").replace(__version__, "VERSION")
    text = re.sub(r"\b\d+\.\d+ s\b", "T s", text).replace("\x1b", "\\e")
    return NUMBER.sub(lambda found: rounded(found[0]), text)


def n_digits(number: str) -> int:
    """The significant digits of a number as it is written."""
    return len(number.lstrip("+-").split("e")[0].replace(".", "").lstrip("0"))


def rounded(number: str) -> str:
    return f"{float(number):.12g}" if "." in number and n_digits(number) > 12 else number


def settled(recorded: Sequence[str], now: list[str]) -> list[str]:
    """The lines of now, with those of before in the place of such as differ by no more than rounding."""
    forms = [[NUMBER.sub(lambda n: "#" if n_digits(n[0]) >= SURE_DIGITS else n[0], line) for line in lines]
             for lines in (recorded, now)]  # fmt: skip
    for kind, start, end, first, last in difflib.SequenceMatcher(None, *forms, autojunk=False).get_opcodes():
        if kind in ("equal", "replace") and end - start == last - first:
            for i, j in zip(range(start, end), range(first, last), strict=True):
                if alike(recorded[i], now[j]):
                    now[j] = recorded[i]
    return now


def alike(line: str, other: str) -> bool:
    """Whether two lines have the same words, and numbers that are the same but for rounding."""
    if line == other:
        return True
    if NUMBER.sub("#", line) != NUMBER.sub("#", other):
        return False
    pairs = zip(NUMBER.findall(line), NUMBER.findall(other), strict=True)
    return all(a == b or (max(n_digits(a), n_digits(b)) >= SURE_DIGITS and is_close(a, b)) for a, b in pairs)


def is_close(number: str, other: str) -> bool:
    return math.isclose(float(number), float(other), rel_tol=ALIKE, abs_tol=ALIKE_NEAR_ZERO)


# What the files say.


def of_file(name: str, data: bytes) -> str:
    """What a file holds, as its reader sees it, or how large it is."""
    if ".tfevents." in name:
        return of_events(data)
    stem, _, suffix = name.rpartition(".")
    if suffix in COMPRESSED:
        return of_file(stem, pa.input_stream(pa.py_buffer(data), compression=COMPRESSED[suffix]).read())
    return SHOWS.get(suffix, of_any)(data)


def of_any(data: bytes) -> str:
    """A picture, or totals, which `merge` shows: from 3,200 bytes to 31,000 they are about 10,000."""
    return f"about {10 ** round(math.log10(len(data))):,} bytes"


def in_json(text: str) -> str:
    return "\n".join(laid_out(json.loads(text)))


def laid_out(value: Any, width: int = 110) -> Iterator[str]:
    """Lines of JSON: one where it is short, else one for each key or item.  Of many numbers in a row only sums."""
    line = NUMBER.sub(lambda found: rounded(found[0]), json.dumps(value, ensure_ascii=False))
    if isinstance(value, list) and len(value) > MANY and all(isinstance(each, int | float | None) for each in value):
        yield f"[{summary(value)}]"
    elif len(line) <= width or not isinstance(value, dict | list):
        yield line
    elif isinstance(value, dict):
        yield "{"
        for key, each in value.items():
            first, *rest = laid_out(each, width - 2)
            yield from (f"  {line}" for line in (f"{json.dumps(key, ensure_ascii=False)}: {first}", *rest))
        yield "}"
    else:
        yield "["
        yield from (f"  {line}" for each in value for line in laid_out(each, width - 2))
        yield "]"


def of_rows(rows: Iterable[dict[str, Any]], types: dict[str, str]) -> str:
    """The columns of a data set: type, number of values, and sums that a change of any of them moves; and two rows."""
    rows = list(rows)
    lines = [f"{len(rows)} rows"]
    for name in types or dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        lines.append(" ".join((f"{name}:", *filter(None, [types.get(name)]), summary(values))))
    for row in rows[:2]:
        short = {name: value[:6] if isinstance(value, list) else value for name, value in row.items()}
        lines += laid_out(short)
    return "\n".join(lines)


def summary(values: list[Any]) -> str:
    """How many values there are, and how many are null; of numbers the sum, and that of each times its place among them
    from 1 on; of others a checksum."""
    flat = [each for value in values for each in (value if isinstance(value, list) else [value])]
    numbers = [float(each) for each in flat if isinstance(each, int | float) and math.isfinite(each)]
    others = [each for each in flat if each is not None and not (isinstance(each, int | float) and math.isfinite(each))]
    parts = [f"{len(flat)} values, {flat.count(None)} null"]
    if numbers:
        parts.append(f"sum {math.fsum(numbers)!r}, by place {math.fsum(i * x for i, x in enumerate(numbers, 1))!r}")
    if others:
        parts.append(f"{len(others)} others of checksum {crc32(repr(others).encode()):08x}")
    return ", ".join(parts)


def of_parquet(data: bytes) -> str:
    table = pq.read_table(io.BytesIO(data))
    kept = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
    metadata = [f"metadata {key}:\n{in_json(value)}" for key, value in kept.items() if key != "ARROW:schema"]
    rows = of_rows(table.to_pylist(), {field.name: str(field.type) for field in table.schema})
    return "\n".join([*metadata, rows])


def of_events(data: bytes) -> str:
    """The scalars of a file of TensorBoard's."""
    from tensorboardX.proto.event_pb2 import Event

    lines, at = [], 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 8], "little")
        event = Event.FromString(data[at + 12 : at + 12 + length])
        lines += [f"step {event.step} {value.tag} {value.simple_value:.6g}" for value in event.summary.value]
        at += length + 16
    return "\n".join(lines)


class Page(HTMLParser):
    """What a page says: a line for each block and each row of a table, and one for each picture."""

    UNSEEN = ("style", "script", "metadata", "defs")
    BLOCKS = ("p", "div", "h1", "h2", "h3", "li", "tr", "dt", "figure", "figcaption", "summary", "pre", "svg", "nav")

    def __init__(self) -> None:
        super().__init__()
        self._lines = [""]
        self._unseen = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._unseen += tag in self.UNSEEN
        if tag in self.BLOCKS:
            self._lines.append("")
        if tag in ("th", "td", "dd", "small", "text") and self._lines[-1].strip():
            self._lines[-1] += " | "
        if tag == "svg":
            self._lines[-1] += f"[picture {dict(attrs).get('aria-label') or ''}] "
        if tag == "img":
            self._lines[-1] += f"[picture {dict(attrs).get('alt') or ''}]"

    def handle_endtag(self, tag: str) -> None:
        self._unseen -= tag in self.UNSEEN
        if tag in self.BLOCKS:
            self._lines.append("")

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self._lines[-1] += re.sub(r"\s+", " ", data)

    @property
    def text(self) -> str:
        return "\n".join(re.sub(r"  +", " ", line.strip()) for line in self._lines if line.strip(" |"))


def of_page(data: bytes) -> str:
    page = Page()
    page.feed(data.decode())
    return page.text


COMPRESSED = {"gz": "gzip", "zst": "zstd"}
SHOWS: dict[str, Callable[[bytes], str]] = {
    **dict.fromkeys(("md", "csv", "xml", "txt", "toml"), bytes.decode),
    "json": lambda data: in_json(data.decode()),
    "jsonl": lambda data: of_rows(map(json.loads, data.decode().splitlines()), {}),
    "parquet": of_parquet,
    "html": of_page,
}
"""How a file is shown, by the end of its name."""


def replayed(name: str) -> tuple[str, str]:
    """A transcript as it is recorded, and as it is now."""
    recorded = (HERE / f"{name}.txt").read_text(encoding="utf-8")
    start, lines = commands(recorded)
    with tempfile.TemporaryDirectory(prefix="rlcorr-transcript-") as folder:
        now = played(lines, Path(folder))
    blocks = ["\n".join((f"$ {command}", *lines)) for command, lines in now.items()]
    return recorded, start + "\n\n".join(blocks) + "\n"


def changes(recorded: str, now: str) -> str:
    """What changed, below each command that did, or nothing."""
    before, after = commands(recorded)[1], commands(now)[1]
    text = []
    for command in after:
        lines = list(difflib.unified_diff(before[command], after[command], "recorded", "now", n=2, lineterm=""))
        text += [f"$ {command}", *lines[2:]] if lines else []
    return "\n".join(text)


if __name__ == "__main__":
    for each in sys.argv[1:] or TRANSCRIPTS:
        was, is_now = replayed(each)
        (HERE / f"{each}.txt").write_text(is_now, encoding="utf-8")
        print(each, "as it was" if was == is_now else "changed")
