"""Pickles read as data: nothing that a file names is imported, called or hashed.

A machine of its own walks the opcodes, where `pickle.Unpickler` with a strict `find_class` would still build whatever
tuples and keys a file asks for: a key of tuples that hold each other hashes for ever, one of a million levels ends the
process.  Here what a class or a function would make is an `UnbuiltObject`, the record of what it was called with, a key
is text or a number, and a loop is at most as long as the file.  Runs of plain numbers, which are nearly all of a dump,
are decoded by `pickle` itself, so that reading costs about what unpickling does; bytes are views of what was read.
"""

import math
import os
import pickle
import re
import struct
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.files.disk import AnyBytes
from rlcorr_cli.frozen import frozen

HINT = "Only files of the frameworks that rlcorr knows are read, and nothing in them is run."
NUMBERS = re.compile(rb"(?:G.{8}|K.|M..|J.{4}|[N\x88\x89]){1,65536}+", re.DOTALL)
"""A run of floats, integers, None, True and False, each whole: no opcode that names, calls or looks anything up.

It never gives back what it took, so that a long run takes no memory."""
LONGEST_NUMBER = 64
"""Bytes of a long integer, of which the frameworks write at most nine."""
LONGEST_NAME = 256
"""Of a module or of a name, in bytes or, where a pickle holds them as text, in characters."""
LIMIT, DEFAULT_LIMIT = "RLCORR_MAX_PICKLE_GB", 4.0
"""The variable that says how large a pickle may be, and what it may be without it."""
SHOWN = 80
_MARK = object()
_LENGTHS = {width: struct.Struct(code).unpack_from for width, code in ((1, "<B"), (4, "<i"), (8, "<q"))}
"""How a length of so many bytes is read; a struct.error where there are fewer."""
_index = _LENGTHS[4]
_STOP, _BINGET, _BININT1, _BINPUT, _LONG_BINPUT = b".hKqr"
_NUMBER_OPCODES = frozenset(b"GKMJN\x88\x89")
PLAIN_KEYS = (str, int, float, bytes, type(None))


@dataclass(eq=False, slots=True)
class UnbuiltObject:
    """What a file would have made by calling `name`, as it says: its arguments, its state, and what was put into it."""

    name: str
    args: tuple[Any, ...] = ()
    state: Any = None
    items: list[Any] = field(default_factory=list[Any])


@frozen
class Global:
    """The name of a class or a function, 'module.name'."""

    name: str


@dataclass(frozen=True, slots=True)
class Persistent:
    """An id that stands for something kept elsewhere, as torch does with storages."""

    id: Any


def unpickle(
    data: bytes | AnyBytes, allowed: Collection[str] | None = None, foreign: Callable[[str], None] | None = None
) -> Any:
    """The value of one pickle, from its first bytes on; of a file all are read.

    allowed: the only 'module.name' that it may hold; all stay unbuilt.  foreign: told of each other name instead of an
    error.  A pickle that is too large, broken, of protocol 0 or 1, or names what it may not is a DataError, whose
    message needs the file's name before it.
    """
    _check_size(len(data))
    machine = _Machine(memoryview(data[:]).cast("B"), allowed, foreign)
    try:
        return machine.run()
    except (LookupError, struct.error, UnicodeDecodeError, TypeError, AttributeError, OverflowError) as error:
        # What a stack that was made wrong, or bytes that end too soon, lead to in the steps below.
        raise DataError(f"its pickle is broken at byte {machine.at:,}.", "Write it again, or copy it again.") from error


def _check_size(n_bytes: int) -> None:
    text = os.environ.get(LIMIT)
    try:
        limit = DEFAULT_LIMIT if text is None else float(text)
    except ValueError as error:
        raise UsageError(f"{LIMIT}={text} is not a number.", f"Set it in GB, such as {LIMIT}=16.") from error
    if not n_bytes <= limit * 1e9:
        raise DataError(
            f"its pickle has {n_bytes / 1e9:,.3g} GB, over {limit:g}: it is unpickled as a whole, in memory, where "
            "numbers in lists take four times that.",
            f"Set {LIMIT}={math.ceil(n_bytes / 1e9)} in the environment if there is memory for it, or save fewer "
            "sequences a file.",
        )


class _Machine:
    def __init__(
        self, data: memoryview, allowed: Collection[str] | None, foreign: Callable[[str], None] | None
    ) -> None:
        self.data = data
        self.allowed = allowed
        self.foreign = foreign
        self.at = 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        data, stack, memo = self.data, self.stack, self.memo
        while True:
            at = self.at
            opcode = data[at]
            # Two thirds of what torch writes of a tensor remember a value or take one again: these come first.
            if opcode == _BINGET:
                stack.append(memo[data[at + 1]])
                self.at = at + 2
            elif opcode == _BINPUT:
                memo[data[at + 1]] = stack[-1]
                self.at = at + 2
            elif opcode == _LONG_BINPUT:
                memo[_index(data, at + 1)[0]] = stack[-1]
                self.at = at + 5
            elif opcode in _NUMBER_OPCODES:
                if opcode == _BININT1 and data[at + 2] not in _NUMBER_OPCODES:  # a run of one, as shapes have it
                    stack.append(data[at + 1])
                    self.at = at + 2
                    continue
                run = NUMBERS.match(data, at)
                if run is None:  # a number that is cut short
                    raise IndexError
                stack.extend(pickle.loads(b"\x80\x02(" + run[0] + b"l."))
                self.at = run.end()
            else:
                self.at = at + 1
                if opcode == _STOP:
                    return stack.pop()
                step = _STEPS.get(opcode)
                if step is None:
                    raise DataError(f"its pickle has opcode {opcode:#04x} at byte {at:,}, which no dump has.", HINT)
                step(self)

    def take(self, n: int) -> memoryview:
        if not 0 <= n <= len(self.data) - self.at:
            raise IndexError
        self.at += n
        return self.data[self.at - n : self.at]

    def size(self, width: int) -> int:
        (n,) = _LENGTHS[width](self.data, self.at)
        self.at += width
        return n

    def line(self) -> str:
        end = bytes(self.data[self.at : self.at + LONGEST_NAME]).find(b"\n")
        if end < 0:
            raise IndexError
        text = str(self.take(end), "utf-8")
        self.at += 1
        return text

    def marked(self) -> list[Any]:
        """What lies above the last mark, which goes, too."""
        stack = self.stack
        place = len(stack) - 1
        while stack[place] is not _MARK:
            place -= 1
            if place < 0:
                raise IndexError
        above = stack[place + 1 :]
        del stack[place:]
        return above

    def popped(self, n: int) -> list[Any]:
        """The last values, which go."""
        values = [self.stack.pop() for _ in range(n)]
        return values[::-1]

    def put(self, pairs: list[Any]) -> None:
        """Keys and their values into what is last now."""
        mapping = self.stack[-1]
        if len(pairs) % 2:
            raise IndexError
        if isinstance(mapping, UnbuiltObject):
            mapping.items.extend(zip(pairs[::2], pairs[1::2], strict=True))
            return
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if isinstance(key, PLAIN_KEYS):  # no dump's own keys are others, and others may take for ever to hash
                mapping[key] = value

    def extend(self, more: list[Any]) -> None:
        """Values into what is last now."""
        values = self.stack[-1]
        (values.items if isinstance(values, UnbuiltObject) else values).extend(more)

    def name(self, module: str, name: str) -> None:
        full = f"{module}.{name}"
        if self.allowed is not None and full not in self.allowed:
            if self.foreign is None:
                shown = full if len(full) <= SHOWN else f"{full[:SHOWN]}…"
                raise DataError(f"its pickle names {shown}, which is in no dump of this kind.", HINT)
            self.foreign(full)
        self.stack.append(Global(full))


def _proto(machine: _Machine) -> None:
    if machine.size(1) > 5:
        raise DataError("its pickle is of a protocol above 5.", HINT)


def _bytes(width: int) -> Callable[[_Machine], None]:
    return lambda machine: machine.stack.append(machine.take(machine.size(width)))


def _text(width: int) -> Callable[[_Machine], None]:
    return lambda machine: machine.stack.append(str(machine.take(machine.size(width)), "utf-8", "surrogatepass"))


def _long(width: int) -> Callable[[_Machine], None]:
    def step(machine: _Machine) -> None:
        n = machine.size(width)
        if n > LONGEST_NUMBER:
            raise DataError(f"its pickle holds an integer of {n:,} bytes.", HINT)
        machine.stack.append(int.from_bytes(machine.take(n), "little", signed=True))

    return step


def _tuple_of(n: int) -> Callable[[_Machine], None]:
    def step(machine: _Machine) -> None:
        stack = machine.stack
        if len(stack) < n:
            raise IndexError
        stack[-n:] = [tuple(stack[-n:])]

    return step


def _stack_global(machine: _Machine) -> None:
    name, module = machine.stack.pop(), machine.stack.pop()
    # Not made text of: tuples that hold each other twice are a text of any length, and so are long names put together.
    if not all(isinstance(text, str) and len(text) <= LONGEST_NAME for text in (module, name)):
        raise TypeError
    machine.name(module, name)


def _reduce(machine: _Machine) -> None:
    args, function = machine.stack.pop(), machine.stack.pop()
    name = function.name if isinstance(function, Global) else "(a call)"
    machine.stack.append(UnbuiltObject(name, args if isinstance(args, tuple) else (args,)))


def _new_with_names(machine: _Machine) -> None:
    machine.stack.pop()
    _reduce(machine)


def _build(machine: _Machine) -> None:
    state = machine.stack.pop()
    made = machine.stack[-1]
    if not isinstance(made, UnbuiltObject):
        raise TypeError
    made.state = state


def _dict(machine: _Machine) -> None:
    pairs = machine.marked()
    machine.stack.append(dict[Any, Any]())
    machine.put(pairs)


def _push(make: Callable[[], Any]) -> Callable[[_Machine], None]:
    return lambda machine: machine.stack.append(make())


_STEPS: dict[int, Callable[[_Machine], None]] = {
    0x80: _proto,
    0x95: lambda machine: machine.take(8).release(),  # FRAME: its length is of no use to who has all the bytes
    ord("("): lambda machine: machine.stack.append(_MARK),
    ord("0"): lambda machine: machine.stack.pop(),
    ord("1"): lambda machine: machine.marked().clear(),
    ord("2"): lambda machine: machine.stack.append(machine.stack[-1]),
    0x8A: _long(1),
    0x8B: _long(4),
    ord("X"): _text(4),
    0x8C: _text(1),
    0x8D: _text(8),
    ord("B"): _bytes(4),
    ord("C"): _bytes(1),
    0x8E: _bytes(8),
    0x96: _bytes(8),
    ord("U"): _bytes(1),
    ord("T"): _bytes(4),
    ord("]"): _push(list),
    ord("}"): _push(dict),
    ord(")"): _push(tuple),
    0x8F: _push(list),  # a set, as the list of what it holds
    ord("t"): lambda machine: machine.stack.append(tuple(machine.marked())),
    0x85: _tuple_of(1),
    0x86: _tuple_of(2),
    0x87: _tuple_of(3),
    ord("l"): lambda machine: machine.stack.append(machine.marked()),
    ord("d"): _dict,
    ord("a"): lambda machine: machine.extend(machine.popped(1)),
    ord("e"): lambda machine: machine.extend(machine.marked()),
    ord("s"): lambda machine: machine.put(machine.popped(2)),
    ord("u"): lambda machine: machine.put(machine.marked()),
    0x90: lambda machine: machine.extend(machine.marked()),
    0x91: lambda machine: machine.stack.append(machine.marked()),
    ord("c"): lambda machine: machine.name(machine.line(), machine.line()),
    0x93: _stack_global,
    ord("R"): _reduce,
    ord("b"): _build,
    0x81: _reduce,  # NEWOBJ: a class called with its arguments
    0x92: _new_with_names,
    ord("Q"): lambda machine: machine.stack.append(Persistent(machine.stack.pop())),
    0x94: lambda machine: machine.memo.__setitem__(len(machine.memo), machine.stack[-1]),
    ord("j"): lambda machine: machine.stack.append(machine.memo[machine.size(4)]),
}
"""What each opcode of protocols 2 to 5 does but those of `run`.  Not there: text numbers and instances of protocol 0,
registered extensions, buffers that are kept elsewhere."""
