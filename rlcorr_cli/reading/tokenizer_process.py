"""A tokenizer in a process of its own, since a file from elsewhere may make it grow, run on or break.

A decoder of `tokenizers` may write a thousand characters for each one that it is given, four times over; an expression
in it may be tried for hours; and where the library has no memory it ends its process, with a page of its own on stderr.
So it is loaded and asked where memory and time are limited, and what became of it is said in two lines.
"""

import resource
import subprocess
import sys
import weakref
from collections.abc import Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from rlcorr_cli.errors import DataError, RlcorrError, shortened
from rlcorr_cli.reading.token_text import Piece, Tokenizer, load

MEMORY_BYTES = 3 << 29
SECONDS, IDS_A_SECOND = 6, 250
"""Of processor time for one question, and for how many ids there is one second more."""
MOST_CHARACTERS, MOST_OF_A_ROW = 1 << 16, 1 << 25
"""That a decoder may make of one token, and of all tokens of a row."""
HINT = "Name the tokenizer.json that came with the model."
_START = "import sys; sys.path[:] = {path!r}; from rlcorr_cli.reading.tokenizer_process import serve; serve({fd})"


class TokenizerProcess:
    """A Tokenizer that answers from there.  name: as messages call it."""

    def __init__(self, source: str) -> None:
        self.name = source
        self._connection, there = Pipe()
        with there:
            # In a session of its own, so that a Ctrl-C in the terminal reaches this process alone.
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START.format(path=sys.path, fd=there.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[there.fileno()],
                start_new_session=True,
            )
        weakref.finalize(self, _end, self._process)
        self._ask("load", source)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of a sequence, special tokens with it."""
        return self._ask("decode", ids)

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        return self._ask("encode", text)

    def pieces(self, ids: Sequence[int]) -> list[Piece]:
        """The text of each token."""
        return self._ask("pieces", ids)

    def unknown(self, ids: Sequence[int]) -> list[int]:
        """Those that are none of its tokens."""
        return self._ask("unknown", ids)

    def _ask(self, question: str, value: Sequence[int] | str) -> Any:
        try:
            self._connection.send((question, value))
            answer = self._connection.recv()
        except (EOFError, OSError) as error:  # it is gone
            does = "to load it takes" if question == "load" else "what its decoder makes of a row takes"
            limits = f"over {MEMORY_BYTES / 2**30:g} GB of memory or {SECONDS} s of processor time"
            raise DataError(f"The tokenizer {self.name} cannot be used: {does} {limits}.", HINT) from error
        if isinstance(answer, RlcorrError):
            raise answer
        return answer


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def serve(fd: int) -> NoReturn:
    """What the process runs: it answers until nobody is there who asks.  fd: of the connection."""
    connection, tokenizer = Connection(fd), None
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES if hard < 0 else min(MEMORY_BYTES, hard), hard))
    while True:
        try:
            question, value = connection.recv()
        except (EOFError, OSError):
            sys.exit()
        used = resource.getrusage(resource.RUSAGE_SELF)
        allowed = SECONDS + (0 if isinstance(value, str) else len(value)) // IDS_A_SECOND
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + allowed, hard))
        try:
            if tokenizer is None:
                tokenizer, answer = load(value), None
            else:
                answer = _answer(tokenizer, question, value)
        except RlcorrError as error:
            answer = error
        except MemoryError:
            sys.exit()
        except BaseException as error:  # a panic of Rust's is no Exception
            answer = DataError(f"The tokenizer {tokenizer and tokenizer.name} fails: {shortened(str(error))}.", HINT)
        connection.send(answer)


def _answer(tokenizer: Tokenizer, question: str, value: Any) -> Any:
    """What it answers, unless that is too long."""
    if question in ("decode", "pieces"):
        lengths = {i: len(tokenizer.decode([i])) for i in dict.fromkeys(value)}
        longest = max(lengths.values(), default=0)
        if longest > MOST_CHARACTERS:
            raise DataError(f"{tokenizer.name}: its decoder makes {longest:,} characters of a token.", HINT)
        if (total := sum(lengths[i] for i in value)) > MOST_OF_A_ROW:
            raise DataError(f"{tokenizer.name}: its decoder makes {total:,} characters of a row.", HINT)
    return getattr(tokenizer, question)(value)
