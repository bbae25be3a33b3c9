"""What a notebook shows of a result: what it is of, its headline, a few numbers and one picture.

It is made of the result's Document, as every form is, and ends where a screen does: the whole page is a `save` away.
The styles stand in the elements and the picture is a PNG, because notebooks keep neither style sheets nor scripts.
"""

import base64
from collections.abc import Iterable, Iterator
from html import escape
from itertools import islice
from typing import Any

from rlcorr_cli.show import document_of
from rlcorr_cli.show.document import Document, KeyFigure, Section, Table

MOST_CAUSES, MOST_REASONS, MOST_ROWS, MOST_COLUMNS = 2, 4, 8, 7
LONGEST = 400
"""Characters of one sentence."""
DPI = 100
COLOURS = {"ok": "#00875a", "warn": "#b57600", "fail": "#c62f26"}
"""Status -> the colour of the bar beside a sentence: it stands out on white and on black."""
FOOT = '<code>save(result, "page.html")</code> writes all of it; .md, .csv and .json work, too.'


def html(result: Any) -> str:
    """The HTML of a result."""
    document = document_of(result)
    sections = list(_first_sections(document.sections))
    figures = [figure for section in sections for figure in section.figures]
    tables = [table for section in sections for table in section.tables if table.rows]
    parts = [_html_line(f"<b>{escape(document.name)}</b>"), _html_line(escape(document.summary), quiet=True)]
    parts += [_html_bar(cause.finding, cause.status) for cause in document.causes[:MOST_CAUSES]]
    parts.append(_html_bar(document.headline, document.shown_status))
    parts += [_html_line(_html_sentence(reason)) for reason in document.reasons[:MOST_REASONS]]
    if figures:
        parts.append(_html_figures(figures))
    elif tables:
        parts.append(_html_table(tables[0]))
    parts += [*islice(_pictures(document, sections), 1), _html_line(FOOT, quiet=True)]
    return f'<div style="max-width:60em">{"".join(filter(None, parts))}</div>'


def html_of_picture(figure: Any, caption: str) -> str:
    """The HTML of one picture of matplotlib's and its caption; of the caption alone where there is no figure."""
    from rlcorr_cli.show.figures import Drawn

    if figure is None:
        return _html_line(_html_sentence(caption))
    image = base64.b64encode(Drawn("", figure, caption).write("png", DPI)).decode()
    return f'<img style="max-width:100%" alt="{escape(caption)}" src="data:image/png;base64,{image}">'


def _first_sections(sections: Iterable[Section]) -> Iterator[Section]:
    """The first sections of a document, up to where there are numbers and a picture; those below take longer."""
    has_numbers = has_pictures = False
    for section in sections:
        yield section
        has_numbers = has_numbers or bool(section.figures or section.tables)
        has_pictures = has_pictures or bool(section.pictures)
        if has_numbers and has_pictures:
            return


def _pictures(document: Document, sections: Iterable[Section]) -> Iterator[str]:
    """The pictures that can be drawn, each drawn as it is asked for."""
    from rlcorr_cli.show.figures import drawn_picture

    for each in (each for section in sections for each in section.pictures):
        made = drawn_picture(each, source=document.small_print)
        if made.figure is not None:
            yield html_of_picture(made.figure, made.caption)


def _html_sentence(sentence: str) -> str:
    """A sentence of at most so many characters, escaped, with `commands` as code."""
    text = sentence if len(sentence) <= LONGEST else f"{sentence[: LONGEST - 1]}…"
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if i % 2 and i < len(parts) - 1 else part for i, part in enumerate(parts))


def _html_line(content: str, *, quiet: bool = False) -> str:
    if not content:
        return ""
    look = "font-size:85%;opacity:.75;" if quiet else ""
    return f'<div style="{look}margin:.2em 0">{content}</div>'


def _html_bar(sentence: str, status: str) -> str:
    """A sentence beside a bar in the colour of its status."""
    if not sentence:
        return ""
    colour = COLOURS.get(status, "currentColor")
    return (
        f'<div style="border-left:4px solid {colour};padding:.2em .6em;margin:.4em 0;font-weight:bold">'
        f"{_html_sentence(sentence)}</div>"
    )


def _html_figures(figures: Iterable[KeyFigure]) -> str:
    """A row for each key figure: what it is, its value, its interval, and its limit or ideal value."""
    rows = [
        (figure.name, figure.about, figure.value.marked, figure.ends, figure.limit or figure.ideal)
        for figure in figures
    ]
    return _html_rows(("metric", "", "value", "95% interval", "limit or ideal"), rows, texts=(0, 1))


def _html_table(table: Table) -> str:
    """The first rows and columns of a table."""
    texts = [i for i in range(MOST_COLUMNS) if i < table.n_keys or (i < len(table.headings) and table.is_words(i))]
    rows = [[cell.marked for cell in row[:MOST_COLUMNS]] for row in table.rows[:MOST_ROWS]]
    more = len(table.rows) - len(rows)
    below = _html_line(f"and {more:,} more rows", quiet=True) if more else ""
    return _html_rows(table.headings[:MOST_COLUMNS], rows, texts=texts) + below


def _html_rows(headings: Iterable[str], rows: Iterable[Iterable[str]], *, texts: Iterable[int]) -> str:
    left = set(texts)

    def cells(tag: str, row: Iterable[str]) -> str:
        return "".join(
            f'<{tag} style="padding:.1em .6em;text-align:{"left" if i in left else "right;white-space:nowrap"}">'
            f"{escape(text)}</{tag}>"
            for i, text in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    table = f"<table><thead><tr>{cells('th', headings)}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div style="overflow-x:auto">{table}</div>'
