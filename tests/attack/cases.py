"""All cases, by kind; and a sample of them, the same for the same seed, in which every factor has its turn."""

from collections.abc import Callable, Sequence
from functools import cache
from random import Random

import kind_files
import kind_findings
import kind_options
import kind_paths
import kind_surroundings
import kind_types
from case import Case, Cases

KINDS: dict[str, Callable[[], Cases]] = {
    "findings": kind_findings.cases,
    "types": kind_types.cases,
    "paths": kind_paths.cases,
    "surroundings": kind_surroundings.cases,
    "options": kind_options.cases,
    "files": kind_files.cases,
}
"""Kind -> what generates its cases."""


@cache
def all_of(kind: str) -> tuple[Case, ...]:
    """Every case of a kind."""
    return tuple(KINDS[kind]())


def sample(kind: str, size: int, seed: int) -> list[Case]:
    """Cases of a kind: as many as may be with a factor that none before has, then any."""
    cases = list(all_of(kind))
    Random(f"{seed} {kind}").shuffle(cases)
    return spread(cases)[:size]


def spread(cases: Sequence[Case]) -> list[Case]:
    """The same cases, those first that show a factor for the first time."""
    seen: set[str] = set()
    first, rest = [], []
    for case in cases:
        new = not seen.issuperset(case.factors)
        seen.update(case.factors)
        (first if new else rest).append(case)
    return first + rest
