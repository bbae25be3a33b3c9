"""From one line of a framework's JSON to the objects that rows are read from, where it is not one row as it stands."""

from collections.abc import Iterator
from typing import Any

from rlcorr_cli.errors import DataError
from rlcorr_cli.layouts.values import HINT

WRAPPED = ("token_ids", "token_loss_mask", "generation_logprobs", "prev_logprobs", "advantages")
"""NeMo-RL's lists of tokens, each in a list of one; scalars may be, or not."""


def unwrapped(row: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """NeMo-RL's row with its values out of their lists of one, and the agent's name in its reference's place."""
    for key in WRAPPED:
        value = row.get(key)
        if key in row and not (isinstance(value, list) and len(value) == 1):
            raise DataError(f"{key} is not in a list of one.", HINT)
    values = {key: value[0] if isinstance(value, list) and value else value for key, value in row.items()}
    agent = values.get("agent_ref")
    yield {**values, "agent_ref": agent.get("name")} if isinstance(agent, dict) else values
