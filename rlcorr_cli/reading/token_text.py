"""The text of each token: of a tokenizer's ids, or of strings that the dump has for its tokens.

A token's text is what it adds to the decoded sequence, so that the pieces of a sequence, joined, are what its tokenizer
decodes.  Tokens need not hold whole characters: of a character in several tokens the last one has the text, and the
others show their bytes, such as `⟨E2⟩`.

Decoders differ: some strip the first space, some change what stands before a full stop, some give a broken character
one mark, others one for each byte.  So pieces are found by decoding alone: the first i tokens decode to a text whose
longest common start with the whole text ends where piece i does.  Decoding every start takes long, so a short window
is decoded instead, and the starts only where that does not come out at the whole text.

A file of a tokenizer may make it grow, run on or break.  A decoder of `tokenizers` may write a thousand characters for
each one that it is given, four times over; an expression in it may be tried for hours; and where the library has no
memory it ends its process, with a page of its own on stderr.  So it is loaded and asked in a process of its own
(`TokenizerProcess`), where memory and time are limited, and what became of it is said in two lines.
"""

import os
import re
import resource
import subprocess
import sys
import weakref
from codecs import getincrementaldecoder, register_error
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, NoReturn

from rlcorr_cli.errors import DataError, RlcorrError, UsageError, shortened
from rlcorr_cli.frozen import frozen

BROKEN = "\N{REPLACEMENT CHARACTER}"
CONTEXT = 4
"""Tokens before a window that are decoded with it: what stands first in a sequence is decoded otherwise."""
MOST_STARTS = 1 << 14
"""Tokens of a sequence of which every start is decoded, if need be."""
LARGEST_ID = (1 << 32) - 1
FILE = "tokenizer.json"
INSTALL = "Install it: pip install 'rlcorr[tokenizers]'."
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Piece(NamedTuple):
    """A token's part of the text; shown: the same, but with the bytes that are no whole character there."""

    text: str
    shown: str


def _byte_alphabet() -> dict[str, int]:
    """The character that stands for each byte in the vocabulary of a byte-level tokenizer: itself where it is
    printable in Latin-1, else one of those from U+0100 on, in order."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in set(plain)]
    return {chr(byte): byte for byte in plain} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


BYTE_OF = _byte_alphabet()


@frozen(eq=False)
class Tokenizer:
    """A tokenizer of Hugging Face's `tokenizers`.  name: as messages call it."""

    name: str
    inner: Any
    _bytes: dict[int, bytes | None] = field(default_factory=dict[int, bytes | None])

    def decode(self, ids: Sequence[int]) -> str:
        """The text of a sequence, special tokens with it; ids that are none are left out."""
        return self.inner.decode([i for i in ids if 0 <= i <= LARGEST_ID], skip_special_tokens=False)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without any that would be put around it."""
        try:
            return list(self.inner.encode(text, add_special_tokens=False).ids)
        except Exception:  # a lone surrogate, or a tokenizer that has no such text: of any class
            return []

    def pieces(self, ids: Sequence[int]) -> list[Piece]:
        """The text of each token; an id that the tokenizer has not has none, and shows itself."""
        whole = self.decode(ids)
        of_bytes = [self._bytes_of(i) for i in ids]
        ends = _ends_of_bytes(of_bytes, whole) or _ends(self.decode, ids, whole, [b is not None for b in of_bytes])
        pieces = list(_pieces(whole, ends, of_bytes))
        for n, i in enumerate(ids):
            if not pieces[n].shown and not self.has(i):
                pieces[n] = Piece(pieces[n].text, f"⟨id {i}⟩")
        return pieces

    def has(self, token: int) -> bool:
        """Whether an id is one of its tokens."""
        return 0 <= token <= LARGEST_ID and self.inner.id_to_token(token) is not None

    def unknown(self, ids: Sequence[int]) -> list[int]:
        """Those that are none of its tokens."""
        return [i for i in ids if not self.has(i)]

    def _bytes_of(self, token: int) -> bytes | None:
        """The bytes that a token stands for, where the vocabulary says so."""
        if token not in self._bytes:
            name = self.inner.id_to_token(token) if 0 <= token <= LARGEST_ID else None
            match = None if name is None else _BYTE.fullmatch(name)
            if type(self.inner.decoder).__name__ == "ByteLevel":
                self._bytes[token] = b"" if name is None else byte_level(name)
            else:
                self._bytes[token] = bytes.fromhex(match[1]) if match and self.decode([token]) != name else None
        return self._bytes[token]


def byte_level(name: str) -> bytes:
    """The bytes of a byte-level token; a name with another character in it stands for itself, as special ones do."""
    if all(c in BYTE_OF for c in name):
        return bytes(BYTE_OF[c] for c in name)
    return name.encode("utf-8", "surrogatepass")


def load(source: str) -> Tokenizer:
    """The tokenizer of a tokenizer.json, of a folder that holds one, or of a repository on the Hugging Face Hub."""
    try:
        from tokenizers import Tokenizer as Inner
    except ImportError as error:
        raise UsageError("⟦tokenizer⟧ needs the package `tokenizers`.", INSTALL) from error
    path = os.path.join(source, FILE) if os.path.isdir(source) else source
    if not os.path.isfile(path):
        path = _from_hub(source)
    try:
        inner = Inner.from_file(path)
        inner.no_padding()  # it may ask for any length
        return Tokenizer(source, inner)
    except BaseException as error:  # of damaged files the library raises a bare Exception, or a panic of Rust's
        if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
            raise
        message = f"{path} is not a tokenizer that `tokenizers` reads: {shortened(str(error), quotes=False)}."
        raise DataError(message, f"Name a {FILE}, as a model's repository has it.") from error


def _from_hub(name: str) -> str:
    """The file of a repository: from the Hub's cache on this machine, or else from the Hub, which is asked once."""
    where = f"There is no file {name}" if not os.path.isdir(name) else f"{name} holds no {FILE}"
    hint = f"Name a {FILE}, or a folder that holds one."
    if os.path.isdir(name) or name.count("/") > 1 or name.endswith(".json") or name.startswith((".", "/", "~")):
        raise UsageError(f"{where}.", hint)
    try:
        from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
        from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled
    except ImportError as error:
        raise UsageError(f"{where}.", f"{hint} A name on the Hub needs pip install 'rlcorr[hf]'.") from error
    try:
        try:
            return hf_hub_download(name, FILE, local_files_only=True)
        except LocalEntryNotFoundError:
            get_hf_file_metadata(hf_hub_url(name, FILE))  # once: to load a file it asks for half a minute
            return hf_hub_download(name, FILE)
    except OfflineModeIsEnabled as error:
        raise UsageError(
            f"{where}, and the Hugging Face Hub's cache (HF_HOME) has no {FILE} of a repository {name}.",
            f"{hint} HF_HUB_OFFLINE is set, so the Hub is not asked.",
        ) from error
    except Exception as error:  # of a client of HTTP that differs from release to release
        why = shortened(str(error).partition("\n")[0], 160, quotes=False).rstrip(".")
        raise UsageError(
            f"{where}, and the Hugging Face Hub has none for this machine: {why}.",
            f"{hint} A name on the Hub is looked up in its cache (HF_HOME) first.",
        ) from error


def of_strings(tokens: Sequence[Any]) -> list[Piece]:
    """Pieces of strings that a dump has for its tokens: the text itself, or names of a vocabulary.

    A row is taken to hold names of a byte-level vocabulary where all its characters are of that alphabet and one stands
    for a space or a line's end; those of SentencePiece where a token begins with its sign for a space.
    """
    names = ["" if token is None else str(token) for token in tokens]
    if any("Ġ" in name or "Ċ" in name for name in names) and all(c in BYTE_OF for name in names for c in name):
        of_bytes: list[bytes | None] = [byte_level(name) for name in names]
    elif any(name.startswith("▁") for name in names):
        matches = [_BYTE.fullmatch(name) for name in names]
        of_bytes = [
            bytes.fromhex(match[1]) if match else name.replace("▁", " ").encode("utf-8", "surrogatepass")
            for match, name in zip(matches, names, strict=True)
        ]
    else:
        return [Piece(name, name) for name in names]
    whole = b"".join(x or b"" for x in of_bytes).decode("utf-8", "replace")
    return list(_pieces(whole, _ends_of_bytes(of_bytes, whole) or [len(whole)] * len(names), of_bytes))


def _ends_of_bytes(of_bytes: Sequence[bytes | None], whole: str) -> list[int] | None:
    """Where each piece ends, of tokens that all are bytes; None where these are not the bytes of the text."""
    if any(b is None for b in of_bytes):
        return None
    joined = b"".join(b or b"" for b in of_bytes)
    if joined.decode("utf-8", "replace") != whole:
        return None
    decoder, end, ends = getincrementaldecoder("utf-8")("replace"), 0, list[int]()
    for b in of_bytes:
        end += len(decoder.decode(b or b""))
        is_broken = bool(decoder.getstate()[0]) and whole[end : end + 1] == BROKEN
        ends.append(max(end + is_broken, ends[-1] if ends else 0))
    return _closed(ends, whole)


def _ends(decode: Callable[[Sequence[int]], str], ids: Sequence[int], whole: str, is_byte: Sequence[bool]) -> list[int]:
    """Where each piece ends, as the module says."""
    ends = _ends_by_windows(decode, ids, whole, is_byte)
    if ends is None and len(ids) <= MOST_STARTS:
        ends, end = [], 0
        for n in range(1, len(ids) + 1):
            end = max(end, _common(decode(ids[:n]), whole, 0))
            ends.append(end)
    return _closed([len(whole)] * len(ids) if ends is None else ends, whole)


def _ends_by_windows(
    decode: Callable[[Sequence[int]], str], ids: Sequence[int], whole: str, is_byte: Sequence[bool]
) -> list[int] | None:
    """The same of what is decoded behind the last token whose piece is known; None where that does not come out."""
    first = known = end = 0
    before, ends = "", list[int]()
    for i in range(len(ids)):
        text = decode(ids[first : i + 1])
        if not text.startswith(before):
            return None
        new = text[len(before) :]
        n_common = _common(new, whole, known)
        end = max(end, known + n_common)
        ends.append(end)
        if new and n_common == len(new) and not is_byte[i] and not new.endswith(BROKEN):
            known, first = known + n_common, max(0, i + 1 - CONTEXT)
            before = decode(ids[first : i + 1])
    return ends if end == len(whole) else None


def _common(text: str, whole: str, start: int) -> int:
    """How many characters a text shares with another one from `start` on."""
    least, most = 0, len(text)
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if whole.startswith(text[:middle], start) else (least, middle - 1)
    return least


def _closed(ends: list[int], whole: str) -> list[int]:
    """The ends with the last one at the text's."""
    return [*ends[:-1], len(whole)] if ends else []


def _pieces(whole: str, ends: Sequence[int], of_bytes: Sequence[bytes | None]) -> Iterator[Piece]:
    """The pieces that end there.  Of tokens that are bytes, those that are no whole character are shown."""
    start, carried = 0, b""
    for end, own in zip(ends, of_bytes, strict=True):
        text, start = whole[start:end], end
        if own is None or text.encode("utf-8", "surrogatepass") == own:
            yield Piece(text, text)
            carried = b""
            continue
        head, rest = "", own
        if carried and text and text[0] != BROKEN:  # the character that earlier tokens began
            head, rest = text[0], own[max(0, len(text[0].encode()) - len(carried)) :]
            carried = b""
        yield Piece(text, head + rest.decode("utf-8", "rlcorr_bytes"))
        pending = getincrementaldecoder("utf-8")("replace")
        pending.decode(carried + rest)
        carried = pending.getstate()[0]


def _as_bytes(error: UnicodeError) -> tuple[str, int]:
    """Bytes that are no character, for `bytes.decode`."""
    assert isinstance(error, UnicodeDecodeError)
    return "".join(f"⟨{byte:02X}⟩" for byte in error.object[error.start : error.end]), error.end


register_error("rlcorr_bytes", _as_bytes)


MEMORY_BYTES = 3 << 29
SECONDS, IDS_A_SECOND = 6, 250
"""Of processor time for one question, and for how many ids there is one second more."""
MOST_CHARACTERS, MOST_OF_A_ROW = 1 << 16, 1 << 25
"""That a decoder may make of one token, and of all tokens of a row."""
HINT = "Name the tokenizer.json that came with the model."
_START = "import sys; sys.path[:] = {path!r}; from rlcorr_cli.reading.token_text import serve; serve({fd})"


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
