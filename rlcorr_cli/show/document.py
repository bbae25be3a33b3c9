"""A Document: what a result says, before any form lays it out.

The module of a result has one function that makes its Document of words and rows: the lines of a terminal in their
order, and what files hold, section by section.  `terminal` prints the lines; `forms` writes a page, Markdown, a table
or a picture of the rest.  All of them show the same tables, with the same marks.  What takes long to make is a
generator, so that a form makes no more than it shows.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, replace
from itertools import compress
from typing import Any

from rlcorr_cli import __version__
from rlcorr_cli.frozen import frozen
from rlcorr_cli.reading.batch import Input
from rlcorr_cli.show.inputs import input_facts
from rlcorr_cli.show.numbers import NOTHING, more, number
from rlcorr_cli.show.stdout import clean

MARK = "!"
"""What stands behind a value that breaks a rule."""
ROOMY = 104
"""Columns of a terminal that has room for the wide columns of a table."""
MOST_ON_TERMINAL, MOST_IN_FILE = 40, 1000
"""Rows of groups: a page with many more is slow to open and to sort."""
FOLDED = 12
"""Columns of a terminal that a column of words needs, which is folded; names and numbers never are."""


@frozen
class Cell:
    """One cell of a table.  sort_key: None for text.  status: of the worst rule broken here, or empty.  short: a
    shorter text for narrow terminals."""

    text: str
    sort_key: float | None = None
    status: str = ""
    short: str = ""

    @property
    def marked(self) -> str:
        """The text, with the mark where a rule is broken."""
        return f"{self.text} {MARK}" if self.status else self.text


EMPTY = Cell("")


def number_cell(value: float | None, show: Callable[[float | None], str] = number, status: str = "") -> Cell:
    """A cell of a number."""
    return Cell(show(value), value, status)


def key_cell(value: object) -> Cell:
    """A cell of a group's key, which is sorted as a number if it is one."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return Cell(clean(NOTHING if value is None else value), float(value) if is_number else None)


@frozen(kw_only=True)
class Column:
    """One column of a table.  cell: makes it of a row.  words: whether it holds text.  drop: where a terminal has no
    room, the columns with the largest go first; 0: after all that have one.  wide: only a roomy terminal shows it."""

    heading: str
    cell: Callable[[Any], Cell]
    words: bool = False
    drop: int = 0
    wide: bool = False


@frozen(kw_only=True)
class Table:
    """A table: its headings, of which the first says what the rows are, and its rows.

    n_keys: how many of the first columns are the row's key.  words: headings of other columns of text;
    all others hold numbers.  has_total: whether the last row takes all others together.  heading: of the table
    itself in a file, where it stands among others.  The rest is of terminals.  spare: headings of what goes first where
    there is no room, in this order; wide: of what only a roomy one shows.  splits: whether the columns that
    have no room go on below instead; together: how many of them are never parted.  gap: columns of a terminal
    between two.  is_tight: whether no empty line stands below it.  looks: of each row, if not plain.  note: the
    sentence below short cells.  upright: the same as a column, which stands beside the table above it on a terminal
    that has room for both.
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    n_keys: int = 1
    words: tuple[str, ...] = ()
    has_total: bool = False
    spare: tuple[str, ...] = ()
    wide: tuple[str, ...] = ()
    splits: bool = False
    together: int = 1
    gap: int = 2
    is_tight: bool = False
    looks: tuple[str, ...] = ()
    note: str = ""
    heading: str = ""
    upright: "Table | None" = None

    @property
    def has_marks(self) -> bool:
        """Whether any cell breaks a rule."""
        return any(cell.status for row in self.rows for cell in row)

    def is_words(self, i: int) -> bool:
        """Whether a column holds text beside what its row is of."""
        return i >= self.n_keys and self.headings[i] in self.words

    def widths(self, *, folded: bool = True) -> list[int]:
        """Columns of a terminal that each column needs, with the gap behind it.  folded: whether words may be."""
        widths = [self.gap + len(heading) for heading in self.headings]
        for i in range(len(widths)):
            room = 2 * (i > 0 and any(row[i].status for row in self.rows))
            longest = max((len(row[i].text) + room if room else len(row[i].marked) for row in self.rows), default=0)
            widths[i] = max(widths[i], self.gap + (min(longest, FOLDED) if folded and self.is_words(i) else longest))
        return widths

    def without(self, headings: Iterable[str]) -> "Table":
        """The table without columns, but for those that say what a row is of."""
        gone = set(headings)
        kept = [i < self.n_keys or heading not in gone for i, heading in enumerate(self.headings)]
        rows = tuple(tuple(compress(row, kept)) for row in self.rows)
        return replace(self, headings=tuple(compress(self.headings, kept)), rows=rows)

    def short(self) -> "Table":
        """The table with the short text of every cell that has one."""
        return replace(
            self, rows=tuple(tuple(replace(cell, text=cell.short or cell.text) for cell in row) for row in self.rows)
        )

    def within(self, width: int) -> tuple["Table", tuple[str, ...]]:
        """The widest version that fits, and the headings that were left out.

        Spare columns go first, in their order, before words are folded, then the others from the last on; what a row is
        of stays, whatever it is called, and one column behind it.
        """
        behind = self.headings[self.n_keys :]
        spare = [heading for heading in self.spare if heading in behind]
        others = [heading for heading in reversed(behind[1:]) if heading not in spare]
        left_out = list[str]()
        for folded, headings in ((False, spare), (True, others)):
            widths = self.without(left_out).widths(folded=folded)
            needed, of = sum(widths) - self.gap, dict(zip(self.headings, self.widths(folded=folded), strict=True))
            for heading in headings:
                if needed <= width or len(left_out) == len(behind) - 1:
                    break
                needed -= of[heading]
                left_out.append(heading)
        return replace(self.without(left_out), spare=()), tuple(left_out)


def tabulated(
    rows: Sequence[Any], columns: Sequence[Column], *, most: int | None = None, noun: str = "", **how: Any
) -> Table:
    """The table of some rows by its columns; of more than `most`, the first, and a row that says how many there are
    more.  noun: what the rows are.  how: other fields of the Table."""
    lines = [tuple(column.cell(row) for column in columns) for row in rows[:most]]
    if most is not None and len(rows) > most:
        lines.append((Cell(more(len(rows) - most, noun)), *[EMPTY] * (len(columns) - 1)))
    return Table(
        headings=tuple(column.heading for column in columns),
        rows=tuple(lines),
        words=tuple(column.heading for column in columns if column.words),
        spare=tuple(c.heading for c in sorted(columns, key=lambda column: -column.drop) if c.drop),
        wide=tuple(column.heading for column in columns if column.wide),
        **how,
    )


def key_columns(names: Iterable[str]) -> list[Column]:
    """The columns of what groups are of, the names of a group's key."""
    return [Column(heading=clean(name), cell=lambda group, name=name: key_cell(group.key[name])) for name in names]


def group_table(groups: Sequence[Any], columns: Iterable[Column], most: int | None = None) -> Table:
    """A row per group: its key, then these columns."""
    keys = key_columns(groups[0].key)
    return tabulated(groups, [*keys, *columns], most=most, noun="group", n_keys=len(keys))


def key_words(key: Mapping[str, object]) -> str:
    """Which group it is: 'step 4, source math'."""
    return ", ".join(f"{clean(name)} {clean(value)}" for name, value in key.items())


def scope_of(key: Mapping[str, object], names: Iterable[str]) -> dict[str, object]:
    """What a group's lines in a table begin with: its scope, and its key, which is empty of the whole dump.  names: of
    all keys."""
    return {"scope": "group" if key else "total", **{name: key.get(name) for name in names}}


@frozen
class Note:
    """A paragraph on a terminal; nothing is an empty line.

    lead: what stands before the text.  look, lead_look: of either, such as "bold" or "yellow".  indent: columns before
    every line.  aside: whether the lead has a column of its own, so that every line of the text begins behind it.
    bullet: whether it is one of a list.  option: what to copy, in a line below that is never broken.
    """

    text: str = ""
    look: str = ""
    _: KW_ONLY
    lead: str = ""
    lead_look: str = ""
    indent: int = 2
    aside: bool = False
    bullet: bool = False
    option: str = ""


BLANK = Note()


@frozen
class Facts:
    """Facts in a row on a terminal, which breaks between them alone: a number stays beside its unit.  look: of the
    first."""

    parts: Sequence[str]
    look: str = ""


@frozen(kw_only=True)
class ShownToken:
    """A token in running text.  level: its log-ratio, 1 nat at most either way, None of one that is not compared;
    is_far: whether it is listed below the text."""

    place: int
    text: str
    counts: bool
    level: float | None
    is_rejected: bool
    is_far: bool


@frozen
class RunningText:
    """A row's tokens as running text; None stands for tokens that are folded, and how many they are is told by the
    places around."""

    tokens: Sequence[ShownToken | None]

    def folded_away(self, i: int) -> int:
        """How many tokens a None among these stands for."""
        around = (self.tokens[i - 1] if i else None, self.tokens[i + 1] if i + 1 < len(self.tokens) else None)
        start, end = (None if token is None else token.place for token in around)
        return 0 if end is None else end - (-1 if start is None else start) - 1

    @property
    def marked(self) -> str:
        """The text without colours: [#57 far], ~rejected~ and {masked} tokens are marked."""
        parts, around = list[str](), ""
        for i, token in enumerate(self.tokens):
            if token is None:
                text, marks = f" (... {self.folded_away(i):,} tokens ...) ", ""
            else:
                text, marks = token.text, "{}" if not token.counts else "~~" if token.is_rejected else ""
                text = text.replace("\n", "↵\n")
            word = text.lstrip(" ")
            space = text[: len(text) - len(word)]
            if marks != around:
                parts += [around[1:], space, marks[:1]]
                space, around = "", marks
            is_far = token is not None and token.is_far
            parts += [space, f"[#{token.place} {word.rstrip(' ')}]" if token and is_far else word]
            parts += [" "] if is_far and word.endswith(" ") else []
        return "".join([*parts, around[1:]])


@frozen
class Legend:
    """What colours, or marks, of running text mean."""


@frozen
class Drawing:
    """A line of characters.  draw: makes it, in so many columns of a terminal or fewer."""

    draw: Callable[[int], str]


Block = Note | Facts | Table | RunningText | Legend | Drawing


@frozen
class Panel:
    """A drawing.  draw: onto matplotlib's axes, returns the sentence that stands below it; raises Missing where there
    is nothing to draw."""

    title: str
    draw: Callable[[Any], str]


@frozen(kw_only=True)
class Picture:
    """Panels that stand together.  name: of its file, and of a report's kind of picture; empty: the document's own.
    about: the question that it answers.  columns: how many panels stand side by side at most.  size: of each, in
    inches."""

    panels: Sequence[Panel]
    name: str = ""
    about: str = ""
    columns: int = 3
    size: tuple[float, float] = (5.4, 4.2)


@frozen
class Cause:
    """What was found in the data and voids or endangers the numbers: the finding, and how to fix it where known."""

    status: str
    finding: str
    fix: str


@frozen(kw_only=True)
class KeyFigure:
    """One number.  ends: its 95% interval; limit: what the rule on it asks for; empty where there is none."""

    name: str
    about: str
    value: Cell
    ends: str
    ideal: str
    limit: str


@frozen(kw_only=True)
class Section:
    """A part of a page or of a Markdown document, under its heading; it shows what it has, in this order.

    anchor: its name in links to it.  about: sentences.  todo: status, finding and remedy of each.  sorts: whether
    tables may be sorted by a column.  folds: whether it is folded on a small screen.  token_rows: TokenRows, which a
    page shows and no other form; on_page: whether a page shows the section at all.
    """

    heading: str = ""
    anchor: str = ""
    about: Sequence[str] = ()
    figures: Sequence[KeyFigure] = ()
    todo: Sequence[tuple[str, str, str]] = ()
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()
    facts: Sequence[tuple[str, str]] = ()
    code: str = ""
    items: Sequence[str] = ()
    token_rows: Any = None
    on_page: bool = True
    sorts: bool = False
    folds: bool = False

    @property
    def has_marks(self) -> bool:
        """Whether any value of it breaks a rule."""
        return any(table.has_marks for table in self.tables) or any(each.value.status for each in self.figures)


@frozen(kw_only=True)
class Document:
    """What a result says.  It is read once: its iterables may be made as they are read.

    lines: on a terminal; again: what ends them where they are longer than the terminal is high. All others are of
    files: the command that made it, title (the dump), summary (how much was read, and when it was last changed),
    trend (how it goes over steps, the last of them first), causes (what voids the numbers), headline with its
    status (ok, warn or fail) and reasons, sections, the picture of all of it first. source: what its pictures are
    of, if not what title and summary say. marks: what a marked value means. has_contents: whether a page links to
    its sections. json: the text of that form, in pieces. records: the lines of a table, all of the same names, or
    as text.
    """

    lines: Iterable[Block]
    again: str = ""
    command: str = ""
    title: str = ""
    summary: str = ""
    trend: str = ""
    causes: Sequence[Cause] = ()
    headline: str = ""
    status: str = ""
    reasons: Sequence[str] = ()
    sections: Iterable[Section] = ()
    source: str = ""
    marks: str = ""
    has_contents: bool = False
    json: Iterable[str] = ()
    records: Iterable[Mapping[str, object] | str] = ()

    @property
    def name(self) -> str:
        """'analyze - dump.parquet': what tells it from other documents of the same dump."""
        return f"{self.command} - {self.title}"

    @property
    def shown_status(self) -> str:
        """The status of the headline; where a cause stands above it, never "ok"."""
        return "warn" if self.causes and self.status == "ok" else self.status

    @property
    def small_print(self) -> str:
        """What stands below its pictures."""
        return self.source or f"{self.title} · {self.summary} · rlcorr {__version__}"


def sections_of(blocks: Iterable[Block], heading: str = "") -> Iterator[Section]:
    """Blocks of a terminal as sections of a file: each table with the paragraphs above it."""
    about = list[str]()
    for block in blocks:
        match block:
            case Table():
                yield Section(heading=heading, about=about, tables=[block])
                about, heading = list[str](), ""
            case Legend():
                pass  # of a terminal's marks
            case Facts(parts):
                about.append(", ".join(parts))
            case RunningText():
                about.append(block.marked)
            case Drawing():
                about.append(block.draw(ROOMY))
            case Note():
                about.append(f"{block.lead}{block.text} {f'`{block.option}`' if block.option else ''}".strip())
    if any(about):
        yield Section(heading=heading, about=about)


def json_text(value: Callable[[], Mapping[str, Any]]) -> Iterator[str]:
    """The JSON form of what is made when it is read."""
    yield json.dumps(value(), indent=2, allow_nan=False) + "\n"


def what_was_read(
    counts: Mapping[str, int], columns: Iterable[str], inputs: Sequence[Input], notes: Sequence[str]
) -> list[Section]:
    """The sections that a document ends with: counts, columns and files, then notes."""
    facts = [(name.replace("_", " "), f"{counts[name]:,}") for name in counts if counts[name]]
    if named := ", ".join(map(clean, columns)):
        facts.append(("columns", named))
    return ending([*facts, *input_facts(inputs)], notes)


def ending(facts: Sequence[tuple[str, str]], notes: Sequence[str]) -> list[Section]:
    """The sections that a document ends with, of facts that are listed already."""
    read = Section(heading="What was read", anchor="read", facts=[*facts, ("rlcorr", __version__)], folds=True)
    return [read, *([Section(heading="Notes", items=notes, folds=True)] if notes else [])]
