"""Where `watch` keeps what it remembers: a file that grows by what changed, and is written anew when it has doubled.

So what a look saves does not grow with the steps past.  The first time in a run of the command, and wherever the file
is not as it was left, all is written, under another name first; an object of a store is always written whole.  Of what
a kill cut short while it was added, the next run knows nothing, and finds it again.
"""

import os

from rlcorr_cli.files import filesystem, located
from rlcorr_cli.files.destinations import Destination, is_remote
from rlcorr_cli.files.outputs import Outputs, as_output_error
from rlcorr_cli.results.saved_totals import content, read_grown, record
from rlcorr_cli.results.watched import Change, Following


def remembered(place: str) -> Following | None:
    """What was saved at a path or URI; None where nothing is."""
    place = located(place)
    if not filesystem(place).is_there(place):
        return None
    following, changes = read_grown(place, Following, Change)
    for change in changes:
        following = following.then(change)
    return following


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
