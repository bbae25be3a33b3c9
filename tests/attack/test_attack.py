"""Every finding of the attack that was, and a sample of the attack that goes on: the same cases for the same SEED.

`python tests/attack/run.py` tries more of them, other ones with another --seed, and one by its name: `--case NAME`.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import cases
import pytest
from case import Case, Unmade
from judge import wrong
from warm import Server
from workplace import try_case, workplaces

pytestmark = pytest.mark.xdist_group("attack")
SEED = 12
SIZES = {"types": 10, "paths": 8, "surroundings": 3, "options": 7, "files": 7}
"""Cases of a kind."""


@cache
def sample(kind: str) -> list[Case]:
    """The cases of a kind that are tests: drawn when the first of them runs, for all cases take seconds to make."""
    return cases.sample(kind, SIZES[kind], SEED)


@pytest.fixture
def place() -> Iterator[Path]:
    with workplaces() as folder:
        yield folder / "0"


def keeps_its_promises(case: Case, server: Server, place: Path) -> None:
    try:
        tried = try_case(case, server, place)
    except Unmade as reason:
        pytest.skip(str(reason))
    assert wrong(tried) == [], case.name


@pytest.mark.parametrize("case", cases.all_of("findings"), ids=lambda case: case.name)
def test_what_was_found_is_mended(case: Case, server: Server, place: Path) -> None:
    keeps_its_promises(case, server, place)


@pytest.mark.parametrize(("kind", "number"), [(kind, number) for kind, size in SIZES.items() for number in range(size)])
def test_a_command_keeps_its_promises(kind: str, number: int, server: Server, place: Path) -> None:
    keeps_its_promises(sample(kind)[number], server, place)
