"""Every command, as a user sees it, does what it did: help, terminal, every output, errors.

Where one is meant to change, `python tests/transcript/record.py` records it anew (see there), and `git diff` shows what
a reviewer has to accept.
"""

import pytest
from record import TRANSCRIPTS, changes, replayed


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_commands_do_what_they_did(name: str) -> None:
    changed = changes(*replayed(name))
    if changed:
        pytest.fail(f"{changed}\n\nIf that is meant: python tests/transcript/record.py {name}", pytrace=False)
