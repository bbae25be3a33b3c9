"""Where a row of a dump is: a plain value that can be kept, sent to another process, and worded later."""

import re
from pathlib import PosixPath
from typing import Literal

from rlcorr_cli.frozen import frozen

STDIN = "-"
Unit = Literal["row", "line"]
"""Rows of Parquet count from 0, lines of JSON lines from 1."""


Stamp = tuple[int | str, ...]
"""Which state of a file: its device, inode, size and time of writing; in a store its size and what that calls its
ETag."""

_SECRET_NAMES = "access|auth(?!ority)|credential(?!_kind)|key|pass|pwd|sas|secret|sig|token"
SECRETS = (
    # user:password@, behind a scheme however it is mistyped, or where a word begins; host:8020/ has no password.
    re.compile(r"""(?i)(^|[\s'"(]|:/+|//|[?&][\w.-]+=)[^\s/@:'"]*(?::|%3a)(?!/|\d{1,5}/)\S*@"""),
    re.compile(r"(?i)(https?:/+)[^\s/@]+@"),
    # ?X-Amz-Signature=, &sig=, ;AccountKey=
    re.compile(rf"""(?i)([?&;#][\w.%-]*(?:{_SECRET_NAMES})[\w.%-]*=)[^\s&;#'"]+"""),
)
"""What stands before a secret in a URI, and the secret."""
_IN_PATH = re.compile(r"(/)[^\s/@:]*:[^\s/@]+@")
"""The same in a path that was made of one, where // is / alone."""
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


class Uri(str):
    """A URI of a file in a store, and beside it what its query says of the store (`region=eu-west-1`).

    It is a text without the query, so that names and suffixes are those of a path.  Watching a store keeps one for each
    file, and with slots it takes a third of the memory.
    """

    __slots__ = ("query",)
    query: str

    def __new__(cls, text: str, query: str = "") -> "Uri":
        """text: scheme://place/path."""
        uri = super().__new__(cls, text)
        uri.query = query
        return uri

    def beside(self, text: str) -> "Uri":
        """Another file of the same store."""
        return Uri(text, self.query)


class UriPath(PosixPath):
    """A URI where the path of an output is expected: with its name, its suffix and what is above it, and as text the
    URI.  No call of the system knows it; `files` does."""

    def __str__(self) -> str:
        start, _, rest = super().__str__().partition(":/")
        return f"{start}://{rest}"


def scheme(path: str) -> str:
    """The scheme of a URI, in small letters; '' of a path."""
    match = _URI.match(path)
    return match[1].lower() if match else ""


def without_secrets(text: str) -> str:
    """A text in which URIs are shown without passwords, keys and signatures, whether they are well formed or not."""
    for pattern in (*SECRETS, _IN_PATH):
        text = pattern.sub(lambda found: f"{found[1]}***{'@' * found[0].endswith('@')}", text)
    return text


def shown(path: str) -> str:
    """A path as messages name it."""
    return "standard input" if path == STDIN else path


def utf8(path: str) -> str:
    r"""A path as text that files can hold: a byte that is no UTF-8 stands as terminals show it, such as \udcff."""
    return path.encode("utf-8", "backslashreplace").decode("utf-8")


@frozen
class Place:
    """One row of a file.

    number: of the row or line, counted from byte `start`.  A worker that reads a range of a file cannot tell how many
    lines come before it, so `start` is the range's; `io.places.resolved` counts them, for the places that are shown.
    """

    path: str
    unit: Unit
    number: int
    start: int = 0

    @property
    def text(self) -> str:
        """'dump.jsonl, line 17', of a place that was resolved."""
        counted = " (0-based)" if self.unit == "row" else ""
        return f"{shown(self.path)}, {self.unit} {self.number}{counted}"
