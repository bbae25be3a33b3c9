"""What `inspect` says of some rows: their tokens as running text, and the far ones in a table below."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlcorr_cli.errors import plural
from rlcorr_cli.results.inspected import OneRow, OneToken, TokenRows
from rlcorr_cli.show.document import (
    BLANK,
    Block,
    Cell,
    Column,
    Document,
    Facts,
    Legend,
    Note,
    RunningText,
    Section,
    ShownToken,
    Table,
    ending,
    json_text,
    number_cell,
    tabulated,
)
from rlcorr_cli.show.inputs import input_facts, last_change, name_of_inputs, with_commas
from rlcorr_cli.show.numbers import number, signed
from rlcorr_cli.show.stdout import clean, clean_cut
from rlcorr_cli.totals.limits import exp

N_FAR = 5
"""Tokens of a row that are listed below its text."""
AROUND, WHOLE = 90, 900
"""Characters that are shown on each side of a far token, and of a text that is shown whole."""
PROMPT_LINES, PROMPT = 3, 300
LONGEST = 40
"""Characters of a token, or a fact, in one line."""
NO_TEXT = "·"
POLICIES = ("rollout logp", "train logp", "current logp")
"""What the columns of log-probs are called."""
ROLLOUT_P = "rollout p"
RANKED_BY = {"gap": "the largest |log-ratio| of a token", "share of the gap": "the sum of squared log-ratios"}
"""What rows are ranked by -> what that is."""


def inert(text: str) -> str:
    """Text from a dump as it is shown in running text: control characters and marks of direction as escapes, line ends
    as they are."""
    return "".join(c if c == "\n" or c.isprintable() else clean(c) for c in text)


def token_face(token: OneToken) -> str:
    """What a token looks like: its text, or else its id, or else a point."""
    if token.shown is not None:
        return inert(token.shown)
    return f"{NO_TEXT if token.token is None else inert(str(token.token))} "


def far_tokens(row: OneRow) -> list[OneToken]:
    """The tokens of the largest |log-ratio|, the largest first; of a bad row the first whose log-probs are none."""
    if row.problem is not None:
        return [token for token in row.by_token if not all(map(_is_log_prob, token.log_probs))][:N_FAR]
    compared = [token for token in row.by_token if token.log_ratio]
    return sorted(compared, key=lambda token: -abs(token.log_ratio or 0.0))[:N_FAR]


def _is_log_prob(value: Any) -> bool:
    return isinstance(value, int | float) and -math.inf < value <= 1e-6


def is_partly_rejected(row: OneRow) -> bool:
    """Whether some tokens of a row are rejected, and others stay: those of a row that goes whole are not marked."""
    return len({bool(token.rejected_by) for token in row.by_token if token.counts}) > 1


def policy_headings(row: OneRow) -> tuple[str, ...]:
    """What its log-probs are called, in the order of its columns."""
    return POLICIES[: len(row.log_probs)]


def facts_of_row(row: OneRow, by: str | None) -> list[str]:
    """A row's plain columns and lengths, each a short text."""
    n_valid = sum(row.valid)
    n = plural(n_valid, "token") if n_valid == len(row.valid) else f"{n_valid:,} of {len(row.valid):,} tokens valid"
    kept = sum(not token.rejected_by for token in row.by_token if token.counts) if row.says else n_valid
    parts = [n, *([f"{kept:,} kept"] if row.says else [])]
    if by is not None and row.value is not None:
        parts.append(f"{by} {number(row.value)}")
    return parts + [f"{clean(name)} {short_value(value)}" for name, value in row.facts.items() if name != "sample_id"]


def votes_of_rules(row: OneRow) -> list[str]:
    """What each rule of the plan says of a row."""
    lines = []
    for rule in row.says:
        value = "" if rule.value is None else f"; here {number(rule.value)}"
        kept = f"{sum(rule.keep):,} of {len(rule.keep):,} tokens kept"
        lines.append(f"Rejection {clean(rule.name)} keeps {rule.rule}{value}: {kept}.")
    return lines


def rows_headline(result: TokenRows) -> str:
    """Which rows these are, and the token that is furthest."""
    n = len(result.rows)
    if result.by is not None:
        first = f"The {'worst row' if n == 1 else f'{n} worst rows'} by {result.by} ({RANKED_BY[result.by]})."
    else:
        first = f"{plural(n, 'row')}." if n == result.n_matching else f"{n} of {result.n_matching:,} rows."
    sound = [row for row in result.rows if row.problem is None]
    far = [(abs(token.log_ratio or 0.0), row, token) for row in sound for token in far_tokens(row)[:1]]
    if not far:
        return first
    _, row, token = max(far, key=lambda each: each[0])
    where = f"#{token.place} of {short_value(row.name)}"
    told = where if token.shown is None else f"{_quoted(token)} ({where})"
    return f"{first} The furthest token is {told}: log-ratio {signed(token.log_ratio)}."


def document(result: TokenRows) -> Document:
    """What is said of some rows."""
    return Document(
        lines=_lines(result),
        command="inspect",
        title=name_of_inputs(result.inputs),
        summary=with_commas(plural(len(result.rows), "row"), last_change(result.inputs)),
        headline=rows_headline(result),
        reasons=[clean(each) for each in result.about],
        status="fail" if any(row.problem for row in result.rows) else "",
        sections=_sections(result),
        json=json_text(result.to_dict),
        records=_records(result),
    )


def _sections(result: TokenRows) -> Iterator[Section]:
    yield from row_sections(result, "Rows")
    plan = [("plan", clean(result.plan))] if result.plan else []
    yield from ending([("text", text_source(result)), *plan, *input_facts(result.inputs)], result.notes)


def row_sections(result: TokenRows, heading: str) -> Iterator[Section]:
    """Rows as cards of a page, and as parts of other forms."""
    yield Section(heading=heading, anchor="rows", token_rows=result)
    for row in result.rows:
        text = [("prompt", inert(row.texts["prompt"]))] if "prompt" in row.texts else []
        yield Section(
            heading=f"Row {short_value(row.name)}",
            about=[", ".join(facts_of_row(row, result.by)), *_bad_row_words(row), *votes_of_rules(row)],
            tables=[far_table(row)] if far_tokens(row) else [],
            facts=[*text, ("text", running_text(row).marked)],
            on_page=False,
        )


def _bad_row_words(row: OneRow) -> list[str]:
    return [] if row.problem is None else [f"! bad row, {clean(row.problem)}"]


def _lines(result: TokenRows) -> Iterator[Block]:
    yield Note(rows_headline(result), "bold", indent=0)
    yield from (Note(clean(each)) for each in result.about)
    for note in result.notes:
        yield Note(f"! {clean(note)}", "yellow")
    is_below_table = False  # which an empty line is below
    for row in result.rows:
        yield from () if is_below_table else (BLANK,)
        yield Facts((short_value(row.name), *facts_of_row(row, result.by)), "bold")
        if row.name != row.place:
            yield Note(clean(row.place), "dim")
        yield from (Note(each, "yellow") for each in _bad_row_words(row))
        yield from (Note(each) for each in votes_of_rules(row))
        if "prompt" in row.texts:
            yield Note(f"prompt: {_last_lines(row.texts['prompt'])}", "dim")
        yield BLANK
        yield running_text(row)
        is_below_table = bool(far_tokens(row))
        if is_below_table:
            yield BLANK
            yield far_table(row)
    yield from () if is_below_table else (BLANK,)
    yield Legend()
    yield Note(f"# counts tokens from 0. {text_source(result)}", "dim")


def text_source(result: TokenRows) -> str:
    """Where the text of the tokens comes from, or what would give it."""
    if any(row.shown is not None for row in result.rows):
        return f"The text is of {clean(result.text_from)}."
    if any(row.tokens is not None for row in result.rows):
        return "Token ids are shown: --tokenizer FILE gives their text."
    return "The dump has neither the text of its tokens nor their ids."


def running_text(row: OneRow) -> RunningText:
    """A row's tokens as text; a long one is folded around its far tokens."""
    far = {token.place for token in far_tokens(row)}
    is_partly = is_partly_rejected(row)
    tokens = [
        ShownToken(
            place=token.place,
            text=token_face(token),
            counts=token.counts,
            level=None if token.log_ratio is None else max(-1.0, min(1.0, token.log_ratio)),
            is_rejected=is_partly and bool(token.rejected_by),
            is_far=token.place in far,
        )
        for token in row.by_token
    ]
    return RunningText(_folded(tokens))


def _folded(tokens: Sequence[ShownToken]) -> list[ShownToken | None]:
    ends, end = [0], 0
    for token in tokens:
        end += len(token.text)
        ends.append(end)
    if end <= WHOLE:
        return list(tokens)
    # Where tokens are long or have no characters, as many of them as fit.
    near = [(ends[i] - AROUND, ends[i + 1] + AROUND) for i, token in enumerate(tokens) if token.is_far]
    near += [(0, AROUND), (end - AROUND, end)]
    shown = list[ShownToken | None]()
    for i, token in enumerate(tokens):
        if any(low <= ends[i] and ends[i + 1] <= high for low, high in near) or token.is_far:
            shown.append(token)
        elif not shown or shown[-1] is not None:
            shown.append(None)
    return shown


def far_table(row: OneRow) -> Table:
    """The far tokens, the furthest first."""
    tokens = far_tokens(row)
    columns = [Column(heading="#", cell=lambda token: Cell(str(token.place), token.place))]
    if row.shown is not None:
        columns.append(Column(heading="token", cell=lambda token: Cell(_quoted(token)), words=True))
    if row.tokens is not None and row.strings is None:
        columns.append(Column(heading="id", cell=lambda token: Cell(short_value(token.token)), drop=4))
    for i, name in enumerate(policy_headings(row)):
        columns.append(Column(heading=name, cell=lambda token, i=i: _value_cell(token.log_probs[i])))
    if row.problem is None:
        columns.append(Column(heading=ROLLOUT_P, cell=lambda token: _value_cell(_exp(token.log_probs[0])), drop=3))
        columns.append(Column(heading="log-ratio", cell=lambda token: number_cell(token.log_ratio, signed)))
        columns.append(Column(heading="ratio", cell=lambda token: _value_cell(_exp(token.log_ratio)), drop=2))
    if row.weights is not None:
        columns.append(Column(heading="weight", cell=lambda token: _value_cell(token.weight)))
    if any(token.rejected_by for token in tokens):
        columns.append(Column(heading="rejected by", cell=lambda t: Cell(clean(", ".join(t.rejected_by))), words=True))
    return tabulated(tokens, columns)


def _exp(value: Any) -> float | None:
    return exp(value) if isinstance(value, int | float) else None


def _value_cell(value: Any) -> Cell:
    return number_cell(value) if isinstance(value, float) else Cell(short_value("" if value is None else value))


def _quoted(token: OneToken) -> str:
    """A token's text in quotes, in one line."""
    return f"'{clean_cut(token.shown or '', LONGEST)}'"


def short_value(value: object, longest: int = LONGEST) -> str:
    """A value in one line of few characters."""
    return clean_cut(number(value) if isinstance(value, float) else value, longest)


def _last_lines(prompt: str) -> str:
    """The end of a prompt."""
    lines = [line for line in prompt.splitlines() if line.strip()]
    text = " ↵ ".join(clean(line[-PROMPT:]) for line in lines[-PROMPT_LINES:])
    is_cut = len(lines) > PROMPT_LINES or len(text) > PROMPT
    return f"{'… ' if is_cut else ''}{text[-PROMPT:]}"


def _records(result: TokenRows) -> Iterator[Mapping[str, object]]:
    """A line for each token; a masked one has no log-ratio and no weight."""
    names = next((tuple(row.log_probs) for row in result.rows), ())
    for row in result.rows:
        for token in row.by_token:
            yield {
                "row": row.name,
                "place": token.place,
                "token": token.token,
                "text": token.shown,
                "valid": token.counts,
                **dict(zip(names, token.log_probs, strict=False)),
                "log_ratio": token.log_ratio,
                "weight": token.weight,
                "rejected_by": ", ".join(token.rejected_by),
            }
