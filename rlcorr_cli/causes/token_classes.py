"""Classes of tokens by their text: whether digits, special tokens or one script carry the gap.

Each token id is given a class by its text alone (`class_of`).  The tokens of some rows that are of one class are taken
for a row of their own (`by_class`), with the class as a column, TOKEN_CLASS; so a class is found, measured and named as
the level of any column is (`where.place_of`, asked by `search.py`).  A policy is surer of some classes than of others:
rows are compared by their gap over what the surprise of each token predicts, so that this alone names no class.

A token that was the only one left to choose, by a grammar or a filter, is of the class FORCED whatever its text is.
The first tokens after a masked stretch, such as a tool's output, are a class that needs no text.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from rlcorr_cli.causes.where import TOKEN_CLASS
from rlcorr_cli.totals.flat import Ints, ranges, starts_of
from rlcorr_cli.totals.row_sample import TURN, ColumnOfKeys, RowSample

OTHER, FORCED, TURN_STARTS = "other", "tokens without a choice", "the first tokens of later turns"
TURN_START_TOKENS = 3
"""So many tokens after a masked stretch are taken for the start of a turn."""
ROW_GROUPS = 48
"""Classes are compared in so many groups of rows, for a class has few tokens in one row."""
SPECIAL, DIGITS, SPACE, CODE, MARKS = "special tokens", "digits", "whitespace", "signs of code", "punctuation"
SYMBOLS = "emoji and other symbols"
_SPECIAL = re.compile(r"<\|.*\|>|</?[A-Za-z_][\w.:-]*>|\[[A-Z_]{2,}\]", re.DOTALL)
_CODE = frozenset("{}[]<>=+*/\\|&^%$#@~_`")
SCRIPTS = {"CJK": "Han", "IDEOGRAPHIC": "Han", "HIRAGANA": "Japanese", "KATAKANA": "Japanese"}
"""How the names of letters begin in Unicode -> the script, where it is not called so."""


def class_of(text: str) -> str:
    """The class of a token by its text: 'digits', 'Cyrillic letters'; OTHER for a part of a character and for no text.

    text: as `Piece.shown` has it, which writes bytes of a character that is in several tokens as ⟨E2⟩.
    """
    if "⟨" in text:
        return OTHER
    inner = unicodedata.normalize("NFKC", text).strip()  # ℝ and wide letters are Latin ones
    if _SPECIAL.fullmatch(inner):
        return SPECIAL
    if text and not inner:
        return SPACE
    letter = next((c for c in inner if c.isalpha()), None)
    if letter is not None:
        script = unicodedata.name(letter, "").split(" ")[0].split("-")[0]
        return f"{SCRIPTS.get(script, script.capitalize())} letters" if script else OTHER
    if any(c.isnumeric() for c in inner):
        return DIGITS
    kinds = {unicodedata.category(c)[0] for c in inner}
    if kinds & {*"PS"} and kinds <= {*"PSM"}:  # an emoji may have marks
        return CODE if any(c in _CODE for c in inner) else MARKS if "P" in kinds else SYMBOLS
    return SPECIAL if inner and all(unicodedata.category(c) in ("Cc", "Cf") for c in inner) else OTHER


def classes_of(sample: RowSample, texts: Callable[[Sequence[int]], Sequence[str]]) -> dict[int, str]:
    """The class of each token id of a sample; empty of one without ids.  texts: gives the text of each
    of some ids, in order."""
    if sample.token_ids is None:
        return {}
    ids = np.unique(sample.token_ids)
    known = ids[ids >= 0].tolist()
    return {token: class_of(text) for token, text in zip(known, texts(known), strict=True)}


def text_classes(sample: RowSample, classes: Mapping[int, str]) -> ColumnOfKeys:
    """The class of each valid token by its id, and FORCED."""
    assert sample.token_ids is not None
    ids, at = np.unique(sample.token_ids[sample.is_valid], return_inverse=True)
    values = tuple(sorted({*classes.values(), FORCED, OTHER}))
    code = {name: i for i, name in enumerate(values)}
    codes = np.array([code[classes.get(token, OTHER)] for token in ids.tolist()], np.int64)[at]
    if sample.kept_sizes is not None:
        codes = np.where(sample.kept_sizes[sample.is_valid] == 1, code[FORCED], codes)
    return ColumnOfKeys(codes=codes, values=values)


def turn_classes(sample: RowSample) -> ColumnOfKeys:
    """Whether each valid token is among the first TURN_START_TOKENS of any turn but its row's first one."""
    codes = np.zeros(sample.n_valid_tokens, np.int64)
    codes[turn_starts(sample, TURN_START_TOKENS)] = 1
    return ColumnOfKeys(codes=codes, values=(OTHER, TURN_STARTS))


def turn_starts(sample: RowSample, n: int) -> Ints:
    """The places, among the valid tokens, of the first n of every turn but its row's first one."""
    turns = sample.by_turn
    later = np.flatnonzero(turns.levels[TURN].codes)
    return ranges(starts_of(turns.n_valid)[later], np.minimum(turns.n_valid[later], n))


def by_class(sample: RowSample, of_tokens: ColumnOfKeys) -> RowSample:
    """The tokens of some rows that are of one class as one row, with TOKEN_CLASS as its only column.

    The rows are put into ROW_GROUPS groups first: a class has few tokens in one row, and of a row the first and last
    tokens are no part of the body that rows are compared by.
    """
    group = np.arange(sample.n_rows) * min(ROW_GROUPS, sample.n_rows) // sample.n_rows
    first_row = np.searchsorted(group, np.arange(group[-1] + 1))
    key = np.repeat(group, sample.n_valid) * len(of_tokens.values) + of_tokens.codes
    order = np.argsort(key, kind="stable")
    begins = np.flatnonzero(np.diff(key[order], prepend=-1))
    unit = key[order][begins]
    column = ColumnOfKeys(codes=unit % len(of_tokens.values), values=of_tokens.values)
    # Tokens change rows here; `parted` makes rows of them that are of one group and class.
    in_order = replace(sample.with_tokens_in(order), levels={})
    return in_order.parted(begins, first_row[unit // len(of_tokens.values)], {TOKEN_CLASS: column})
