"""prime-rl's rank_{R}.bin, of rollouts/step_{N}/ or batches/step_{N}/: msgpack of the micro batches that a rank trains
on, without keys.

A micro batch is an array of 16 fields or more; FIELDS are the places of those that are read.  What versions added after
them has changed its place, so that it is told by its type: sampling masks are a list of bytes, trace ids one of texts,
and branch indices the whole numbers after these.  Packed sequences are told apart by sequence_lengths, the last of
which includes padding; a row runs from the first to the last trained token, so that it is cut off.  What is nested deep
or not read is passed over undecoded.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.msgpack import decode
from numpy.typing import NDArray

from rlcorr_cli.errors import DataError, naming
from rlcorr_cli.files.disk import HALF_WRITTEN
from rlcorr_cli.layouts.json_layouts import EXPORT_HINT
from rlcorr_cli.layouts.layout import KEPT_SETS, OpenedDump, Sample
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
"""Of the first version; later ones have more."""
MOST_FIELDS = 64
ADDED = {"bytes": "sampling_mask", "texts": "trace_ids", "wholes": "branch_indices"}
"""What a field after those is, by the kind of the values in its list."""
MIN_BYTES = 3 + N_FIELDS
"""Of a micro batch; a file has no more of them than that allows."""
MAX_MICRO_BATCHES = 1 << 16
MAX_TOKENS = 1 << 22
"""Of a micro batch."""
NIL = 0xC0
TRUE, FALSE = 0xC3, 0xC2
WHOLE_BYTES = {0xCC: 2, 0xD0: 2, 0xCD: 3, 0xD1: 3, 0xCE: 5, 0xD2: 5, 0xCF: 9, 0xD3: 9}
"""Bytes of a whole number by its tag; a small one is its tag alone."""
DOUBLE = np.dtype([("tag", np.uint8), ("value", ">f8")])
"""A float of 64 bits, tag 0xcb, as msgpack has it."""
DOUBLE_TAG = 0xCB
COLUMNS = {
    "inference_logprobs": "rollout_log_probs",
    "loss_mask": "response_mask",
    "input_ids": "token_ids",
    "advantages": "advantages",
    "ref_logprobs": "ref_log_probs",
    "sampling_mask": "kept_set_size",
    "trace_ids": "sample_id",
    "branch_indices": "branch",
}
"""Field -> column, of tokens and then of sequences; the last four only where a micro batch of the file has them."""
OPTIONAL = ("ref_logprobs", "trace_ids", "branch_indices", "sampling_mask")
NOTES = ("Micro batches that only fill up, and sequences without a trained token, give no row.",)


def recognise(start: FileStart) -> str | None:
    """By how the outer array, its first micro batch and that one's token ids begin."""
    count = _array_size(memoryview(start.first_bytes))
    if count is None or count[0] == 0:
        return None
    inside = memoryview(start.first_bytes)[count[1] :]
    fields = _array_size(inside)
    if fields is None or not N_FIELDS <= fields[0] <= MOST_FIELDS:
        return None
    return f"msgpack arrays of {fields[0]} fields" if _begins_as_a_micro_batch(inside[fields[1] :]) else None


def _begins_as_a_micro_batch(data: memoryview) -> bool:
    """Whether token ids are first, then flags, as far as it goes."""
    count = _array_size(data)
    if count is None:
        return False
    at = count[1]
    for _ in range(count[0]):
        if at >= len(data):
            return True
        size = WHOLE_BYTES.get(data[at], 1 if data[at] < 0x80 or data[at] >= 0xE0 else None)
        if size is None:
            return False
        at += size
    flags = _array_size(data[at:])
    if flags is None or not flags[0]:
        return at >= len(data)
    return data[at + flags[1] : at + flags[1] + 1].tobytes() in (b"", bytes([TRUE]), bytes([FALSE]))


def open_rank(paths: Sequence[str]) -> OpenedDump:
    """One rank's micro batches of a step."""
    import pyarrow as pa

    (path,) = paths
    step, rank = re.search(r"step_(\d{1,15})\D", path), re.search(r"rank_(\d{1,15})\.bin$", path)
    places = {**({"step": int(step[1])} if step else {}), **({"worker": int(rank[1])} if rank else {})}
    seen: set[str] = set()
    for fields in _micro_batches(path):
        seen |= _added(fields).keys()
        if memoryview(fields[FIELDS["ref_logprobs"]])[0] != NIL:
            seen.add("ref_logprobs")
    always = [column for key, column in COLUMNS.items() if key not in OPTIONAL]
    optional = [COLUMNS[key] for key in OPTIONAL if key in seen]

    def samples() -> Iterator[Sample]:
        for place, fields in enumerate(_micro_batches(path)):
            with naming(f"micro batch {place}"):
                for sample in _sequences(fields):
                    yield {**places, "micro_batch": place, **sample}

    return OpenedDump(
        columns=[*always, "source", "micro_batch", "sequence", *places, *optional],
        samples=samples,
        notes=(*NOTES, *([KEPT_SETS] if "sampling_mask" in seen else [])),
        types={
            **dict.fromkeys(("micro_batch", "sequence", "branch"), pa.int64()),
            "kept_set_size": pa.list_(pa.int32()),
        },
        missing_policy_hint=EXPORT_HINT,
    )


def _micro_batches(path: str) -> Iterator[list[msgspec.Raw]]:
    """The fields of each micro batch, undecoded."""
    data = opened(path)[:]
    count = _array_size(data)
    if count is None or count[0] > len(data) // MIN_BYTES:
        raise DataError("it is not a msgpack array of micro batches, or is incomplete.", HALF_WRITTEN)
    if count[0] > MAX_MICRO_BATCHES:
        raise DataError(f"it has {count[0]:,} micro batches; at most {MAX_MICRO_BATCHES:,} are read.", HINT)
    for micro_batch in _decoded(data, list[msgspec.Raw]):
        content = memoryview(micro_batch)
        n_fields = _array_size(content)
        if n_fields is None or not N_FIELDS <= n_fields[0] <= MOST_FIELDS:
            raise DataError(f"a micro batch is not an array of {N_FIELDS} fields or more.", HINT)
        yield _decoded(content, list[msgspec.Raw])


def _sequences(fields: list[msgspec.Raw]) -> Iterator[Sample]:
    raw = {name: memoryview(fields[place]) for name, place in FIELDS.items()}
    n_tokens, _ = _list_header(raw["input_ids"], "input_ids")
    valid = _flags(raw["loss_mask"])
    if not valid.any():
        return
    lists: dict[str, Any] = {
        "input_ids": integers({"input_ids": _decoded_list(raw["input_ids"], "input_ids", list[int])}, "input_ids"),
        "loss_mask": valid,
        "advantages": _float_list(raw["advantages"], "advantages"),
        "inference_logprobs": _float_list(raw["inference_logprobs"], "inference_logprobs"),
    }
    names = _decoded_list(raw["env_names"], "env_names", list[str])
    added = _added(fields)
    if raw["ref_logprobs"][0] != NIL:
        lists["ref_logprobs"] = _float_list(raw["ref_logprobs"], "ref_logprobs")
    if "sampling_mask" in added:
        lists["sampling_mask"] = _kept_sizes(added["sampling_mask"])
    aligned(**lists)
    lengths = _decoded_list(raw["sequence_lengths"], "sequence_lengths", list[int])
    if any(length < 0 for length in lengths) or sum(lengths) != n_tokens:
        raise DataError(f"sequence_lengths do not add up to its {n_tokens:,} tokens.", HINT)
    ids = {
        name: _decoded_list(added[name], name, list[kind | None])
        for name, kind in (("trace_ids", str), ("branch_indices", int))
        if name in added
    }
    aligned(sequence_lengths=lengths, **ids)
    aligned(**({"sequence_lengths": lengths} if len(names) == len(lengths) else lists), env_names=names)
    end = 0
    for place, length in enumerate(lengths):
        start, end = end, end + length
        cut = span(valid[start:end])
        tokens = slice(start + cut.start, start + cut.stop)
        if cut.stop:
            yield {
                **dict.fromkeys(COLUMNS[name] for name in OPTIONAL),
                **{COLUMNS[name]: values[tokens] for name, values in lists.items()},
                **{COLUMNS[name]: values[place] for name, values in ids.items()},
                "source": names[place if len(names) == len(lengths) else tokens.start],
                "sequence": place,
            }


def _added(fields: list[msgspec.Raw]) -> dict[str, memoryview]:
    """The fields after the first version's that hold something, by name."""
    found: dict[str, memoryview] = {}
    for field in fields[N_FIELDS:]:
        data = memoryview(field)
        name = ADDED.get(_kind_inside(data))
        if name is not None and name not in found and (name != "branch_indices" or "trace_ids" in found):
            found[name] = data
    return found


def _kind_inside(data: memoryview) -> str:
    """Of a list, what its first value is that is not nil: 'bytes', 'texts', 'wholes'; '' of anything else."""
    count = _array_size(data)
    if count is None:
        return ""
    values = bytes(data[count[1] : count[1] + count[0] + 1]).lstrip(bytes([NIL]))
    first = values[0] if values else NIL
    if first in (0xC4, 0xC5, 0xC6):
        return "bytes"
    if first & 0xE0 == 0xA0 or first in (0xD9, 0xDA, 0xDB):
        return "texts"
    return "wholes" if first < 0x80 or first >= 0xE0 or 0xCC <= first <= 0xD3 else ""


def _kept_sizes(data: memoryview) -> NDArray[np.int32]:
    """How many tokens the sampler chose among, at each token: [ids, counts, log-probs or nil], of int32 and float32; 0
    where nothing was sampled."""
    parts = _decoded_list(data, "sampling_mask", list[bytes | None])
    counts = parts[1] if len(parts) > 1 else None
    if counts is None or len(counts) % 4:
        raise DataError("sampling_mask is not [ids, counts, log-probs], each as bytes of 32-bit numbers.", HINT)
    sizes = np.frombuffer(counts, "<i4")
    if np.any(sizes < 0) or 4 * int(sizes.sum(dtype=np.int64)) != len(parts[0] or b""):
        raise DataError("sampling_mask has other token ids than its counts say.", HINT)
    return sizes


def _float_list(data: memoryview, name: str) -> NDArray[Any]:
    """A list of floats, by NumPy where each is of 64 bits, as the framework writes them."""
    n_values, n_read = _list_header(data, name)
    body = data[n_read:]
    if len(body) == n_values * DOUBLE.itemsize:
        records = np.frombuffer(body, DOUBLE)
        if np.all(records["tag"] == DOUBLE_TAG):
            return records["value"].astype(np.float64)
    return floats({name: _decoded_list(data, name, list[float | None])}, name)


def _flags(data: memoryview) -> NDArray[np.bool_]:
    _, n_read = _list_header(data, "loss_mask")
    flags = np.frombuffer(data[n_read:], np.uint8)
    if not np.all((flags == TRUE) | (flags == FALSE)):
        raise DataError("loss_mask is not a list of true and false.", HINT)
    return flags == TRUE


def _decoded_list(data: memoryview, name: str, type: Any) -> Any:
    _list_header(data, name)  # that it is a list, and not too long
    try:
        return _decoded(data, type)
    except msgspec.ValidationError as error:
        raise DataError(f"{name} is not a list of one kind of value.", HINT) from error


def _list_header(data: memoryview, name: str) -> tuple[int, int]:
    count = _array_size(data)
    if count is None:
        raise DataError(f"{name} is not a list.", HINT)
    if count[0] > MAX_TOKENS:
        raise DataError(f"{name} has {count[0]:,} values; at most {MAX_TOKENS:,} are read.", HINT)
    return count


def _array_size(data: memoryview) -> tuple[int, int] | None:
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
        raise DataError("its msgpack ends early or is broken.", HALF_WRITTEN) from error
