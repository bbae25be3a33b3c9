"""Where `watch` keeps what it remembers: a file that grows by what changed, and is written anew when it has doubled.

So what a look saves does not grow with the steps past.  The first time in a run of the command, and wherever the file
is not as it was left, all is written, under another name first; an object of a store is always written whole.  Of what
a kill cut short while it was added, the next run knows nothing, and finds it again.
"""

import errno
import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager

from rlcorr_cli.errors import DataError, OutputError, UsageError
from rlcorr_cli.files import filesystem, located
from rlcorr_cli.files.destinations import Destination, is_remote
from rlcorr_cli.files.outputs import Outputs, as_output_error
from rlcorr_cli.results.saved_totals import AGAIN, content, read_grown, record
from rlcorr_cli.results.watched import Change, Following

WAITS_S = 10
"""For how long a watch waits for another one on the same state, as where a look of cron takes longer than its turn."""


def remembered(place: str) -> Following | None:
    """What was saved at a path or URI; None where nothing is."""
    place = located(place)
    if not filesystem(place).is_there(place):
        return None
    try:
        following, changes = read_grown(place, Following, Change)
    except (DataError, UsageError) as error:
        if error.do != AGAIN and isinstance(error, DataError):  # as of a store that does not answer
            raise
        raise DataError(error.what, "Delete it, or name another with ⟦state⟧.") from error
    for change in changes:
        following = following.then(change)
    return following


@contextmanager
def alone(state: Destination) -> Generator[None]:
    """Let one watch at a time have a state of the disk: another waits, and gives up with an OutputError.

    A file beside the state is locked, for the state itself may be another file after each save.  The lock goes with the
    process, however that ends.
    """
    path, until = state.place.with_name(f".{state.place.name}.lock"), time.monotonic() + WAITS_S
    if is_remote(state.place):
        yield
        return
    while True:
        with as_output_error(state):
            number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            has_lock = os.fstat(number).st_nlink > 0  # who had it removes the file
        except OSError as error:
            has_lock = error.errno != errno.EWOULDBLOCK  # where a file system has no locks, nothing is locked
        if has_lock:
            break
        os.close(number)
        if time.monotonic() > until:
            in_use = f"{state.path} is in use by another `rlcorr watch`."
            raise OutputError(in_use, "Wait until that ends, or name another file with ⟦state⟧.")
        time.sleep(0.05)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(number)


class StateFile:
    """The file of one run of the command."""

    def __init__(self, destination: Destination, following: Following) -> None:
        """following: what was remembered when it began."""
        self._destination = destination
        self.saved = following
        self._whole = self._size = 0

    def save(self, following: Following) -> None:
        """Have all that is remembered on the disk, or in the store; an OutputError where that cannot be."""
        change = record(following.since(self.saved))
        if self._is_as_left() and self._size + len(change) <= 2 * self._whole:
            with as_output_error(self._destination), self._destination.place.open("ab") as file:
                file.write(change)
                file.flush()
                os.fsync(file.fileno())
            self._size += len(change)
        else:
            pieces = content(following, grows=True)
            with Outputs() as staging:
                staging.write(self._destination, pieces)
                staging.publish()
            self._whole = self._size = sum(map(len, pieces))
        self.saved = following

    def _is_as_left(self) -> bool:
        """Whether the file is there, as long as this run left it."""
        place = self._destination.place
        try:
            return self._size > 0 and not is_remote(place) and place.stat().st_size == self._size
        except OSError:
            return False
