"""An interrupt or a termination that is not lost.

Python drops an exception that a signal's handler raises inside a callback or a finaliser, and a library that is being
imported one that comes where it says `except: pass`: the run would go on.  So the signal is remembered, too, and work
asks between its batches; and a timer raises it again until it is on its way out, since the main thread may by then wait
for a batch that never comes.
"""

import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

AGAIN_SECONDS = 0.2

_seen: BaseException | None = None
_handled = False
_held_back = 0


ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
"""What ends a process: Ctrl-C, asked to, its terminal closed, another key, a scheduler's warning."""


class Terminated(BaseException):
    """A signal, raised so that temporary files are removed on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_status = 128 + number


def install() -> None:
    """For a process of our own, once, from its main thread.  What is ignored stays so, as in any Unix tool: `nohup`
    asks for it, and a shell script for what it runs in the background."""
    for number in ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _stop)
    signal.signal(signal.SIGALRM, _again)
    sys.unraisablehook = _unraisable


def check() -> None:
    """Raise what a signal asked for, if one came.  For any thread."""
    if _seen is not None:
        raise _seen


def _stop(number: int, frame: FrameType | None) -> None:
    global _seen
    if _handled:
        return
    _seen = KeyboardInterrupt() if number == signal.SIGINT else Terminated(number)
    signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS, AGAIN_SECONDS)
    raise _seen


def signal_handled() -> None:
    """Raise it no more, nor any other: it has arrived, or the work is done."""
    global _handled
    _handled = True
    if _seen is not None:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _again(number: int, frame: FrameType | None) -> None:
    """A call that blocks in the main thread is interrupted by this signal as by the first one."""
    if not _held_back and not _is_on_its_way():
        check()


@contextmanager
def without_resignalling() -> Generator[None]:
    """While what a run leaves is ended: a generator that is closed because nobody holds it any more handles no
    exception that would tell that one is on its way."""
    global _held_back
    _held_back += 1
    try:
        yield
    finally:
        _held_back -= 1


def _is_on_its_way() -> bool:
    """Whether what it goes through on its way out, such as removing temporary files, is running."""
    handled = sys.exc_info()[1]
    while handled is not None and handled is not _seen:
        handled = handled.__context__
    return handled is not None


def _unraisable(dropped: Any) -> None:
    """Say nothing of an exception that will be raised again."""
    if dropped.exc_value is None or dropped.exc_value is not _seen:
        sys.__unraisablehook__(dropped)
