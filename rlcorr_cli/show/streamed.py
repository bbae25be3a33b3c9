"""JSON documents with one long list, made piece by piece: as text they are larger than the values they are made of."""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any


def pieces(
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
