"""Makes a signal end the run even where its exception is dropped on the way.

Python drops what a handler raises inside a callback or a finaliser, and a library's import may catch it with `except:
pass`.  So the handler also remembers it, and work calls `check()` between batches.  A timer raises it again, unless it
is just being handled, because the main thread may wait for a batch that never comes.
"""

import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

AGAIN_SECONDS = 0.2

_seen: BaseException | None = None
_handled = False
_paused = 0


ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
"""Signals that end the run: Ctrl-C, kill, a closed terminal, Ctrl-\\, and a scheduler's warning (SIGUSR1)."""


class Terminated(BaseException):
    """An ending signal other than Ctrl-C, raised so that temporary files are removed on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_status = 128 + number


def _stop(number: int, frame: FrameType | None) -> None:
    global _seen
    if _handled or (_seen is not None and _seen.args == (number,)):  # sent to a process, and to all of its group
        return
    _seen = KeyboardInterrupt(number) if number == signal.SIGINT else Terminated(number)
    signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS, AGAIN_SECONDS)
    raise _seen


def install(handler: Callable[[int, FrameType | None], None] = _stop) -> None:
    """Set the handlers, from the main thread of rlcorr's own process.

    Signals that are ignored stay so, as `nohup` and a shell's background jobs ask for.
    """
    for number in ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)
    signal.signal(signal.SIGALRM, _raise_again)
    sys.unraisablehook = _unraisable


def check() -> None:
    """Raise what a signal asked for, if one came.  For any thread."""
    if _seen is not None:
        raise _seen


def signal_handled() -> None:
    """Ignore all ending signals from now on: one has reached main.py, or the run is over."""
    global _handled
    _handled = True
    if _seen is not None:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _raise_again(number: int, frame: FrameType | None) -> None:
    """The timer's handler: raise the signal's exception again, unless the main thread is handling it now, in an except
    or finally block such as removing temporaries."""
    handled = sys.exc_info()[1]
    while handled is not None and handled is not _seen:
        handled = handled.__context__
    if not _paused and handled is None:
        check()


@contextmanager
def without_resignalling() -> Generator[None]:
    """Stop the timer from raising during clean-up.

    In a generator that the garbage collector closes, sys.exc_info() does not show the exception that is on its way.
    """
    global _paused
    _paused += 1
    try:
        yield
    finally:
        _paused -= 1


def _unraisable(dropped: Any) -> None:
    """Say nothing of an exception that will be raised again."""
    if dropped.exc_value is None or dropped.exc_value is not _seen:
        sys.__unraisablehook__(dropped)
