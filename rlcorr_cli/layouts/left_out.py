"""What a reader of responses leaves out, and why: a file is looked at as a whole when it is opened, and that is told.

A reader gives a LeftOut in place of a row, or after a row of which it does not read a part.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from rlcorr_cli.errors import DataError
from rlcorr_cli.frozen import frozen
from rlcorr_cli.layouts.layout import Sample

SHOWN = 3
"""Responses that a note names."""


@frozen
class Reason:
    """some: what goes on after '3 of 24 responses '.  none: what goes on after 'none of its 24 responses ' where no row
    is left, and hint: what to type then; both '' where rows are read all the same.  pieces: what to type where lines of
    an unfinished response hold but what is new in each."""

    some: str
    none: str = ""
    hint: str = ""
    pieces: str = ""


def unfinished(key: str, pieces: str) -> Reason:
    """Of lines that were written before the response ended.  key: where a finished one tells why it ended."""
    return Reason(
        "left out as unfinished: finish_reason is null",
        f"is finished: {key} is null in all",
        "Name the finished ones. If this engine never sets it: jq -c 'del(.. | .finish_reason?)' FILE > dump.jsonl",
        pieces,
    )


@frozen(eq=False)
class LeftOut:
    """reason: why.  response, log_probs: of an unfinished one its id, if it has one, and what it has so far."""

    reason: Reason
    response: str | None = None
    log_probs: Any = ()


def rows_of(parts: Iterable[Sample | LeftOut]) -> Iterator[Sample]:
    """The rows alone."""
    return (part for part in parts if not isinstance(part, LeftOut))


def survey(parts: Iterable[Sample | LeftOut], what: str) -> tuple[str, ...]:
    """A note on each reason; a DataError where it leaves no row.  what: a file's parts are, such as responses."""
    reasons, n_rows, began = Counter[Reason](), 0, dict[str, LeftOut]()
    for part in parts:
        if isinstance(part, LeftOut):
            reasons[part.reason] += 1
            if part.response is not None:
                began[part.response] = part
            continue
        n_rows += 1
        before = began.pop(part.get("sample_id") or "", None)
        ended = part["rollout_log_probs"]
        if before is not None and list(ended[: len(before.log_probs)]) != list(before.log_probs):
            message = f"a line of response {before.response} goes on where the line before it ended: they are pieces."
            raise DataError(message, before.reason.pieces)
    n = n_rows + sum(count for reason, count in reasons.items() if reason.none)
    if reasons and not n_rows:
        ((reason, _),) = reasons.most_common(1)
        raise DataError(f"none of its {n:,} {what} {reason.none}.", reason.hint)
    notes = [f"{count:,} of {n:,} {what} {reason.some}." for reason, count in reasons.items()]
    if began:
        names = ", ".join([*began][:SHOWN])
        notes.append(f"No finished line of {len(began):,} responses: {names}{', …' * (len(began) > SHOWN)}.")
    return tuple(notes)
