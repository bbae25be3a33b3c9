"""Lines of a stream put together into responses, in the order in which the responses begin or, if sooner, end.

A line that is a whole response goes on as it is.  Others are added up by the id of their response.  One of several
lines goes on with its last one; if no line says so, at the end of the file, finished or not: what reads it looks at
that.  A line either holds what is new or repeats what came before (`joined`).
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any

from rlcorr_cli.errors import DataError, naming
from rlcorr_cli.frozen import frozen
from rlcorr_cli.layouts.nested import PIECES, sign_of_unfinished

Row = dict[str, Any]


@frozen
class Stream:
    """How an engine writes a response in several lines.

    response: the id of the response that a line is of; None of a line that is whole.  ended: whether a response has
    ended.  add: a response, {} at first, with one more line, which may change it in
    place; None where the line begins another response of that id.  line: a line in the form that these take.
    """

    response: Callable[[Row], Any]
    ended: Callable[[Row], bool]
    add: Callable[[Row, Row], Row | None]
    line: Callable[[Row], Row] = lambda row: row


def whole_responses(lines: Iterable[tuple[int, Row]], stream: Stream) -> Iterator[tuple[int, int, Row]]:
    """Of each response the number of its first line, its place among responses, and the response."""
    began: dict[Any, tuple[int, int, Row]] = {}
    places = count()
    for number, line in lines:
        with naming(f"line {number}"):
            row = stream.line(line)
            name = stream.response(row)
            if name is None or (name not in began and stream.ended(row)):
                yield number, next(places), row
                del line, row  # so that a row is freed when the next is parsed: else garbage is looked for in each
                continue
            before = began.get(name) or (number, next(places), {})
            whole = stream.add(before[2], row)
            if whole is None:
                yield before
                before = number, next(places), {}
                whole = stream.add({}, row) or {}
        began[name] = (*before[:2], whole)
        if stream.ended(whole):
            yield began.pop(name)
    yield from began.values()


def updated(before: Row, line: Row) -> Row:
    """An object with what a line says of it; null says nothing."""
    return {**line, **before, **{key: value for key, value in line.items() if value is not None}}


def joined(response: Row, before: Row, line: Row, is_piece: bool | None = None) -> Row:
    """Lists of a response so far, with those of one more line: what the line has, if it repeats what came before.

    is_piece: whether the line holds only what is new; None: unless its first list begins with the one so far.  A
    response whose lines do both is a DataError.
    """
    first = next(iter(line))
    old, new = before.get(first, []), line[first]
    if is_piece is None:
        is_piece = new[: len(old)] != old or not old
    if old and new and response.setdefault(PIECES, is_piece) != is_piece:
        raise DataError(
            "lines of one response hold what is new in some, and repeat what came before in others.",
            "Write one line for each response, whole.",
        )
    if not is_piece:
        return line
    for key, values in line.items():
        before.setdefault(key, []).extend(values)
    return before


def _sglang_info(row: Row) -> Row:
    """What SGLang says of a response with log-probs."""
    info = row.get("meta_info")
    return info if isinstance(info, dict) and isinstance(info.get(SGLANG_LIST), list) else {}


def _sglang_line(before: Row, row: Row) -> Row:
    info, lists = row["meta_info"], {SGLANG_LIST: before.get("meta_info", {}).get(SGLANG_LIST, [])}
    n_before, n_line, n_said = len(lists[SGLANG_LIST]), len(info[SGLANG_LIST]), info.get("completion_tokens")
    is_piece = abs(n_said - n_line) > abs(n_said - n_before - n_line) if type(n_said) is int else None
    whole = {**before, **row}
    tokens = joined(whole, lists, {SGLANG_LIST: info[SGLANG_LIST]}, is_piece)
    return {**whole, "meta_info": {**info, **tokens}}


EACH_LINE = Stream(response=lambda row: None, ended=lambda row: True, add=updated)
SGLANG_LIST = "output_token_logprobs"
SGLANG = Stream(
    response=lambda row: name if isinstance(name := _sglang_info(row).get("id"), str) else None,
    ended=lambda row: "finish_reason" in _sglang_info(row) and sign_of_unfinished(_sglang_info(row), row) is None,
    add=_sglang_line,
)
"""How lines of SGLang's repeat what came before, or with --incremental-streaming-output hold what is new."""
