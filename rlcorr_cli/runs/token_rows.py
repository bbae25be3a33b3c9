"""token_rows(): some rows of a dump, token by token, with their text and with what a plan says of each.

Rows are named, or chosen in one reading: the worst, those that a condition holds for.  The dump is read
with all its columns, and of every batch the few rows that are among those chosen so far become OneRows at once, so that
nothing else is held.  Text comes last, for the rows that stay.

A condition is an expression of SQL over a dump's columns, `step = 4 and worker = 'w3'`: the only place where looking at
a dump takes polars, which is loaded where there is a condition, since it starts threads.
"""

import heapq
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.errors import DataError, UsageError, nearest, plural, shortened
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure import arrays as devices
from rlcorr_cli.measure.correct import MAX_WEIGHT
from rlcorr_cli.measure.decisions import decide_batch, rule_results
from rlcorr_cli.measure.observe import BudgetBounds
from rlcorr_cli.measure.row_sampling import largest, largest_gaps
from rlcorr_cli.measure.tokens import trained_policies
from rlcorr_cli.places import Place
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.batches import BadRows, CheckedRows, all_resolved
from rlcorr_cli.reading.dump import Dump
from rlcorr_cli.reading.names import ENTROPIES, LEVELS, OF_ROWS, TOKENS
from rlcorr_cli.reading.peek import TEXTS, NamedRow, find_rows
from rlcorr_cli.reading.token_text import Piece, TokenizerProcess, of_strings
from rlcorr_cli.reading.whole_rows import ArrowRows, OriginalRows
from rlcorr_cli.results.inspected import OneRow, RejectionVote, TokenRows
from rlcorr_cli.runs.computing import Computing
from rlcorr_cli.runs.earlier_readings import search_budgets
from rlcorr_cli.runs.reading import OpenDump, ShardReading, ShardWork, check_quarantine, one_reading
from rlcorr_cli.totals.flat import Floats

if TYPE_CHECKING:
    import polars as pl


MOST_MATCHING = 200
"""Rows that `where` alone shows: the first of those that it holds for."""
PROMPT_IDS = ("prompt_token_ids", "prompt_ids", "prompt_tokens")
"""Columns of the ids of a prompt's tokens."""
STRINGS = TOKENS[:2]
"""Columns of tokens that may hold their text; those of all others are ids."""
GAP = "gap"
"""What the worst rows have most of."""
ANOTHER = "Is this the tokenizer that the dump was made with?"


@frozen
class Condition:
    """An expression that holds for a row, or does not."""

    sql: str

    def __post_init__(self) -> None:
        _refuse_query(self.sql)
        _ = self._expression

    def __getstate__(self) -> dict[str, str]:
        return {"sql": self.sql}

    @cached_property
    def _expression(self) -> "pl.Expr":
        import polars as pl

        try:
            return pl.sql_expr(self.sql)
        except BaseException as error:  # of some texts the parser panics, which is no Exception
            if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
                raise
            raise UsageError(f"Cannot read ⟦where {shortened(self.sql)}⟧: {_why(error)}.", EXAMPLE) from error

    def holds(self, rows: OriginalRows, names: Mapping[str, str]) -> NDArray[np.bool_]:
        """For which of some rows it holds, bool[B]; null is no.  names: canonical name -> the dump's column."""
        import polars as pl

        try:
            wanted = self._expression.meta.root_names()
            table = _table(rows, dict.fromkeys(wanted), names)
            found = table.select(self._expression.alias("held")).get_column("held")
        except UsageError:
            raise
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
                raise
            raise UsageError(f"⟦where {shortened(self.sql)}⟧ cannot be computed: {_why(error)}.", EXAMPLE) from error
        if found.dtype != pl.Boolean or len(found) not in (1, len(rows)):
            raise UsageError(f"⟦where {shortened(self.sql)}⟧ is no condition: it gives {found.dtype}.", EXAMPLE)
        held = found.fill_null(False).to_numpy()
        return np.broadcast_to(held, (len(rows),)).copy() if len(held) == 1 else held.astype(np.bool_)


@frozen(kw_only=True)
class Choice:
    """Which rows: those of these ids or numbers; or the n worst of those that a condition holds for; or all of
    these."""

    names: tuple[str, ...] = ()
    n_worst: int = 0
    where: str = ""

    @property
    def most(self) -> int:
        """How many rows are shown at most."""
        return self.n_worst or MOST_MATCHING

    @cached_property
    def condition(self) -> Condition | None:
        """What must hold for a row."""
        return Condition(self.where) if self.where else None


def token_rows(
    dump: Dump, chosen: ChosenPlan, computing: Computing, choice: Choice, *, tokenizer: TokenizerProcess | None = None
) -> TokenRows:
    """Rows of a dump token by token; bad ones are shown only where they are named."""
    check_quarantine(dump)
    if choice.names:
        rows = tuple(_named(named, dump, chosen.plan, computing) for named in find_rows(dump, choice.names))
        inputs, plan = tuple(dump.inputs({})), chosen.plan.name or ""
        result = TokenRows(inputs=inputs, plan=plan, by=None, n_matching=len(rows), rows=rows)
    else:
        result, _ = ChooseRows.of(dump, chosen, computing, choice=choice).read(dump, computing)
    if not result.rows:
        raise UsageError(*_none(choice, result.n_matching))
    return with_texts(result, tokenizer)


def with_texts(result: TokenRows, tokenizer: TokenizerProcess | None) -> TokenRows:
    """Rows with the text of their tokens, where it can be had."""
    texts = _Texts(tokenizer)
    rows = tuple(texts.given_to(row) for row in result.rows)
    return replace(result, rows=rows, text_from=texts.source, notes=(*result.notes, *texts.notes))


def _none(choice: Choice, n_matching: int) -> tuple[str, str]:
    """That there is nothing to show, and what to do."""
    if choice.where and not n_matching:
        return f"No row fits ⟦where {shortened(choice.where)}⟧.", "`⟦inspect(DUMP)⟧` lists the columns."
    return "No row has a valid token to show.", "`⟦inspect(DUMP)⟧` says what the dump holds."


@frozen(kw_only=True)
class ShownColumns:
    """Columns of a dump that a row's tokens are shown with.

    log_probs: of the policies.  group: what tells samples of one prompt, where a column does.  copies: name by which
    tokens and prompts are looked for -> the column that --map names.
    """

    log_probs: tuple[str, ...]
    mask: str | None
    group: str | None
    names: Mapping[str, str]
    copies: Mapping[str, str]

    @classmethod
    def of(cls, dump: Dump) -> "ShownColumns":
        """Those of a dump."""
        group = next((name for name in LEVELS["group_id"] if name in dump.available), None)
        prompts = (dump.of_rows.get("prompt"), "prompt", "prompt_token_ids")
        group = group or next((name for name in prompts if name in dump.available), None)
        canonical = {**dump.columns, **dump.marks}
        return cls(
            log_probs=tuple(dump.roles.log_probs),
            mask=dump.roles.mask,
            group=group,
            names=canonical,
            copies={name: column for key, column in dump.of_rows.items() for name in OF_ROWS[key]},
        )


_Ranked = tuple[float, Place, OneRow]
"""What a row is ranked by, its place, and the row."""


@frozen(kw_only=True)
class ChooseRows(ShardWork[tuple[int, float, tuple[_Ranked, ...]]]):
    """Shard -> how many of its rows match, the sum of what they are ranked by, and those that may be shown."""

    choice: Choice
    plan: Plan
    budget_bounds: BudgetBounds
    shown: ShownColumns

    @classmethod
    def of(cls, dump: Dump, chosen: ChosenPlan, computing: Computing, **more: Any) -> Self:
        """That on a dump.  more: the other fields."""
        return cls(
            reading=ShardReading.of(dump, computing, whole=True),
            plan=chosen.plan,
            budget_bounds=search_budgets(dump, chosen.plan, computing).bounds,
            shown=ShownColumns.of(dump),
            **more,
        )

    def read(self, dump: Dump, computing: Computing) -> tuple[TokenRows, float]:
        """Read the dump once; its rows without their texts, and the sum of what all that match are ranked by."""
        kept, n_matching, total = _Kept(self.choice.most), 0, 0.0
        with one_reading(OpenDump(dump=dump, computing=computing)) as reading:
            for _, (n_of_shard, sum_of_shard, of_shard) in reading.each(self):
                n_matching, total = n_matching + n_of_shard, total + sum_of_shard
                for value, place, row in of_shard:
                    kept.offer(value, place, row)
        by = GAP if self.choice.n_worst else None
        rows = tuple(kept.in_order(by_value=by is not None))
        plan = self.plan.name or ""
        return TokenRows(inputs=reading.inputs, plan=plan, by=by, n_matching=n_matching, rows=rows), total

    def ranks(self, rows: CheckedRows) -> Floats:
        """What each row of a batch is ranked by, f64[B]; NaN of a row without a valid token."""
        return largest_gaps(rows.batch, self.reading.device, self.plan.mode)

    def made(self, shard: Shard, batches: Iterator[CheckedRows]) -> tuple[int, float, tuple[_Ranked, ...]]:
        """Look for rows in one shard."""
        choice, plan, bounds, device = self.choice, self.plan, self.budget_bounds, self.reading.device
        kept, n_matching, total = _Kept(choice.most), 0, 0.0
        for rows in batches:
            fits = rows.batch.filled
            if choice.condition is not None:
                assert rows.original is not None, "rows are read whole"
                fits = choice.condition.holds(rows.original, self.shown.names) & fits
            matching = np.flatnonzero(fits)
            n_matching += len(matching)
            if not len(matching):
                continue
            values = np.zeros(len(matching))
            if choice.n_worst:
                values = self.ranks(rows)[matching]
                total += float(values.sum())
            for i in sorted(largest(values, choice.most).tolist()):
                at, value = int(matching[i]), float(values[i])
                if kept.takes(value):
                    row = one_row(rows, at, self.shown, plan=plan, device=device, budget_bounds=bounds)
                    if choice.n_worst:
                        row = replace(row, value=value)
                    kept.offer(value, rows.places[at], row)
        return n_matching, total, tuple(kept.rows)


@dataclass
class _Kept:
    """The rows of the n largest values of a stream, the earlier first among equals, in a heap."""

    n: int
    _heap: list[tuple[float, int, Place, OneRow]] = field(default_factory=list[tuple[float, int, Place, OneRow]])
    _count: int = 0

    def takes(self, value: float) -> bool:
        """Whether a row of that value would be kept."""
        return len(self._heap) < self.n or value > self._heap[0][0]

    def offer(self, value: float, place: Place, row: OneRow) -> None:
        """Keep the row if it is among those."""
        self._count += 1
        push = heapq.heappushpop if len(self._heap) == self.n else heapq.heappush
        push(self._heap, (value, -self._count, place, row))  # the count settles ties: rows are never compared

    @property
    def rows(self) -> list[_Ranked]:
        """In the order in which they came."""
        return [(value, place, row) for value, _, place, row in sorted(self._heap, key=lambda each: -each[1])]

    def in_order(self, *, by_value: bool) -> list[OneRow]:
        """The largest first, or as they stand in the dump; each says where that is."""
        rows = sorted(self.rows, key=lambda each: -each[0]) if by_value else self.rows
        places = all_resolved([place for _, place, _ in rows])
        return [replace(row, place=place.text) for (_, _, row), place in zip(rows, places, strict=True)]


def one_row(
    rows: CheckedRows, at: int, shown: ShownColumns, *, plan: Plan, device: Any, budget_bounds: BudgetBounds
) -> OneRow:
    """One of some checked rows, with what the plan says of it; its place and its text are still to come."""
    assert rows.original is not None, "rows are read whole"
    batch, values = rows.batch.between(at, at + 1), rows.original.values(at)
    start, end = int(rows.offsets[at]), int(rows.offsets[at + 1])
    training_logp, _ = trained_policies(batch, plan.mode)
    decision = decide_batch(batch, plan, device, budget_bounds)
    largest_float = np.finfo(np.float64).max  # JSON has no larger one
    says = [
        RejectionVote(
            rule.name,
            rule.rule,
            None if rule.scope == "token" else float(np.minimum(value[0], largest_float)),
            tuple(keep.tolist()),
        )
        for rule, value, keep in rule_results(batch, plan, device, budget_bounds)
    ]
    valid = (True,) * (end - start) if rows.valid is None else tuple(rows.valid[start:end].tolist())
    return replace(
        _as_read(values, end - start, shown),
        valid=valid,
        log_probs={column: tuple(values[column]) for column in shown.log_probs},
        log_ratios=tuple((training_logp.astype(np.float64) - batch.rollout_logp).tolist()),
        weights=None if decision.weights is None else tuple(np.minimum(decision.weights, MAX_WEIGHT).tolist()),
        says=tuple(says),
    )


def _as_read(values: Mapping[str, Any], n: int, shown: ShownColumns) -> OneRow:
    """What a row says beside its log-probs.  n: how many tokens it has."""
    values = {**values, **{name: values.get(column) for name, column in shown.copies.items()}}
    with_text = {*TEXTS, *shown.copies, *shown.copies.values()}
    group = values.get(shown.group) if shown.group else None
    return OneRow(
        place="",
        facts={k: v for k, v in values.items() if k not in with_text and not isinstance(v, (list, dict))},
        texts={name: text for name in TEXTS if (text := _text(values.get(name)))},
        tokens=_first_list(values, TOKENS, lambda v: len(v) == n and are_ids(v))
        or _first_list(values, TOKENS, lambda v: len(v) == n),
        strings=_first_list(values, STRINGS, lambda v: len(v) == n and all(isinstance(x, str) for x in v)),
        prompt_ids=_first_list(values, PROMPT_IDS, are_ids),
        entropies=_first_list(values, ENTROPIES, lambda v: len(v) == n),
        group=None if group is None else group if isinstance(group, str) else json.dumps(group, default=str),
        valid=(),
        log_probs={},
    )


def _text(value: Any) -> str:
    """A text, or the messages of a chat as one."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(x, dict) and "content" in x for x in value):
        return "\n".join(f"{x.get('role', '')}: {x['content']}" for x in value)
    return ""


def _first_list(
    values: Mapping[str, Any], names: Sequence[str], fits: Callable[[list[Any]], bool]
) -> tuple[Any, ...] | None:
    """The first of some columns that holds a list that is fit."""
    lists = (value for value in map(values.get, names) if isinstance(value, list))
    return next((tuple(value) for value in lists if fits(value)), None)


def are_ids(value: Sequence[Any]) -> bool:
    """Whether there are values, and all are whole numbers."""
    return bool(value) and all(type(x) is int or (isinstance(x, float) and x.is_integer()) for x in value)


def _named(named: NamedRow, dump: Dump, plan: Plan, computing: Computing) -> OneRow:
    """A row that was asked for; a bad one as it stands."""
    shown = ShownColumns.of(dump)
    if not isinstance(named.read, BadRows):
        device, bounds = devices.resolve(computing.device), search_budgets(dump, plan, computing).bounds
        return replace(one_row(named.read, 0, shown, plan=plan, device=device, budget_bounds=bounds), place=named.place)
    if not named.read.reasons:
        raise DataError(f"{named.place} cannot be shown.", "Look at the file itself.")
    lists = {name: named.values.get(name) for name in shown.log_probs}
    log_probs = {name: tuple(value) for name, value in lists.items() if isinstance(value, list)}
    mask = named.values.get(shown.mask) if shown.mask else None
    n = max([len(values) for values in log_probs.values()], default=0)
    valid = tuple(value == 1 for value in mask) if isinstance(mask, list) else (True,) * n
    row = _as_read(named.values, n, shown)
    return replace(row, place=named.place, valid=valid, log_probs=log_probs, problem=named.read.reasons[0])


@dataclass
class _Texts:
    """Gives rows their text, and says where it comes from: the first that a row has of token strings, ids and a
    tokenizer, and a text that has as many tokens."""

    tokenizer: TokenizerProcess | None
    notes: list[str] = field(default_factory=list[str])
    _sources: set[str] = field(default_factory=set[str])

    @property
    def source(self) -> str:
        """Where the texts come from."""
        return ", ".join(sorted(self._sources))

    def given_to(self, row: OneRow) -> OneRow:
        """A row with its text."""
        if self.tokenizer is not None and "prompt" not in row.texts and row.prompt_ids is not None:
            prompt = self.tokenizer.decode([int(i) for i in row.prompt_ids])
            row = replace(row, texts={"prompt": prompt, **row.texts})
        pieces = self._pieces(row)
        if pieces is None:
            return row
        return replace(row, text=tuple(piece.text for piece in pieces), shown=tuple(piece.shown for piece in pieces))

    def _pieces(self, row: OneRow) -> Sequence[Piece] | None:
        if row.strings is not None:
            self._sources.add("the dump's token strings")
            return of_strings(row.strings)
        if self.tokenizer is None:
            return None
        response = next((row.texts[name] for name in ("response", "completion", "output") if name in row.texts), None)
        if row.tokens is not None and are_ids(row.tokens):
            self._sources.add(f"token ids, decoded by {self.tokenizer.name}")
            ids = [int(i) for i in row.tokens]
            pieces = self.tokenizer.pieces(ids)
            unknown = self.tokenizer.unknown(ids)
            if unknown and not self.notes:
                what = f"{self.tokenizer.name} has no token of {plural(len(unknown), 'id')} of a row"
                self.notes.append(f"{what}, such as {unknown[0]}. {ANOTHER}")
            decoded = "".join(piece.text for piece in pieces).strip()
            is_known = response is None or response[:20].strip() in decoded or decoded in response
            if not is_known and not self.notes:
                self.notes.append(f"The ids decode to another text than the dump has. {ANOTHER}")
            return pieces
        n = max(map(len, row.log_probs.values()), default=0)
        if row.tokens is None and response is not None and len(ids := self.tokenizer.encode(response)) == n:
            self._sources.add(f"the dump's text, cut into tokens by {self.tokenizer.name}")
            return self.tokenizer.pieces(ids)
        return None


_LITERAL = re.compile(r"""(?<![\w&])'(?:[^']|'')*'|"(?:[^"]|"")*\"""")
_ODD_QUOTE = re.compile(r"""['"`$\\]""")
_QUERY = re.compile(r"\bSELECT\b|\(\s*(?:FROM|TABLE|VALUES|WITH)\b|--|/\*")
"""How a query begins within an expression; and comments, which could stand in between."""
EXAMPLE = "Write ⟦where \"step = 4 and worker = 'w3'\"⟧."


def _refuse_query(sql: str) -> None:
    """Refuse a query within an expression before polars reads it, which opens what that names: tables are files, too.

    What literals hold is no query, but where dialects quote in other ways, none is certain.  In capitals, as the parser
    compares words, `ı` is the I of WITH.
    """
    bare = _LITERAL.sub(" ", sql)
    found = _QUERY.search((sql if _ODD_QUOTE.search(bare) or "\\" in sql else bare).upper())
    if found is not None:
        what = f"⟦where {shortened(sql)}⟧ holds a query or a comment ({found[0].lstrip('(').strip()})"
        raise UsageError(f"{what}, and only columns of the dump are read.", EXAMPLE)


def _table(rows: OriginalRows, wanted: Mapping[str, Any], names: Mapping[str, str]) -> "pl.DataFrame":
    """The columns that are asked for."""
    import polars as pl

    columns = {}
    if isinstance(rows, ArrowRows):
        has = rows.table.column_names
        for name in wanted:
            column = _column(name, has, names)
            columns[name] = pl.Series(name, pl.from_arrow(rows.table.column(column)))
    else:
        objects = rows.as_objects()
        has = list(dict.fromkeys(key for row in objects for key in row))
        for name in wanted:
            column = _column(name, has, names)
            columns[name] = pl.Series(name, [row.get(column) for row in objects], strict=False)
    return pl.DataFrame(columns) if columns else pl.DataFrame({"row": range(len(rows))})


def _column(name: str, has: list[str], names: Mapping[str, str]) -> str:
    column = name if name in has else names.get(name, name)
    if column not in has:
        raise UsageError(f"⟦where⟧ names {name}, and there is no such column.", f"Similar: {nearest(name, has)}.")
    return column


def _why(error: BaseException) -> str:
    return shortened(str(error).partition("\n")[0].removeprefix("sql parser error: ").rstrip("."), 120, quotes=False)
