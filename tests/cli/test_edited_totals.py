"""Saved totals edited by hand, with a right digest: whatever stands anywhere, they are read, or refused in two lines.

Each position of a file is every value, list, mapping and array in it; `edited` has what may be put there.
"""

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from running import STEPS, refused, run

from rlcorr_cli.results.saved_totals import _digest

FIRST_LINE = b"rlcorr totals 3\n"
DIGEST = 32
N_EDITS, N_AT_ONCE = 300, 30
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("analyze", "{edited}", "{other}"),
    ("analyze", "{edited}", "-o", "{folder}/out.csv", "--overwrite"),
    ("check", "{edited}", "--max", "kl=9"),
    ("diff", "{edited}", "{other}"),
    ("diff", "{other}", "{edited}"),
)


def read(data: bytes) -> tuple[bytes, Any]:
    """A file's head as it is, and its totals as plain values and arrays."""
    body = data[len(FIRST_LINE) + DIGEST :]
    end = 8 + int.from_bytes(body[:8], "big")
    return body[8:end], _arrays(msgspec.msgpack.decode(body[end:]))


def written(head: bytes, totals: Any) -> bytes:
    """The file of a head and totals, with the digest that it should have."""
    body = len(head).to_bytes(8, "big") + head + msgspec.msgpack.encode(_plain(totals))
    return FIRST_LINE + _digest(body) + body


def _arrays(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _arrays(value) for key, value in node.items()}
    if not isinstance(node, list):
        return node
    if len(node) == 3 and isinstance(node[2], bytes):
        kind, shape, content = node
        return np.frombuffer(content, kind).reshape(shape)
    return [_arrays(value) for value in node]


def _plain(node: Any) -> Any:
    if isinstance(node, np.ndarray):
        return [node.dtype.str, node.shape, node.tobytes()]
    if isinstance(node, dict):
        return {key: _plain(value) for key, value in node.items()}
    return [_plain(value) for value in node] if isinstance(node, list) else node


def positions(node: Any, *above: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every place in the totals, with what is there."""
    yield above, node
    inside = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in inside:
        yield from positions(value, *above, key)


def edited(value: Any) -> list[Any]:
    """What may stand there instead."""
    if isinstance(value, np.ndarray):
        return _edited_array(value)
    if isinstance(value, dict):
        names = list(value)
        renamed = {f"x{name}": value[name] for name in names}
        more = {**value, "more": value[names[-1]]} if names else {"more": 1}
        return [{}, None, dict(list(value.items())[:-1]), dict(reversed(value.items())), renamed, more]
    if isinstance(value, list):
        return [value[:-1], value + value[-1:], [], value[::-1], None]
    if isinstance(value, bool) or value is None:
        return [not value, 0, "", []]
    if isinstance(value, int):
        return [-1, 0, 1, value + 1, 1 << 62, None, "x"]
    return [math.nan, math.inf, -1e308, 0.5, None] if isinstance(value, float) else ["", "x", None, 3]


def _edited_array(array: NDArray[Any]) -> list[NDArray[Any]]:
    shaped = [
        array[:-1],
        array[None],
        array.ravel(),
        array[:0],
        np.concatenate([array, array]),
        array[..., :-1],
        array.T,
    ]
    if array.dtype.kind == "f":
        whole = np.nan_to_num(array, nan=0, posinf=0, neginf=0).astype(np.int64)
        return [
            *shaped,
            whole,
            np.zeros_like(array),
            -abs(array) - 1,
            *(np.full_like(array, n) for n in (np.nan, np.inf)),
        ]
    if array.dtype.kind == "b":
        return [*shaped, array.astype(np.int64), ~array]
    most = np.full_like(array, np.iinfo(array.dtype).max)
    return [*shaped, array.astype(np.float64), np.zeros_like(array), array[::-1], most]


def replaced(node: Any, place: tuple[Any, ...], value: Any) -> Any:
    """The totals with another value at a place."""
    if not place:
        return value
    first, *rest = place
    copy = node.copy()
    copy[first] = replaced(node[first], tuple(rest), value)
    return copy


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Saved totals of either half of a dump, with all that a file can hold."""
    folder = tmp_path_factory.mktemp("parts")
    table = pq.read_table(STEPS)
    halves = table.slice(0, len(table) // 2), table.slice(len(table) // 2)
    saved = folder / "a.rlcorr", folder / "b.rlcorr"
    for half, path in zip(halves, saved, strict=True):
        pq.write_table(half, folder / "d.parquet")
        options = ("--group-by", "step", "--preset", "token_is", "--objective", "ppo")
        ran = run("analyze", str(folder / "d.parquet"), *options, "-o", str(path))
        assert ran.status == 0, ran.err
    return saved


@pytest.mark.full
@pytest.mark.parametrize("first", range(0, N_EDITS, N_AT_ONCE))
def test_totals_that_are_edited_anywhere_are_read_or_refused(
    first: int, parts: tuple[Path, Path], tmp_path: Path
) -> None:
    saved, other = parts
    head, totals = read(saved.read_bytes())
    chance = random.Random(0)
    places = chance.sample(list(positions(totals)), N_EDITS)
    statuses: set[int] = set()
    for number, (place, value) in list(enumerate(places))[first : first + N_AT_ONCE]:
        instead = random.Random(number).choice(edited(value))
        (tmp_path / "a.rlcorr").write_bytes(written(head, replaced(totals, place, instead)))
        named = {"edited": tmp_path / "a.rlcorr", "other": other, "folder": tmp_path}
        ran = run(*(part.format(**named) for part in COMMANDS[number % len(COMMANDS)]))
        statuses.add(ran.status)
        assert ran.status in (0, 1, 2, 3), (place, instead, ran.err)
        if ran.status > 1:
            assert len(ran.err.splitlines()) == 2, (place, instead, ran.err)
    assert 3 in statuses


TOTALS = ("measured", "totals")
LOG_RATIOS = (*TOTALS, "histograms", "diagnostics.decoupled.log_ratio")
BELONGING: dict[str, tuple[tuple[Any, ...], Any]] = {
    "lengths of more rows": (("measured", "sample", "n_valid"), np.ones(9999, np.int64)),
    "a level without its value": (("measured", "sample", "levels", "step", "values"), []),
    "log-probs above 0": (("measured", "sample", "train"), 0.5),
    "rows of no file": (("measured", "sample", "files"), 7.0),
    "a tail of another size": ((*TOTALS, "tails", "diagnostics.decoupled.token", 0, "size"), 1 << 62),
    "a histogram of no order": ((*LOG_RATIOS, 0, "bins"), 7.0),
    "histograms of fewer groups": (LOG_RATIOS, []),
    "a group without its histogram": ((*LOG_RATIOS, 0), None),
    "a histogram of what is not there": ((*TOTALS, "shared"), {"diagnostics.decoupled.log_ratio": "x"}),
    "a group that is there twice": ((*TOTALS, "keys", 1), [0, 0]),
    "a name without numbers": ((*TOTALS, "tables", "max", "names"), ["x"]),
    "bins that end elsewhere": (("measured", "pictures", "spread", "surprise", "binning", "first"), -1),
    "a sum over bins that is no number": (("measured", "pictures", "spread", "length", "sums", "sum"), math.nan),
    "replicates of another name": (("measured", "replicates", "decoupled", "sums", "names", 0), "x"),
    "a number of tokens that is none": ((*TOTALS, "tables", "sum", "values"), math.nan),
    "counts below 0": ((*TOTALS, "tables", "sum", "values"), -1.0),
    "an input without columns": (("inputs", 0, "columns"), {}),
    "settings that are not there": (("measured", "provenance", "settings"), {}),
}


@pytest.mark.parametrize("name", BELONGING)
def test_totals_that_do_not_belong_together_are_said_to_be_so(
    name: str, parts: tuple[Path, Path], tmp_path: Path
) -> None:
    head, totals = read(parts[0].read_bytes())
    place, value = BELONGING[name]
    if isinstance(value, float):
        value = np.full_like(dict(positions(totals))[place], value)
    (tmp_path / "a.rlcorr").write_bytes(written(head, replaced(totals, place, value)))
    ran = run("analyze", str(tmp_path / "a.rlcorr"))
    refused(ran, 3, "a.rlcorr holds totals that do not belong together: ")


def test_totals_that_are_written_again_as_they_are_are_read(parts: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "a.rlcorr").write_bytes(written(*read(parts[0].read_bytes())))
    assert (tmp_path / "a.rlcorr").read_bytes() == parts[0].read_bytes()
