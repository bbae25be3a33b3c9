"""Tokenizers that would take all memory or time, or break the library: refused in two lines, or of no effect."""

import json
from pathlib import Path
from typing import Any

import pytest
from running import BF16, Ran, refused, run

pytest.importorskip("tokenizers")

OWN = json.loads(Path(BF16).with_name("tokenizer.json").read_text())


def replaced(pattern: str, content: str, kind: str = "String") -> dict[str, Any]:
    """A decoder that replaces a text."""
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def inside(*decoders: dict[str, Any]) -> dict[str, Any]:
    """One decoder after another."""
    return {"type": "Sequence", "decoders": [*decoders]}


GROW = replaced("a", "a" * 1000)
BACKTRACKING = replaced("^(([a-z ])+.)+[A-Z]([a-z ])+$", "", "Regex")
TEXT = {"type": "Fuse"}
TOO_MUCH = "of memory or 6 s of processor time"
HOSTILE = {
    "grows four times": ({"decoder": inside(*[GROW] * 4)}, TOO_MUCH),
    "grows twice": ({"decoder": inside(GROW, GROW)}, "its decoder makes 2,000,012 characters of a token"),
    "grows within": ({"decoder": inside(inside(GROW), inside(GROW, inside(GROW, GROW)))}, TOO_MUCH),
    "grows everywhere": ({"decoder": inside(OWN["decoder"], *[replaced("", "b" * 1000, "Regex")] * 4)}, TOO_MUCH),
    "tries for ever": ({"decoder": inside(OWN["decoder"], TEXT, BACKTRACKING)}, "retry-limit-in-match"),
    "long names": (
        {"model": {"type": "WordLevel", "vocab": {"q" * 99_997 + f"{i:03}": i for i in range(300)}, "unk_token": "u"}},
        "its decoder makes 100,000 characters of a token",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_decoder_that_takes_too_much_is_an_error_of_two_lines(name: str, tmp_path: Path) -> None:
    changed, told = HOSTILE[name]
    (tmp_path / "t.json").write_text(json.dumps({**OWN, **changed}))
    ran = run("inspect", BF16, "--worst", "2", "--tokenizer", str(tmp_path / "t.json"))
    refused(Ran(ran.status, "", ran.err), 3, told, "Name the tokenizer.json that came with the model.")


def test_padding_that_a_file_asks_for_is_not_made(tmp_path: Path) -> None:
    pads = {"strategy": {"Fixed": 10**12}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0}
    (tmp_path / "t.json").write_text(json.dumps({**OWN, "padding": {**pads, "pad_type_id": 0, "pad_token": "x"}}))
    row = {"rollout_log_probs": [-0.5], "old_log_probs": [-0.5], "response": "a"}
    (tmp_path / "d.jsonl").write_text(json.dumps(row))
    ran = run("inspect", str(tmp_path / "d.jsonl"), "--row", "1", "--tokenizer", str(tmp_path / "t.json"))
    assert ran.status == 0
    assert "cut into tokens by" in " ".join(ran.out.split())
