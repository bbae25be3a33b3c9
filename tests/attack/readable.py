"""Whether an output is whole: each form read to its end, strictly.  `fault(path)` says what is wrong with it."""

import csv
import gzip
import io
import json
import struct
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema_rs
import pyarrow as pa
import pyarrow.parquet as pq

from rlcorr_cli.errors import DataError
from rlcorr_cli.reading.datasets import SEAL
from rlcorr_cli.results.saved_totals import command_of, read_saved, read_totals
from rlcorr_cli.results.watched import Following
from rlcorr_cli.show.explain import schema

NotAsDescribed = jsonschema_rs.ValidationError
EVENTS = "events.out.tfevents."
"""How the names of TensorBoard's files begin."""


class Broken(Exception):
    """An output that is not what its name says."""


def fault(path: Path, *, schemed: bool = True) -> str:
    """What is wrong with a file or directory that a command wrote; empty where nothing is.

    schemed: whether the command's JSON has a schema.
    """
    if not schemed and path.suffix.lower() == ".json":
        return fault_of_json(path)
    try:
        if path.is_dir():
            for below in sorted(path.iterdir()):
                if below.name == SEAL:
                    strict(below.read_bytes())
                else:
                    _events(below) if below.name.startswith(EVENTS) else READERS.get(_suffix(below), _unknown)(below)
        else:
            READERS.get(_suffix(path), _unknown)(path)
    except NotAsDescribed as error:
        return f"not as its schema says: {error.message[:200]} at {error.instance_path}"
    except (
        Broken,
        OSError,
        EOFError,
        ValueError,
        pa.ArrowException,
        ElementTree.ParseError,
        csv.Error,
        DataError,
    ) as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    return ""


def fault_of_json(path: Path) -> str:
    """The same of a document that only has to be JSON."""
    try:
        strict(path.read_bytes())
    except (Broken, ValueError) as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    return ""


def _suffix(path: Path) -> str:
    return "".join(path.suffixes[-2:]) if path.suffix in (".gz", ".zst") else path.suffix.lower()


def _arrow(path: Path) -> pa.Table:
    return pa.ipc.open_stream(path.read_bytes()).read_all()


def lines(path: Path) -> list[dict[str, Any]]:
    """The objects of JSON lines, strictly: UTF-8, no NaN, no key twice."""
    return [strict(line) for line in _bytes(path).splitlines()]


def rows(path: Path) -> int:
    """How many rows a dataset holds."""
    if path.is_dir():
        return sum(rows(below) for below in path.iterdir() if below.name != SEAL)
    if path.suffix == ".arrow":
        return _arrow(path).num_rows
    if path.suffix == ".parquet":  # by its bytes: Arrow takes no name that is not UTF-8
        return pq.ParquetFile(io.BytesIO(path.read_bytes())).metadata.num_rows
    return len(lines(path))


def _bytes(path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix == ".gz":
        return gzip.decompress(data)
    if path.suffix == ".zst":
        return pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()
    return data


def strict(text: bytes | str) -> Any:
    """A JSON document that any reader takes."""
    return json.loads(
        text.decode() if isinstance(text, bytes) else text, parse_constant=_constant, object_pairs_hook=_object
    )


def document(text: bytes | str) -> Any:
    """A JSON document as one of the schemas of `rlcorr explain --schema` has it."""
    read = strict(text)
    validator().validate(read)
    return read


@cache
def validator() -> Any:
    """Of all JSON outputs."""
    return jsonschema_rs.Draft202012Validator(schema())


def _constant(name: str) -> None:
    raise Broken(f"{name} is not JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise Broken("a key comes twice")
    return dict(pairs)


def _parquet(path: Path) -> None:
    pq.read_table(io.BytesIO(path.read_bytes()), use_threads=False).validate()


def _json(path: Path) -> None:
    document(path.read_bytes())


def _html(path: Path) -> None:
    text = path.read_text(encoding="utf-8", errors="strict")
    HTMLParser().feed(text)
    if not text.rstrip().endswith("</html>"):
        raise Broken("the page has no end")


def _csv(path: Path) -> None:
    table = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))
    if len({len(row) for row in table}) != 1:
        raise Broken("rows of unequal lengths")


def _starts_and_ends(start: bytes, end: bytes) -> Callable[[Path], None]:
    def read(path: Path) -> None:
        data = path.read_bytes()
        if not data.startswith(start) or not data.rstrip().endswith(end):
            raise Broken("it has no beginning or no end")

    return read


def _events(path: Path) -> None:
    data, at = path.read_bytes(), 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        at += 16 + length
    if at != len(data) or not data:
        raise Broken("a record is cut short")


def _totals(path: Path) -> None:
    if command_of(str(path)) == Following.command:
        read_saved(str(path), Following)
    else:
        read_totals(str(path))


def _unknown(path: Path) -> None:
    if not path.is_file() or not path.read_bytes().startswith(b"<?xml"):
        raise Broken(f"{path.name} is no output")
    ElementTree.parse(path)  # what `check --junit` writes, whatever it is called


READERS: dict[str, Callable[[Path], object]] = {
    ".parquet": _parquet,
    ".arrow": lambda path: _arrow(path).validate(full=True),
    ".jsonl": lines,
    ".jsonl.gz": lines,
    ".jsonl.zst": lines,
    ".json": _json,
    ".html": _html,
    ".csv": _csv,
    ".md": lambda path: path.read_text(encoding="utf-8"),
    ".py": lambda path: compile(path.read_bytes(), path.name, "exec"),
    ".rlcorr": _totals,
    ".xml": ElementTree.parse,
    ".svg": ElementTree.parse,
    ".png": _starts_and_ends(b"\x89PNG", b"IEND\xaeB`\x82"),
    ".pdf": _starts_and_ends(b"%PDF", b"%%EOF"),
}
"""Suffix -> how a file of it is read; a new form of output has its reader here."""
