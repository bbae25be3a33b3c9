"""Classes of tokens: which class a text is of, and that a fault in one is named where it is, and nowhere else."""

import sys
from pathlib import Path

import numpy as np
import pytest

from rlcorr_cli import analyze, diagnose
from rlcorr_cli.causes.token_classes import class_of

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from token_classes import dump, named, tokenizer

CLASSES = {
    "digits": ("7", " 12", "½"),
    "whitespace": (" ", "\n\n", "\t"),
    "punctuation": (",", " ...", "()", "。"),
    "signs of code": ("{", "==", " +=", "_"),
    "special tokens": ("<|im_end|>", "</s>", "<think>", "[INST]", "\x00"),
    "Latin letters": (" the", "é", "x1", "foo_bar", "ℝ", "Ａ", "ª"),
    "Greek letters": ("π", "µ"),
    "emoji and other symbols": ("🙂", " ❤️", "©"),
    "Cyrillic letters": ("привет",),
    "Han letters": ("中文", "々"),
    "Japanese letters": ("ひらがな", "カナ"),
    "Arabic letters": ("سلام",),
    "other": ("", "⟨E2⟩", "⟨id 7⟩"),
}


@pytest.mark.parametrize("name", CLASSES)
def test_a_text_is_of_the_class_that_its_signs_are_of(name: str) -> None:
    assert {text: class_of(text) for text in CLASSES[name]} == dict.fromkeys(CLASSES[name], name)


@pytest.mark.parametrize(
    ("wrong", "kind"), [("digits", "shift"), ("special tokens", "far"), ("Han letters", "noise"), ("whitespace", "far")]
)
def test_the_class_that_a_fault_is_in_is_named_where_texts_are_known(wrong: str, kind: str, tmp_path: Path) -> None:
    path, tokens = tmp_path / "dump.parquet", tokenizer(tmp_path)
    dump(path, 5, wrong, kind)
    assert named(path, tokens) == wrong
    report = analyze(path, tokenizer=tokens)
    assert report.cause is not None
    assert report.cause.headline == f"something that is wrong with {wrong}"
    assert report.cause.share > 0.5
    without = diagnose(path).whole.diagnosis
    assert "token_class" not in {column.column for column in without.columns}


def test_a_class_that_holds_a_tenth_of_the_gap_is_named(tmp_path: Path) -> None:
    path, tokens = tmp_path / "dump.parquet", tokenizer(tmp_path)
    dump(path, 0, "special tokens", "noise")
    cause = diagnose(path, tokenizer=tokens).whole.diagnosis.cause
    assert cause is not None
    assert cause.parameters["levels"] == "special tokens"
    assert 0.1 < cause.share < 0.3


def test_the_mean_ratio_is_judged_beside_a_class_that_is_wrong(tmp_path: Path) -> None:
    path, tokens = tmp_path / "dump.parquet", tokenizer(tmp_path)
    dump(path, 5, "digits", "shift")
    assert diagnose(path).whole.diagnosis.impossible is not None
    assert diagnose(path, tokenizer=tokens).whole.diagnosis.impossible is None


def test_the_first_tokens_after_a_tools_output_need_no_text(tmp_path: Path) -> None:
    path = tmp_path / "dump.parquet"
    dump(path, 4, "tool", "noise")
    whole = diagnose(path).whole
    found = whole.diagnosis
    assert found.cause is not None
    assert found.cause.parameters["levels"] == "the first tokens of later turns"
    assert "the tool's output" in found.cause.advice
    (column,) = [column for column in found.columns if column.column == "token_class"]
    hot = [level for level in column.levels if level.is_hot]
    assert [level.level for level in hot] == ["the first tokens of later turns"]
    assert sum(level.tokens for level in column.levels) == whole.counts["tokens"]


@pytest.mark.parametrize("seed", range(3))
def test_no_class_is_named_where_classes_differ_in_surprise_and_noise_alone(seed: int, tmp_path: Path) -> None:
    path, tokens = tmp_path / "dump.parquet", tokenizer(tmp_path)
    dump(path, 1000 + seed, None, "shift")
    assert named(path, tokens) in ("noise", "other_weights", "no_cause")


def test_tokens_in_another_order_are_the_same_tokens(tmp_path: Path) -> None:
    path = tmp_path / "dump.parquet"
    dump(path, 1, "tool", "far")
    from rlcorr_cli.causes.token_classes import by_class, turn_classes

    sample = analyze(path, totals=True).totals.measured.sample
    units = by_class(sample, turn_classes(sample))
    assert units.n_valid_tokens == sample.n_valid_tokens == int(units.n_valid.sum())
    assert np.array_equal(np.sort(units.rollout - units.train), np.sort(sample.rollout - sample.train))
    units.check_unpacked()
