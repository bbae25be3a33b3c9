"""What a result is of, in words."""

import os
from collections.abc import Sequence
from typing import Protocol

from rlcorr_cli.present.numbers import more
from rlcorr_cli.present.stdout import clean


class HasPath(Protocol):
    """A file that was read."""

    @property
    def path(self) -> str:
        """Its path; - of standard input."""
        ...


def named(inputs: Sequence[HasPath]) -> str:
    """The first file's name, and how many more there are."""
    first = inputs[0].path
    name = "stdin" if first == "-" else clean(os.path.basename(first))
    return name if len(inputs) == 1 else f"{name} {more(len(inputs) - 1, 'file')}"
