"""NeMo-RL's train_data_step{N}.jsonl: both policies over the padded prompt and response, each value in a list of one.

Mask: token_loss_mask where sample_loss_mask is not 0.  A row runs from its first to its last token of token_loss_mask,
what lies before is the prompt and after it padding.  With dynamic sampling `filtered_rewards` is the row's reward, and
`rewards` another list.  prev_logprobs of a whole file at 0.0 (force_on_policy_ratio) are no policy.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from rlcorr_cli.errors import DataError
from rlcorr_cli.layouts.head import Head
from rlcorr_cli.layouts.json_rows import has_key, made_of_rows
from rlcorr_cli.layouts.layout import Layout, Opened, Sample
from rlcorr_cli.layouts.values import HINT, aligned, floats, inner, integers, mask, number, span, text

KEYS = ("generation_logprobs", "prev_logprobs", "token_loss_mask")
WRAPPED = ("token_ids", "token_loss_mask", "generation_logprobs", "prev_logprobs", "advantages")
"""Lists of tokens, each in a list of one; scalars may be, or not."""
NOT_ZERO = rb"\[\s?\[[^\]]*[1-9NI]"
"""The start of such a list, up to a number that is not 0.0: NaN and Infinity are none."""
ON_POLICY = (
    "prev_logprobs is 0.0 everywhere: the run left them out. Train with force_on_policy_ratio off to have them written."
)
COLUMNS = (
    "rollout_log_probs",
    "old_log_probs",
    "response_mask",
    "token_ids",
    "advantages",
    "reward",
    "step",
    "sample_id",
    "source",
)


def recognise(head: Head) -> str | None:
    """By the keys of the first row."""
    return f"keys {', '.join(KEYS)}" if all(key in head.row for key in KEYS) else None


def open_step(paths: Sequence[str]) -> Opened:
    """One step's file."""
    (path,) = paths
    in_name = re.search(r"train_data_step(\d{1,18})", path)
    step = int(in_name[1]) if in_name else None
    trained = has_key(path, "prev_logprobs", NOT_ZERO)

    def made(row: dict[str, Any]) -> Iterator[Sample]:
        yield _sample(_unwrapped(row), step, trained)

    def samples() -> Iterator[Sample]:
        return made_of_rows(path, made)

    dropped = {*(() if trained else ("old_log_probs",)), *(() if in_name else ("step",))}
    columns = [name for name in COLUMNS if name not in dropped]
    return Opened(columns=columns, samples=samples, lacks="" if trained else ON_POLICY)


def _sample(row: Mapping[str, Any], step: int | None, trained: bool) -> Sample:
    lists: dict[str, NDArray[Any]] = {
        "token_loss_mask": mask(row, "token_loss_mask"),
        "token_ids": integers(row, "token_ids"),
        "generation_logprobs": floats(row, "generation_logprobs"),
        **({"prev_logprobs": floats(row, "prev_logprobs")} if trained else {}),
        **({"advantages": floats(row, "advantages")} if "advantages" in row else {}),
    }
    aligned(**lists)
    tokens = span(lists["token_loss_mask"])
    of_tokens = {name: values[tokens] for name, values in lists.items()}
    is_left_out = number(row, "sample_loss_mask") == 0
    return {
        "rollout_log_probs": of_tokens["generation_logprobs"],
        "old_log_probs": of_tokens.get("prev_logprobs"),
        "response_mask": of_tokens["token_loss_mask"] & (not is_left_out),
        "token_ids": of_tokens["token_ids"],
        "advantages": of_tokens.get("advantages"),
        "reward": number(row, "filtered_rewards" if "filtered_rewards" in row else "rewards"),
        "step": step,
        "sample_id": text(row, "idx"),
        "source": _source(row),
    }


def _unwrapped(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with its values out of their lists of one."""
    for key in WRAPPED:
        value = row.get(key)
        if key in row and not (isinstance(value, list) and len(value) == 1):
            raise DataError(f"{key} is not in a list of one.", HINT)
    return {key: value[0] if isinstance(value, list) and value else value for key, value in row.items()}


def _source(row: Mapping[str, Any]) -> str | None:
    """The agent's name, or what stands for an agent."""
    is_agent = isinstance(row.get("agent_ref"), dict)
    return text(inner(row, "agent_ref"), "name") if is_agent else text(row, "agent_ref")


LAYOUT = Layout(
    name="nemo-rl",
    title="NeMo-RL's train_data_step{N}.jsonl",
    recognise=recognise,
    open=open_step,
)
