"""The seeds and every input that was a finding, without atheris: each is read, or refused with an RlcorrError."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import harness
import mutate
import pytest
from seeds import SEEDS, TOKENS

from rlcorr_cli.errors import RlcorrError

REGRESSIONS = Path(__file__).parent / "regressions"
FOUND = sorted(path for path in REGRESSIONS.glob("*/*"))


@pytest.fixture(autouse=True)
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs become files here."""
    monkeypatch.setattr(harness, "folder", lambda: tmp_path)


def seeds() -> Iterator[object]:
    for kind, make in SEEDS.items():
        for name, data in make():
            yield pytest.param(kind, data, id=f"{kind}-{name}")


@pytest.mark.parametrize(("kind", "data"), list(seeds()))
def test_a_seed_is_read_or_refused(kind: str, data: bytes) -> None:
    for request in (harness.ANY_POLICY,) if kind in harness.NATIVE else harness.REQUESTS:
        harness.taken(kind, data, request)


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_was_found_is_read_or_refused(path: Path) -> None:
    for request in harness.REQUESTS:
        harness.taken(path.parent.name, path.read_bytes(), request)


def test_every_reader_has_seeds_that_can_be_read_and_seeds_that_cannot() -> None:
    for kind in harness.HARNESSES:
        request = harness.ANY_POLICY if kind in harness.NATIVE else harness.REQUESTS[0]
        outcomes = [harness.taken(kind, data, request) for _, data in SEEDS[kind]()]
        assert any(not isinstance(outcome, RlcorrError) and outcome > (2, 10) for outcome in outcomes)
        assert any(isinstance(outcome, RlcorrError) for outcome in outcomes)


CHANCE = Random(0)


def scribbled(data: bytes, most: int) -> bytes:
    """What libFuzzer does, poorly: another digit for one, or a token somewhere among the bytes."""
    choose = CHANCE
    at = choose.randrange(len(data) + 1)
    digits = [i for i, byte in enumerate(data) if byte in b"0123456789"]
    if digits and choose.random() < 0.5:
        at = choose.choice(digits)
        return (data[:at] + choose.choice(b"123456789").to_bytes() + data[at + 1 :])[:most]
    return (data[:at] + choose.choice(TOKENS).encode() + data[at + choose.randrange(9) :])[:most]


@pytest.mark.full
@pytest.mark.parametrize("kind", mutate.MUTATORS)
def test_mutations_go_deep(kind: str) -> None:
    """Many mutants get past the door: they are read, or refused for more than not being a dump."""
    mutants = {mutate.MUTATORS[kind](data, 20_000, seed, scribbled) for _, data in SEEDS[kind]() for seed in range(20)}
    outcomes = [harness.taken(kind, mutant) for mutant in sorted(mutants)]
    words = {str(outcome).split(": ")[-1][:30] for outcome in outcomes if isinstance(outcome, RlcorrError)}
    assert len(words) > 7, words
    assert sum(isinstance(outcome, tuple) for outcome in outcomes) > 5
