"""No message is longer than some hundred characters, whatever the names and values in it."""

import pytest

from rlcorr_cli.errors import LONGEST, RlcorrError, nearest, not_one_of, shortened

LONG = "x" * 100_000


def test_a_long_message_keeps_its_start_and_its_end_and_says_how_long_it_was() -> None:
    error = RlcorrError(f"d.jsonl, row 3, sample_id {LONG} comes twice.", f"Try {LONG}.")
    assert error.message.startswith("d.jsonl, row 3, sample_id xxx")
    assert error.message.endswith("xxx comes twice.")
    assert " … (100,039 characters) … " in error.message
    assert str(error) == error.message
    assert max(len(error.message), len(error.hint)) <= LONGEST


def test_a_short_message_is_left_alone() -> None:
    text = "x" * LONGEST
    assert RlcorrError(text, text).message == RlcorrError(text, text).hint == text


def test_said_in_other_words_it_stays_short() -> None:
    error = RlcorrError(LONG)
    error.word(str.upper)
    assert error.message.startswith("XXX")
    assert len(error.message) <= LONGEST


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("token", "'token'"),
        (3.5, "3.5"),
        ([1, 2, 3, 4, 5], "[1, 2, 3, 4, ...]"),
        ([[[["deep"]]]], "[[[...]]]"),
        (10**5000, "<an integer of 16,610 bits>"),
        ([0x10**5000], "[<an integer of 20,001 bits>]"),
    ],
    ids=("text", "number", "list", "lists of lists", "large integer", "list of a large integer"),
)
def test_a_value_is_shown_by_a_short_piece(value: object, shown: str) -> None:
    assert shortened(value) == shown


@pytest.mark.parametrize(
    "value",
    [LONG, [LONG] * 1000, {LONG: LONG}, LONG.encode(), "\U000e0001" * 1000],
    ids=("text", "list", "mapping", "bytes", "escapes"),
)
def test_no_value_is_shown_whole(value: object) -> None:
    assert len(shortened(value)) <= 800


def test_the_nearest_of_long_names_is_found_at_once() -> None:
    assert len(nearest(LONG, [LONG[1:], "b"])) < 200
    assert len(nearest("x", [f"{LONG}{i}" for i in range(50)])) < 1500
    assert nearest("loss", [LONG, "lost"]) == "lost"
    assert len(not_one_of("--mode", LONG, ["a", "b"]).message) < 200
