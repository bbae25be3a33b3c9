"""The text of tokens: the pieces of a sequence are what its tokenizer decodes, whatever the tokenizer."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.reading.token_text import Tokenizer, load, of_strings

tokenizers = pytest.importorskip("tokenizers")

SCRIPTS = {
    "Latin": (0x20, 0x17F),
    "Greek": (0x370, 0x3FF),
    "Cyrillic": (0x400, 0x4FF),
    "Hebrew": (0x5D0, 0x5EA),
    "Arabic": (0x620, 0x64A),
    "Devanagari": (0x900, 0x97F),
    "Thai": (0xE00, 0xE7F),
    "Georgian": (0x10A0, 0x10FF),
    "Hangul": (0xAC00, 0xD7A3),
    "Han": (0x4E00, 0x9FFF),
    "emoji": (0x1F300, 0x1FAFF),
}
TEXTS = st.lists(
    st.one_of(
        *(
            st.text(st.characters(min_codepoint=a, max_codepoint=b), min_size=1, max_size=6)
            for a, b in SCRIPTS.values()
        ),
        st.sampled_from([" ", "\n", " the", " can not .", "👨‍👩‍👧", "<|end|>", "\ufffd", "⟨E2⟩", "'s", " ,"]),
    ),
    max_size=8,
).map("".join)
CORPUS = ["the cat can not fly.", "the cat flew, and the dog did not.", "Γειά σου", "ב ש ל", "print('x')\n\n"] * 4


def byte_level() -> Any:
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=alphabet, special_tokens=["<|end|>"], show_progress=False
    )
    made.train_from_iterator(CORPUS, trainer)
    return made


def unigram() -> Any:
    """As of SentencePiece: `▁` for a space, a first space that is stripped, bytes for what is not in the vocabulary."""
    decoders, normalizers = tokenizers.decoders, tokenizers.normalizers
    made = tokenizers.Tokenizer(tokenizers.models.Unigram())
    trainer = tokenizers.trainers.UnigramTrainer(vocab_size=60, show_progress=False, unk_token="<unk>")
    made.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    made.train_from_iterator(CORPUS, trainer)
    names = [name for name, _ in sorted(made.get_vocab().items(), key=lambda pair: pair[1])]
    vocabulary = [(name, -float(i + 1)) for i, name in enumerate(names) if name != "<unk>"]
    vocabulary = [("<unk>", 0.0), *((f"<0x{byte:02X}>", -99.0) for byte in range(256)), *vocabulary]
    made = tokenizers.Tokenizer(tokenizers.models.Unigram(vocabulary, 0, byte_fallback=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    made.add_special_tokens(["<|end|>"])
    return made


def word_piece() -> Any:
    """Whose decoder takes away the space before a full stop."""
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.decoder = tokenizers.decoders.WordPiece(cleanup=True)
    trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[UNK]"], show_progress=False)
    made.train_from_iterator(CORPUS, trainer)
    return made


def suffixed() -> Any:
    """Whose tokens say that a word ends with them."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.decoder = tokenizers.decoders.BPEDecoder()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=200, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False
    )
    made.train_from_iterator(CORPUS, trainer)
    return made


KINDS: dict[str, Callable[[], Any]] = {
    "byte-level": byte_level,
    "unigram": unigram,
    "word-piece": word_piece,
    "suffixed": suffixed,
}


@cache
def made(kind: str) -> Tokenizer:
    return Tokenizer(kind, KINDS[kind]())


@pytest.mark.full
@settings(max_examples=25 * settings().max_examples, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=TEXTS)
@example("👨‍👩‍👧 héllo 字字 the cat can not .")
def test_the_pieces_together_are_what_the_tokenizer_decodes(text: str) -> None:
    for kind in KINDS:
        tokenizer = made(kind)
        ids = tokenizer.inner.encode(text).ids
        pieces = tokenizer.pieces(ids)
        assert len(pieces) == len(ids), kind
        whole = tokenizer.inner.decode(ids, skip_special_tokens=False)
        assert "".join(piece.text for piece in pieces) == whole, kind


@settings(max_examples=8 * settings().max_examples, deadline=None, suppress_health_check=list(HealthCheck))
@given(numbers=st.lists(st.integers(0, 700), max_size=40))
def test_so_they_are_of_tokens_in_any_order(numbers: list[int]) -> None:
    """A policy samples broken characters, too, and ids that the tokenizer has not."""
    for kind in KINDS:
        tokenizer = made(kind)
        pieces = tokenizer.pieces([*numbers, -1, 1 << 40])
        whole = tokenizer.inner.decode(numbers, skip_special_tokens=False)
        assert "".join(piece.text for piece in pieces) == whole, kind
        assert pieces[-1].text == "", kind


def test_bytes_of_a_character_are_shown_until_it_is_whole() -> None:
    for kind in ("byte-level", "unigram"):
        tokenizer = made(kind)
        ids = tokenizer.inner.encode("a字").ids[-3:]
        assert [piece.text for piece in tokenizer.pieces(ids)] == ["", "", "字"]
        assert [piece.shown for piece in tokenizer.pieces(ids)] == ["⟨E5⟩", "⟨AD⟩", "字"]
        broken = tokenizer.pieces([*ids[:2], *tokenizer.inner.encode("<|end|>").ids[-1:]])
        assert [piece.shown for piece in broken] == ["⟨E5⟩", "⟨AD⟩", "<|end|>"]
        assert "".join(piece.text for piece in broken) in ("\ufffd<|end|>", "\ufffd\ufffd<|end|>")


def test_pieces_stand_where_their_tokens_do() -> None:
    for kind in KINDS:
        tokenizer = made(kind)
        names = ["the", "cat", "can", "not", "fly"]
        ids = [tokenizer.inner.encode(f" {name}" if kind == "byte-level" else name).ids for name in names]
        pieces = tokenizer.pieces([i for word in ids for i in word])
        ends = [sum(map(len, ids[: n + 1])) for n in range(len(names))]
        for start, end, name in zip([0, *ends], ends, names, strict=False):
            assert "".join(piece.text for piece in pieces[start:end]).strip() == name


def test_strings_are_read_as_text_or_as_names_of_a_vocabulary() -> None:
    assert [p.text for p in of_strings(["The", "Ġcat", "Ċ", "å", "Ń", "Ĺ"])] == ["The", " cat", "\n", "", "", "字"]
    assert [p.shown for p in of_strings(["Ġ", "å", "Ń"])] == [" ", "⟨E5⟩", "⟨AD⟩"]
    assert [p.text for p in of_strings(["▁The", "▁ca", "t", "<0xE5>", "<0xAD>", "<0x97>"])][-1] == "字"
    assert [p.text for p in of_strings(["The", " cat", "å", None, 5])] == ["The", " cat", "å", "", "5"]
    assert [p.text for p in of_strings(["Ġ字", "\ud800"])] == ["Ġ字", "\ud800"]


def test_a_tokenizer_is_a_file_or_a_folder_that_holds_one(tmp_path: Path) -> None:
    byte_level().save(str(tmp_path / "tokenizer.json"))
    for source in (tmp_path / "tokenizer.json", tmp_path):
        assert load(str(source)).decode(made("byte-level").encode("the cat")) == "the cat"


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"model": 1}', b"\xff\xfe", b"PK\x03\x04"])
def test_what_is_no_tokenizer_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match="is not a tokenizer"):
        load(str(path))


def test_a_place_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    for source in (str(tmp_path), str(tmp_path / "none.json"), "./none"):
        with pytest.raises(UsageError, match=r"There is no file|holds no tokenizer"):
            load(source)
