"""SGLang's own /generate responses, one a line: [log-prob, token id, text or null] of each token.

meta_info.weight_versions says which weights sampled which tokens: [{version, start, end}].  Without it the response
has one weight_version.  input_token_logprobs are the prompt's, scored.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.errors import DataError
from rlcorr_cli.layouts.json_rows import has_key, made_of_rows
from rlcorr_cli.layouts.layout import OpenedDump, Sample
from rlcorr_cli.layouts.openai import ENGINE_ONLY, SCORED
from rlcorr_cli.layouts.recognise import FileStart
from rlcorr_cli.layouts.values import HINT, floats, inner, integers, objects, text, version, whole

SAMPLED = "output_token_logprobs"
INPUT = "input_token_logprobs"
COLUMNS = ("rollout_log_probs", "response_mask", "token_ids", "group_id", "sample_id")
OPTIONAL = {
    (INPUT, rb"\[\["): ("prompt_log_probs", "prompt_token_ids"),
    ("weight_version", b'"'): ("policy_version", "policy_version_end"),
    ("weight_versions", rb"\[{"): ("policy_versions",),
}
"""A key that not all files have, with the beginning of a value, and the columns made of it."""
NOTES = ("A row is a response; group_id is its place in the file.",)


def recognise(start: FileStart) -> str | None:
    """By the key of the first row's log-probs."""
    meta_info = start.row.get("meta_info")
    return f"key meta_info.{SAMPLED}" if isinstance(meta_info, dict) and SAMPLED in meta_info else None


def open_responses(paths: Sequence[str]) -> OpenedDump:
    """One file of responses."""
    import pyarrow as pa

    (path,) = paths

    def samples() -> Iterator[Sample]:
        return made_of_rows(path, _samples)

    optional = [name for key, names in OPTIONAL.items() if has_key(path, *key) for name in names]
    whole_numbers = pa.list_(pa.int64())
    return OpenedDump(
        columns=[*COLUMNS, *optional],
        samples=samples,
        notes=(*NOTES, SCORED) if "prompt_log_probs" in optional else NOTES,
        types={
            "prompt_log_probs": pa.list_(pa.float64()),
            "prompt_token_ids": whole_numbers,
            "policy_versions": whole_numbers,
        },
        missing_policy_hint=ENGINE_ONLY,
    )


def _samples(row: dict[str, Any], request: int) -> Iterator[Sample]:
    meta_info = inner(row, "meta_info")
    log_probs, tokens = _scored(meta_info, SAMPLED)
    prompt, prompt_tokens = _scored(meta_info, INPUT) if meta_info.get(INPUT) else (None, None)
    versions = _versions(meta_info, len(log_probs))
    whole_response = version(meta_info, "weight_version")
    known = versions is not None and len(versions) > 0
    yield {
        "rollout_log_probs": log_probs,
        "response_mask": np.ones(len(log_probs), np.int8),
        "token_ids": tokens,
        "group_id": str(request),
        "sample_id": text(meta_info, "id"),
        "policy_version": versions[0] if versions is not None and known else whole_response,
        "policy_version_end": versions[-1] if versions is not None and known else whole_response,
        "policy_versions": versions,
        "prompt_log_probs": prompt,
        "prompt_token_ids": prompt_tokens,
    }


def _scored(meta_info: Mapping[str, Any], key: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Log-probs and token ids of [log-prob, id, text] each."""
    entries: Any = meta_info.get(key)
    try:
        log_probs = [entry[0] for entry in entries or ()]
        tokens = [entry[1] for entry in entries or ()]
    except (TypeError, LookupError) as error:
        raise DataError(f"{key} is not a list of [log-prob, token id, text].", HINT) from error
    return floats({"log-prob": log_probs}, "log-prob"), integers({"token id": tokens}, "token id")


def _versions(meta_info: Mapping[str, Any], n_tokens: int) -> NDArray[Any] | None:
    """The weights that sampled each token, null where that is not told or is no number."""
    if meta_info.get("weight_versions") is None:
        return None
    versions = np.full(n_tokens, None, object)
    for part in objects(meta_info, "weight_versions"):
        start, end = whole(part, "start"), whole(part, "end")
        if start is None or end is None or not 0 <= start <= end <= n_tokens:
            raise DataError(f"weight_versions has a part beyond the {n_tokens:,} tokens.", HINT)
        versions[start:end] = version(part, "version")
    return versions
