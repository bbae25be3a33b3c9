"""Pickles that name classes by what is not text: refused at once, at the byte where it is."""

from pathlib import Path

import pytest
from running import refused, run

from rlcorr_cli.layouts.pickled import LONGEST_NAME

SKYRL = b"\x80\x04cskyrl.backends.skyrl_train.training_batch\nTrainingInputBatch\n0"
"""The beginning by which a file is taken for SkyRL's."""
A, B = b"\x8c\x01a", b"\x8c\x01b"
BY_STACK = b"\x93"
"""The opcode that takes a module and a name from the stack."""
NESTED = {
    "a tuple that holds one twice, forty times over": A + b"2\x86" * 40,
    "three thousand tuples in each other": A + b"\x85" * 3000,
    "a list of lists": b"](]]e",
    "bytes": b"C\x01a",
    "None": b"N",
    "a number": b"K\x01",
    "a longer name than any": b"X" + (LONGEST_NAME + 1).to_bytes(4, "little") + b"a" * (LONGEST_NAME + 1),
}
COMMANDS = [("analyze",), ("inspect",), *[("analyze", "--format", name) for name in ("skyrl", "verl", "roll")]]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("place", ["module", "name"])
@pytest.mark.parametrize("nested", NESTED)
def test_a_name_that_is_no_text_is_refused(nested: str, place: str, command: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "d.pkl"
    pair = NESTED[nested] + B if place == "module" else A + NESTED[nested]
    before = b"\x80\x04" if "--format" in command else SKYRL
    path.write_bytes(before + pair + BY_STACK + b".")
    at = len(before + pair + BY_STACK)
    refused(run(command[0], str(path), *command[1:]), 3, str(path), f"its pickle is broken at byte {at:,}.")


def test_names_that_are_put_together_very_often_are_refused_before_they_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "d.pkl"
    long = b"X" + (1 << 20).to_bytes(4, "little") + b"a" * (1 << 20)
    path.write_bytes(b"\x80\x04" + long + b"\x94" + (b"h\x00h\x00" + BY_STACK) * 100_000 + b".")
    refused(run("inspect", str(path), "--format", "verl"), 3, "its pickle is broken at byte")
