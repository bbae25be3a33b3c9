"""Documents as text: JSON and tables (CSV) of values, Markdown of what a page says.

Text from a dump is harmless in each: nothing of it is read as markup, and what a spreadsheet would take for a formula
gets an apostrophe before it, for a dump decides what its groups are called.  Reports of very many groups are written
group by group, because they are larger as text than the values that they are made of.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from rlcorr_cli.results.report import Group, Report
from rlcorr_cli.show.document import Document, Picture, Section
from rlcorr_cli.show.stdout import clean

SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~@$-])")
QUOTE = '"'
FORMULA = ("=", "+", "-", "@", "\t", "\r")


# JSON


def report_json(report: Report, *, pictures: bool = True) -> Iterator[str]:
    """The JSON document of a report, group by group.

    pictures: whether it holds the binned totals that pictures are drawn from; they come last.
    """
    document = report.to_dict(without="groups")
    binned = document.pop("pictures", None)
    last = {"pictures": binned} if pictures and binned is not None else {}
    return json_pieces(document, "groups", (group.to_dict() for group in report.groups), last)


def json_pieces(
    document: Mapping[str, Any], name: str, records: Iterable[Mapping[str, Any]], last: Mapping[str, Any] | None = None
) -> Iterator[str]:
    """The text of `json.dumps(document, indent=2)` with the records in its empty list `name`.

    Of a record's values, those that are mappings hold no others.  last: more of the document, each key in one line.
    """
    # No text in the document can hold this, because a line end in JSON text is escaped.
    empty = f'\n  "{name}": []'
    before, _, after = json.dumps(document, indent=2, allow_nan=False).partition(empty)
    yield before + empty.removesuffix("]")
    separator = ""
    for record in records:
        yield f"{separator}\n    {_object(record)}"
        separator = ","
    more = "".join(f',\n  "{key}": {_COMPACT.encode(value)}' for key, value in (last or {}).items())
    yield "\n  ]" if separator else "]"
    yield f"{after.removesuffix('}').rstrip()}{more}\n}}\n"


def _object(record: Mapping[str, Any]) -> str:
    """A record, indented by four spaces."""
    parts = (
        f'\n      "{name}": {_flat(value) if isinstance(value, Mapping) else _ENCODER.encode(value)}'
        for name, value in record.items()
    )
    return f"{{{','.join(parts)}\n    }}"


_COMPACT = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",\n        ", ": "))
# Python's encoder that indents is not compiled, and ten times as slow.
_NUMBERS = frozenset({float, type(None)})


def _flat(values: Mapping[str, Any]) -> str:
    """A mapping without others in it, indented by six spaces."""
    if values and _NUMBERS.issuperset(map(type, values.values())):
        return _template(tuple(values)) % tuple(_numerals(list(values.values())))
    text = _ENCODER.encode(values)
    return f"{{\n        {text[1:-1]}\n      }}" if values else text


@lru_cache(maxsize=64)
def _template(names: tuple[str, ...]) -> str:
    """An object of these names with a %s for the text of each value: records are alike in their names."""
    keys = (json.dumps(name).replace("%", "%%") for name in names)
    return "{{\n        {}\n      }}".format(",\n        ".join(f"{key}: %s" for key in keys))


def _numerals(values: list[float | None]) -> list[str]:
    """Each as Python's encoder writes it, in a fifth of the time; a ValueError for what JSON has no number for."""
    import msgspec

    text = msgspec.json.encode(values).decode()
    if text.count("null") != values.count(None):
        raise ValueError("NaN and infinite numbers are not JSON compliant")
    # Both write the fewest digits that mean the number; they differ in exponents alone, which Python has beyond these.
    numerals = text[1:-1].split(",")
    for place, value in enumerate(values):
        if value and not 1e-4 <= abs(value) < 1e16:
            numerals[place] = repr(value)
    return numerals


# Tables


def table_lines(records: Iterable[Mapping[str, object] | str]) -> Iterator[str]:
    """The lines of a table, with its heading; text stays as it is."""
    has_heading = False
    for record in records:
        if isinstance(record, str):
            yield record
            continue
        if not has_heading:
            yield table_line(record)
            has_heading = True
        yield table_line(record.values())


def report_table(report: Report) -> Iterator[str]:
    """The table of a report, group by group: floats with every digit, null as nothing, text harmless in a spreadsheet.

    Columns: scope ("total" or "group"), the group's keys, sequences, tokens, metric, value, and the ends low and high
    of its 95% interval.
    """
    keys = tuple(report.groups[0].key) if report.groups else ()
    columns = ("scope", *keys, "sequences", "tokens", "metric", "value", "low", "high")
    metrics = {metric: _cell(metric) for metric in report.whole.all_metrics}
    yield table_line(columns)
    yield _group_lines("total", keys, report.whole, metrics=metrics, intervals=report.intervals)
    for group in report.groups:
        yield _group_lines("group", keys, group, metrics=metrics, intervals={})


def _group_lines(
    scope: str,
    keys: Iterable[str],
    group: Group,
    *,
    metrics: Mapping[str, str],
    intervals: Mapping[str, tuple[float, float]],
) -> str:
    """The lines of one group.  metrics: the names as cells."""
    values = (group.key.get(name) for name in keys)
    head = ",".join(map(_cell, (scope, *values, group.counts["sequences"], group.counts["tokens"])))
    ends = {metric: ",".join(map(_cell, ends)) for metric, ends in intervals.items()}
    return "".join(
        f"{head},{metrics[metric]},{'' if value is None else repr(value)},{ends.get(metric, ',')}\n"
        for metric, value in group.all_metrics.items()
    )


def table_line(values: Iterable[object]) -> str:
    """One line of a table; text that a spreadsheet would take for a formula is harmless in it."""
    return ",".join(map(_cell, values)) + "\n"


def _cell(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return repr(value) if isinstance(value, float) else str(value)
    text = harmless_in_sheet(value)
    # Empty text is no null; line ends are not printable, so that none is left.
    return f'"{text.replace(QUOTE, QUOTE + QUOTE)}"' if QUOTE in text or "," in text or not text else text


def harmless_in_sheet(shown: str) -> str:
    """Text from the dump, without control characters, that no spreadsheet takes for a formula."""
    cleaned = clean(shown)
    return f"'{cleaned}" if cleaned.startswith(FORMULA) else cleaned


# Markdown


def md_escaped(value: object) -> str:
    """Text that Markdown shows as it is."""
    text = str(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # GitHub makes links of bare addresses.
    return SPECIAL.sub(r"\\\1", text).replace("://", "&#58;//").replace("www.", "www&#46;")


def md_prose(sentence: str) -> str:
    """A sentence of ours as Markdown: `commands` stay code, all else is shown as it is."""
    parts = sentence.split("`")
    if len(parts) % 2 == 0:  # a backtick without its end
        return md_escaped(sentence)
    return "".join(f"`{part}`" if i % 2 else md_escaped(part) for i, part in enumerate(parts))


def markdown(document: Document, pictures: Mapping[str, tuple[str, str]]) -> str:
    """A document as Markdown.  pictures: name of each that could be drawn -> the link to it, and what it shows."""
    lines = [f"# {md_escaped(document.name)}", "", md_escaped(document.summary), ""]
    lines += [f"**{md_prose(document.trend)}**", ""] if document.trend else []
    for cause in document.causes:
        lines += [f"**! {md_escaped(cause.finding)}**{' ' if cause.fix else ''}{md_prose(cause.fix)}", ""]
    reasons = [f"- {md_prose(reason)}" for reason in document.reasons]
    lines += [f"**{md_prose(document.headline)}**", "", *reasons, *([""] if reasons else [])]
    for section in document.sections:
        lines += _md_section(section, document.marks, pictures)
    return "\n".join(lines)


def _md_section(section: Section, marks: str, pictures: Mapping[str, tuple[str, str]]) -> list[str]:
    lines = list[str]()
    if section.figures:
        headings = ["figure", "value", "95% interval", "ideal", "limit", "what it is"]
        rows = [[f.name, f.value.marked, f.ends, f.ideal, f.limit, f.about] for f in section.figures]
        lines += [*_md_table(headings, rows, ("limit", "what it is")), ""]
        lines += [md_escaped(marks), ""] if marks and section.has_marks else []
    lines += [line for sentence in section.about if sentence for line in (md_prose(sentence), "")]
    for status, finding, remedy in section.todo:
        lines.append(f"- **{md_escaped(finding)}** ({status}){': ' if remedy else ''}{md_escaped(remedy)}")
    lines += [""] if section.todo else []
    for table in section.tables:
        lines += [f"### {table.heading}", ""] if table.heading else []
        rows = [[cell.marked for cell in row] for row in table.rows]
        lines += [*_md_table(table.headings, rows, table.words), ""]
        lines += [md_escaped(marks), ""] if marks and table.has_marks else []
    for picture in section.pictures:
        lines += _md_picture(picture, pictures)
    if not lines and not (section.facts or section.code or section.items):
        return []
    lines += [f"- {md_escaped(name)}: {md_escaped(value)}" for name, value in section.facts]
    lines += ["```toml", section.code.rstrip(), "```"] if section.code else []
    lines += [f"- {md_prose(item)}" for item in section.items]
    lines += [""] if section.facts or section.code or section.items else []
    return [*([f"## {md_escaped(section.heading)}", ""] if section.heading else []), *lines]


def _md_picture(picture: Picture, pictures: Mapping[str, tuple[str, str]]) -> list[str]:
    if picture.name not in pictures:
        return []
    link, caption = pictures[picture.name]
    alt = f"{picture.name}: {md_escaped(picture.about)}" if picture.about else md_escaped(picture.panels[0].title)
    return [f"![{alt}]({link})", "", *([f"**{picture.name}**: {md_prose(caption)}", ""] if picture.about else [])]


def _md_table(headings: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[str]) -> list[str]:
    """A table whose first column and those of words stand on the left, numbers on the right."""
    sides = "".join("---|" if heading in words else "---:|" for heading in headings[1:])
    lines = ["| " + " | ".join(map(md_escaped, headings)) + " |", f"|---|{sides}"]
    return [*lines, *("| " + " | ".join(map(md_escaped, row)) + " |" for row in rows)]
