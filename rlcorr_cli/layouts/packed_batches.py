"""prime-rl's rollouts/step_{N}/rank_{R}.bin: msgpack of the micro batches that a rank trains on, without keys.

A micro batch is an array of 16; FIELDS are the places of those that are read.  Packed sequences are told apart by
sequence_lengths, the last of which includes padding; a row runs from the first to the last trained token, so that it
is cut off.  What is nested deep or not read is passed over undecoded.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.msgpack import decode
from numpy.typing import NDArray

from rlcorr_cli.errors import DataError
from rlcorr_cli.layouts.json_layouts import EXPORT_HINT
from rlcorr_cli.layouts.layout import OpenedDump, Sample
from rlcorr_cli.layouts.recognise import FileStart
from rlcorr_cli.layouts.torch_files import opened
from rlcorr_cli.layouts.values import HINT, aligned, floats, integers, span

FIELDS = {
    "input_ids": 0,
    "loss_mask": 1,
    "advantages": 2,
    "inference_logprobs": 3,
    "sequence_lengths": 5,
    "env_names": 7,
    "ref_logprobs": 9,
}
N_FIELDS = 16
START = b"\xdc\x00\x10"
"""How an array of 16 begins."""
MIN_BYTES = len(START) + N_FIELDS
"""Of a micro batch; a file has no more of them than that allows."""
MAX_MICRO_BATCHES = 1 << 16
MAX_TOKENS = 1 << 22
"""Of a micro batch."""
NIL = 0xC0
TRUE, FALSE = 0xC3, 0xC2
DOUBLE = np.dtype([("tag", np.uint8), ("value", ">f8")])
"""A float of 64 bits, tag 0xcb, as msgpack has it."""
DOUBLE_TAG = 0xCB
CUT = "Is it still being written, or was it cut short?"
COLUMNS = ("rollout_log_probs", "response_mask", "token_ids", "advantages", "source", "micro_batch", "sequence")
NOTES = ("Micro batches that only fill up, and sequences without a trained token, give no row.",)


def recognise(start: FileStart) -> str | None:
    """By how the outer array, its first micro batch and that one's token ids begin."""
    count = _count(memoryview(start.first_bytes))
    if count is None or count[0] == 0:
        return None
    n_read = count[1]
    inside = start.first_bytes[n_read : n_read + len(START)] == START
    tokens = _count(memoryview(start.first_bytes[n_read + len(START) :])) if inside else None
    return "msgpack arrays of 16 fields" if tokens is not None else None


def open_rank(paths: Sequence[str]) -> OpenedDump:
    """One rank's micro batches of a step."""
    import pyarrow as pa

    (path,) = paths
    step, rank = re.search(r"step_(\d{1,15})\D", path), re.search(r"rank_(\d{1,15})\.bin$", path)
    places = {
        **({"step": int(step[1])} if step else {}),
        **({"worker": int(rank[1])} if rank else {}),
    }
    scored = any(not _is_nil(fields[FIELDS["ref_logprobs"]]) for fields in _micro_batches(path))

    def samples() -> Iterator[Sample]:
        for place, fields in enumerate(_micro_batches(path)):
            try:
                for sample in _samples(fields):
                    yield {**places, "micro_batch": place, **sample}
            except DataError as error:
                raise DataError(f"micro batch {place}: {error.message}", error.hint) from error

    return OpenedDump(
        columns=[*COLUMNS, *places, *(["ref_log_probs"] if scored else [])],
        samples=samples,
        notes=NOTES,
        types={"micro_batch": pa.int64(), "sequence": pa.int64()},
        missing_policy_hint=EXPORT_HINT,
    )


def _micro_batches(path: str) -> Iterator[list[msgspec.Raw]]:
    """The fields of each micro batch, undecoded."""
    data = opened(path)[:]
    count = _count(data)
    if count is None or count[0] > len(data) // MIN_BYTES:
        raise DataError("it is not a msgpack array of micro batches, or is incomplete.", CUT)
    if count[0] > MAX_MICRO_BATCHES:
        raise DataError(f"it has {count[0]:,} micro batches; at most {MAX_MICRO_BATCHES:,} are read.", HINT)
    for micro_batch in _decoded(data, list[msgspec.Raw]):
        content = memoryview(micro_batch)
        if bytes(content[: len(START)]) != START:
            raise DataError(f"a micro batch is not an array of {N_FIELDS}.", HINT)
        yield _decoded(content, list[msgspec.Raw])


def _samples(fields: list[msgspec.Raw]) -> Iterator[Sample]:
    raw = {name: memoryview(fields[place]) for name, place in FIELDS.items()}
    n_tokens = _length(raw["input_ids"], "input_ids")
    valid = _flags(raw["loss_mask"])
    if not valid.any():
        return
    lists: dict[str, Any] = {
        "input_ids": integers({"input_ids": _values(raw["input_ids"], "input_ids", list[int])}, "input_ids"),
        "loss_mask": valid,
        "advantages": _floats(raw["advantages"], "advantages"),
        "inference_logprobs": _floats(raw["inference_logprobs"], "inference_logprobs"),
        "env_names": _values(raw["env_names"], "env_names", list[str]),
    }
    if raw["ref_logprobs"][0] != NIL:
        lists["ref_logprobs"] = _floats(raw["ref_logprobs"], "ref_logprobs")
    aligned(**lists)
    lengths = _values(raw["sequence_lengths"], "sequence_lengths", list[int])
    if any(length < 0 for length in lengths) or sum(lengths) != n_tokens:
        raise DataError(f"sequence_lengths do not add up to its {n_tokens:,} tokens.", HINT)
    end = 0
    for place, length in enumerate(lengths):
        start, end = end, end + length
        cut = span(valid[start:end])
        tokens = slice(start + cut.start, start + cut.stop)
        if cut.stop:
            yield {
                "rollout_log_probs": lists["inference_logprobs"][tokens],
                "response_mask": valid[tokens],
                "token_ids": lists["input_ids"][tokens],
                "advantages": lists["advantages"][tokens],
                "ref_log_probs": lists["ref_logprobs"][tokens] if "ref_logprobs" in lists else None,
                "source": lists["env_names"][tokens.start],
                "sequence": place,
            }


def _floats(data: memoryview, name: str) -> NDArray[Any]:
    """A list of floats, by NumPy where each is of 64 bits, as the framework writes them."""
    n_values, n_read = _header(data, name)
    body = data[n_read:]
    if len(body) == n_values * DOUBLE.itemsize:
        records = np.frombuffer(body, DOUBLE)
        if np.all(records["tag"] == DOUBLE_TAG):
            return records["value"].astype(np.float64)
    return floats({name: _values(data, name, list[float | None])}, name)


def _flags(data: memoryview) -> NDArray[np.bool_]:
    _, n_read = _header(data, "loss_mask")
    flags = np.frombuffer(data[n_read:], np.uint8)
    if not np.all((flags == TRUE) | (flags == FALSE)):
        raise DataError("loss_mask is not a list of true and false.", HINT)
    return flags == TRUE


def _values(data: memoryview, name: str, type: Any) -> Any:
    _length(data, name)
    try:
        return _decoded(data, type)
    except msgspec.ValidationError as error:
        raise DataError(f"{name} is not a list of one kind of value.", HINT) from error


def _length(data: memoryview, name: str) -> int:
    return _header(data, name)[0]


def _header(data: memoryview, name: str) -> tuple[int, int]:
    count = _count(data)
    if count is None:
        raise DataError(f"{name} is not a list.", HINT)
    if count[0] > MAX_TOKENS:
        raise DataError(f"{name} has {count[0]:,} values; at most {MAX_TOKENS:,} are read.", HINT)
    return count


def _count(data: memoryview) -> tuple[int, int] | None:
    """How many values an array says that it has, and how many bytes that took; None of another value."""
    first = data[0] if len(data) else NIL
    if first & 0xF0 == 0x90:
        return first & 0x0F, 1
    width = {0xDC: 2, 0xDD: 4}.get(first)
    if width is None or len(data) <= width:
        return None
    return int.from_bytes(data[1 : 1 + width], "big"), 1 + width


def _decoded(data: memoryview, type: Any) -> Any:
    try:
        return decode(data, type=type)
    except msgspec.ValidationError:
        raise
    except RecursionError as error:
        raise DataError("its msgpack is nested too deep.", HINT) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError("its msgpack ends early or is broken.", CUT) from error


def _is_nil(value: msgspec.Raw) -> bool:
    return bytes(memoryview(value)[:1]) == bytes([NIL])
