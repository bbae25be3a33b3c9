"""prime-rl's token_exports/step_{N}/rank_{R}.jsonl: the engine's log-probs and the trainer's, a packed sequence a line.

Lists run over the prompt and the response; a row runs from its first to its last token of loss_mask.  What lies before
is the prompt, whose first token holds -log(vocabulary), or a value over the border to the sequence packed before.
trainer_logprobs are those of the training forward, the current policy; prime-rl has no old one.  null: not finite.
"""

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

from numpy.typing import NDArray

from rlcorr_cli.errors import DataError
from rlcorr_cli.layouts.head import Head
from rlcorr_cli.layouts.json_rows import made_of_rows
from rlcorr_cli.layouts.layout import Layout, Opened, Sample
from rlcorr_cli.layouts.values import aligned, floats, integers, mask, span, text, whole
from rlcorr_cli.places import scheme
from rlcorr_cli.storage import filesystem

KEYS = ("schema_version", "inference_logprobs", "trainer_logprobs")
SCHEMA_VERSION = 1
MARKER = "STABLE"
COLUMNS = (
    "rollout_log_probs",
    "current_log_probs",
    "response_mask",
    "token_ids",
    "advantages",
    "step",
    "sample_id",
    "source",
    "worker",
)
NOTES = (
    "Rows run from the first to the last trained token: values before it are not log-probs of samples.",
    "The training side is the current policy, of the training forward; prime-rl keeps no other.",
)
UNMARKED = "No STABLE is beside it, by which prime-rl says that a step is complete."


def recognise(head: Head) -> str | None:
    """By the keys of the first row."""
    return f"keys {', '.join(KEYS)}" if all(key in head.row for key in KEYS) else None


def open_rank(paths: Sequence[str]) -> Opened:
    """One rank's file of a step that is complete."""
    (path,) = paths
    folder = os.path.dirname(path if scheme(path) else os.path.abspath(path))
    marker = os.path.join(folder, MARKER)
    marked = filesystem(path).is_there(marker)
    if not marked and re.fullmatch(r"step_\d+", os.path.basename(folder)):
        raise DataError(
            f"its step is still being written: there is no {MARKER} beside it.",
            f"Wait for prime-rl to write {MARKER}, or name the steps that are complete.",
        )

    def samples() -> Iterator[Sample]:
        return made_of_rows(path, _samples)

    return Opened(columns=COLUMNS, samples=samples, notes=NOTES if marked else (*NOTES, UNMARKED))


def _samples(row: dict[str, Any]) -> Iterator[Sample]:
    if row.get("schema_version") != SCHEMA_VERSION:
        raise DataError(
            f"its schema_version is not {SCHEMA_VERSION}, the only one that is read.", "Look for a newer rlcorr."
        )
    lists: dict[str, NDArray[Any]] = {
        "token_ids": integers(row, "token_ids"),
        "loss_mask": mask(row, "loss_mask"),
        "advantages": floats(row, "advantages"),
        "inference_logprobs": floats(row, "inference_logprobs"),
        "trainer_logprobs": floats(row, "trainer_logprobs"),
    }
    aligned(**lists)
    trained = span(lists["loss_mask"])
    rank, place = whole(row, "rank"), whole(row, "export_sequence_idx")
    yield {
        "rollout_log_probs": lists["inference_logprobs"][trained],
        "current_log_probs": lists["trainer_logprobs"][trained],
        "response_mask": lists["loss_mask"][trained],
        "token_ids": lists["token_ids"][trained],
        "advantages": lists["advantages"][trained],
        "step": whole(row, "step"),
        "sample_id": None if rank is None or place is None else f"{rank}-{place}",
        "source": text(row, "env_name"),
        "worker": rank,
    }


LAYOUT = Layout(
    name="prime-rl",
    title="prime-rl's token export",
    recognise=recognise,
    open=open_rank,
)
