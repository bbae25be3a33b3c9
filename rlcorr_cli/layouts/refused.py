"""Files that people name and that hold nothing to analyse: what each is, and what to do to get log-probs.

A row of REFUSED is for a kind of file without log-probs, or one that rlcorr does not read; `without_log_probs` tells
which a file is.  A row of texts and scores is only taken for one where no value of its is a list: people add columns.
"""

import os
import re
from collections.abc import Callable

from rlcorr_cli.frozen import frozen
from rlcorr_cli.layouts.recognise import EVENTS, FileStart, by_metrics
from rlcorr_cli.places import scheme

SAVE_DUMP = "`rlcorr help dumps` has the lines that write a dump from a trainer."
VERL = (
    "verl's rollout_data_dir writes no log-probs. Save the batch after old_log_probs (batch.save_to_disk), or a dump: "
    "`rlcorr help dumps` has the lines."
)
MONITOR = "Name the run's folder, or the stream.jsonl or stream/ in its monitors/file/traces/."


@frozen
class Refused:
    """A kind of file.  what: it is, after 'PATH is'; hint: what to do instead."""

    what: str
    hint: str
    recognise: Callable[[FileStart], bool]


def _texts(*keys: str) -> Callable[[FileStart], bool]:
    """A first line of JSON with these keys, and no list that could be of log-probs."""

    def recognise(start: FileStart) -> bool:
        return all(key in start.row for key in keys) and not any(_has_numbers(value) for value in start.row.values())

    return recognise


def _has_numbers(value: object) -> bool:
    return isinstance(value, list) and any(isinstance(item, (int, float, list)) for item in value)


def _named(*suffixes: str) -> Callable[[FileStart], bool]:
    return lambda start: start.name.lower().endswith(suffixes)


def _lies(start: FileStart, place: str) -> bool:
    """Whether a file of prime-rl's monitor lies so, a pattern.

    While a run goes on, such a file may be empty or end within its first line.
    """
    path = start.path if scheme(start.path) else os.path.abspath(start.path)
    return re.search(rf"/{place}$", path.replace("\\", "/")) is not None


def _completions(start: FileStart) -> bool:
    # By its name first, because only then is the file opened once more for its columns; `log_extra` may add log-probs.
    named = re.fullmatch(r"completions_\d+\.parquet", start.name) is not None
    return (
        named and {"prompt", "completion", "advantage"} <= set(start.columns) and "log" not in " ".join(start.columns)
    )


REFUSED: tuple[Refused, ...] = (
    Refused(
        "AReaL's log of rollouts (texts and rewards)",
        f"AReaL writes no log-probs to disk; its batch in memory has logprobs and prox_logp. {SAVE_DUMP}",
        _texts("task_id", "sample_idx", "head_version", "tail_version", "completion"),
    ),
    Refused(
        "TRL's table of completions (texts, rewards and advantages)",
        "TRL writes no log-probs to disk; its trainer has old_per_token_logps and sampling_per_token_logps. "
        f"{SAVE_DUMP}",
        _completions,
    ),
    Refused("verl's log of generations (texts and scores)", VERL, _texts("input", "output", "score", "step")),
    Refused(
        "tinker-cookbook's log of training calls",
        "Name the sample.jsonl beside it.",
        lambda start: start.row.get("kind") == "train_op",
    ),
    Refused(
        "prime-rl's log of metrics",
        MONITOR,
        lambda start: _lies(start, "file/metrics.jsonl") or _texts("step", "time", "producer")(start),
    ),
    Refused(
        "an index of prime-rl's monitor",
        MONITOR,
        lambda start: start.name.endswith(".index.jsonl") and (_lies(start, "traces/.*") or "offset" in start.row),
    ),
    Refused("a trace that prime-rl was sampling", MONITOR, lambda start: _lies(start, "traces/live/.*")),
    Refused(
        "NeMo-RL's log of validation (texts and rewards)",
        "Name the train_data_step{N}.jsonl beside it.",
        lambda start: start.name.startswith("val_data_step") and not any(map(_has_numbers, start.row.values())),
    ),
    Refused(
        "open-instruct's description of a run",
        "Name the *_rollouts_NNNNNN.jsonl beside it.",
        lambda start: start.name.endswith("_metadata.jsonl") and not any(map(_has_numbers, start.row.values())),
    ),
    Refused(
        "a report of rlcorr's",
        "`rlcorr check` and `rlcorr plot` take reports; analyze takes the dump.",
        lambda start: start.name.endswith(".json") and b'"rlcorr"' in start.first_bytes[:200],
    ),
    Refused(
        "saved totals of rlcorr's",
        "analyze, compare, diagnose and sweep add their own; check, plot and diff take those of analyze.",
        lambda start: start.first_bytes[:14] == b"rlcorr totals ",
    ),
    Refused(
        "a table of columns and data, as Weights & Biases writes one",
        "`jq -c '.columns as $c | .data[] | [$c, .] | transpose | map({(.[0]): .[1]}) | add' FILE > dump.jsonl`.",
        lambda start: all(isinstance(start.row.get(key), list) for key in ("columns", "data")),
    ),
    Refused(
        "a stream of server-sent events",
        "`sed -n 's/^data: *{/{/p' FILE > chunks.jsonl` gives its chunks as JSON lines.",
        lambda start: EVENTS.match(start.first_bytes.lstrip()) is not None,
    ),
    Refused("a log of metrics", "`rlcorr scalars FILE` says how the gap went, and which steps to record.", by_metrics),
    Refused(
        "a JSON array",
        "JSON lines hold one object a line: `jq -c '.[]' FILE > dump.jsonl`.",
        lambda start: start.first_bytes.lstrip()[:1] == b"[" and not _named(".jsonl", ".ndjson")(start),
    ),
    Refused(
        "a JSON document",
        "JSON lines hold one object a line: `jq -c . FILE > dump.jsonl`; of rows below a key, `jq -c '.KEY[]' FILE`.",
        # A first line that is a whole object begins JSON lines, which many name .json.
        lambda start: _named(".json")(start) and start.first_bytes.lstrip()[:1] == b"{" and not start.row,
    ),
    Refused(
        "a page of HTML",
        "A page that rlcorr wrote holds no rows: name the dump it is of.",
        lambda start: start.first_bytes.lstrip()[:14].lower() in (b"<!doctype html", b"<html>"),
    ),
    Refused("a picture", "Name the dump it was drawn from.", _named(".png", ".svg", ".pdf")),
    Refused(
        "a table of text",
        "Lists do not fit in CSV. Write Parquet where the lists are made: polars.DataFrame(rows).write_parquet(...).",
        _named(".csv", ".tsv"),
    ),
    Refused(
        "an archive of NumPy's",
        "Write Parquet, a list per row: polars.DataFrame({name: list(array) ...}).write_parquet(...).",
        lambda start: start.first_bytes[:6] == b"\x93NUMPY" or start.name.lower().endswith(".npz"),
    ),
    Refused(
        "a file of safetensors, which are weights", f"Log-probs are what is wanted. {SAVE_DUMP}", _named(".safetensors")
    ),
    Refused(
        "a file of torch, and no framework's dump of rollouts",
        f"A checkpoint holds no log-probs. {SAVE_DUMP}",
        lambda start: start.first_bytes[:4] == b"PK\x03\x04" and bool(start.words),
    ),
    Refused(
        "a pickle, and no framework's dump of rollouts",
        f"Nothing in it is run, and so nothing of it is known. {SAVE_DUMP}",
        lambda start: (
            start.first_bytes[:1] == b"\x80" and start.first_bytes[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")
        ),
    ),
)


def without_log_probs(start: FileStart) -> Refused | None:
    """Which of these kinds a file is; None of one that may be a dump."""
    return next((kind for kind in REFUSED if kind.recognise(start)), None)
