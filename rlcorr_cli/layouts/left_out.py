"""What a reader of responses leaves out, and why.  The whole file is read once when it is opened, and what was left
out is counted in notes.

A reader gives a LeftOut in place of a row, or after a row of which it does not read a part.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sized
from dataclasses import field
from typing import Any

from rlcorr_cli.errors import DataError, plural
from rlcorr_cli.frozen import frozen
from rlcorr_cli.layouts.layout import OpenedDump, Sample

SHOWN = 3
"""Responses that a note names."""
MOST_KEPT = 1 << 23
"""Values of rows that are kept for the readings that follow; the rows of a file of more are made again."""
UNFINISHED = {
    "finish_reason": (None,),
    **dict.fromkeys(("finished", "done", "stop"), (False,)),
    "status": ("queued", "in_progress", "incomplete"),
}
"""A response's key -> its values before the response has ended."""
SCORED = "What the engine scored of a prompt is prompt_log_probs, and no part of the response."


@frozen(kw_only=True)
class LeftOut:
    """Why, and of what.

    note: what goes on after '3 of 24 responses '.  none: what goes on after 'none of its 24 responses ' where no row is
    left, and hint: what to type then; both '' where rows are read all the same.  Of an unfinished response, response:
    its id, if it has one; log_probs: what it has so far; pieces: what to type where lines hold but what is new in each.
    """

    note: str
    none: str = ""
    hint: str = ""
    pieces: str = ""
    response: str | None = field(default=None, compare=False)
    log_probs: Any = field(default=(), compare=False)


def sign_of_unfinished(*objects: Mapping[str, Any]) -> tuple[str, str] | None:
    """The key and the value, as JSON has it, by which one of these says that it has not ended.  A response that is
    incomplete for a reason, such as its length, has."""
    signs = (
        (key, json.dumps(part[key]))
        for part in objects
        for key, values in UNFINISHED.items()
        if key in part and part[key] in values and not part.get("incomplete_details")
    )
    return next(signs, None)


def unfinished(pieces: str, response: str | None, log_probs: Any, *objects: Mapping[str, Any]) -> LeftOut | None:
    """A response one of whose objects says that it has not ended; None of one that has."""
    if (sign := sign_of_unfinished(*objects)) is None:
        return None
    note, none = f"left out as unfinished: {' is '.join(sign)}", f"is finished: {' is '.join(sign)} in all"
    hint = f"Name the finished ones. If this engine never sets it: jq -c 'del(.. | .{sign[0]}?)' FILE > dump.jsonl"
    return LeftOut(note=note, none=none, hint=hint, pieces=pieces, response=response, log_probs=log_probs)


def survey(read: Callable[[], Iterator[Sample | LeftOut]], what: str) -> OpenedDump:
    """A file's rows, the columns of which some row has a value, and a note on each reason; a DataError where no row is
    left.  what: a part of the file, such as a response."""
    reasons, began, columns = Counter[LeftOut](), dict[str, LeftOut](), set[str]()
    kept, n_rows, n_values = list[Sample](), 0, 0
    for part in read():
        if isinstance(part, LeftOut):
            reasons[part] += 1
            if part.response is not None:
                began[part.response] = part
            continue
        n_rows += 1
        n_values += sum(len(value) if isinstance(value, Sized) else 1 for value in part.values())
        if n_values <= MOST_KEPT:
            kept.append(part)
        columns.update(name for name, value in part.items() if value is not None)
        ended = [] if part["rollout_log_probs"] is None else part["rollout_log_probs"]
        before = began.pop(part.get("sample_id") or "", None)
        if before is not None and [*ended[: len(before.log_probs)]] != [*before.log_probs]:
            message = f"a line of response {before.response} does not begin with the log-probs of the line before it"
            raise DataError(f"{message}: its lines seem to be pieces.", before.pieces)
    n = n_rows + sum(count for reason, count in reasons.items() if reason.none)
    if reasons and not n_rows:
        reason = reasons.most_common(1)[0][0]
        if len(reasons) > 1:
            counts = "; ".join(f"{count:,} {left_out.note}" for left_out, count in reasons.items())
            raise DataError(f"none of its {n:,} {what}s can be read: {counts}.", reason.hint)
        raise DataError(f"none of its {f'{n:,} ' if n > 1 else ''}{what}s {reason.none}.", reason.hint)
    losses = [f"{count:,} of {plural(n, what)} {reason.note}." for reason, count in reasons.items()]
    if began:
        names = ", ".join([*began][:SHOWN])
        losses.append(f"No finished line of {plural(len(began), what)}: {names}{', …' * (len(began) > SHOWN)}.")
    return OpenedDump(
        columns=[*columns],
        samples=lambda: (part for part in (kept if n_values <= MOST_KEPT else read()) if not isinstance(part, LeftOut)),
        losses=tuple(losses),
        notes=(SCORED,) if "prompt_log_probs" in columns else (),
    )
