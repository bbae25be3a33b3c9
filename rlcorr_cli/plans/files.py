"""Plan files: TOML, YAML, JSON or a launch script as plain data, and rlcorr's own records in them as a Plan.

Frameworks' configs are known by their keys (`frameworks/`).

Our own (see `Plan.to_dict`), to which a block `objective` may be added (see `ObjectiveBlock`):

    name = "mine"
    [weighting]
    scope = "token"
    high = 2.0
    [[rejections]]
    statistic = "ratio"
    scope = "seq_mean"
    low = 0.999
    high = 1.001

A YAML threshold such as 0.5_2 without quotes is the number 0.52 to every YAML reader, the trainer's too; it is taken
so and noted with its line.  1e-4, which PyYAML alone reads as text, is a number, as it is to OmegaConf.
"""

import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from rlcorr_cli.errors import UsageError, not_one_of, shortened
from rlcorr_cli.files import located
from rlcorr_cli.plans import documents
from rlcorr_cli.plans.objective import Aggregation, Denominator, ObjectiveBlock, ObjectiveChoice
from rlcorr_cli.plans.plan import Bounds, Budget, Plan, Rejection, Weighting
from rlcorr_cli.records.record import Record

OBJECTIVE_KEYS = tuple(each.name for each in fields(ObjectiveBlock))
OBJECTIVE_CHOICES: Mapping[str, tuple[str, ...]] = {
    "name": get_args(ObjectiveChoice),
    "aggregation": get_args(Aggregation),
    "denominator": get_args(Denominator),
}
MOST_DOTS = 100
"""Of a line of TOML: the time that tomllib takes grows with the square of a dotted key's length."""

SUFFIXES = (".toml", ".yaml", ".yml", ".json", ".sh")
FAULTS = 5
"""How many of a file's faults an error names."""
_ENDS = tuple(each.name for each in fields(Bounds))
RECORDS = "`rlcorr presets geo_rs` shows the records of a plan."


def plan_to_toml(plan: Plan) -> str:
    """A plan file of our own records that reads back as the same plan."""
    data = plan.to_dict()
    weighting, rejections, budgets = data.pop("weighting"), data.pop("rejections"), data.pop("budgets")
    if plan.log_ratio_limit is None:
        data["log_ratio_limit"] = math.inf  # TOML has no null
    tables = [("", data), *([("[weighting]", weighting)] if weighting else [])]
    tables += [("[[rejections]]", record) for record in rejections] + [("[[budgets]]", record) for record in budgets]
    parts = [
        "\n".join([head] * bool(head) + [_toml_line(*item) for item in table.items() if item[1] is not None])
        for head, table in tables
    ]
    return "\n\n".join(parts) + "\n"


def _toml_line(key: str, value: Any) -> str:
    """One line of TOML; strings and numbers are written as in JSON, which knows no infinity."""
    return f"{key} = {'inf' if value == math.inf else json.dumps(value)}"


def load(path: str, what: str = "plan file", records: str = RECORDS) -> tuple[dict[str, Any], tuple[str, ...]]:
    """A mapping from a TOML, YAML or JSON file, or a launch script, by suffix, and notes on scalars that may not mean
    what they show.

    path: of the disk, or a URI.  what: the kind of file, for messages.  records: the hint for a file that holds no
    mapping.
    """
    suffix = Path(located(path)).suffix.lower()
    if suffix not in SUFFIXES:
        raise UsageError(f"{path}: cannot tell a {what}'s format.", "Call it .toml, .yaml or .json.")
    try:
        text = documents.read_text(path)
    except UsageError as error:
        raise UsageError(f"Cannot read the {what} {path}: {error.what}", error.do) from None
    try:
        document = parse(text, suffix)
    except UsageError as error:
        raise UsageError(f"{path}: {error.what}", error.do) from None
    if not isinstance(document.data, dict):
        raise UsageError(f"{path} holds no mapping of options.", records)
    return document.data, document.notes


def objective_block(data: Any) -> ObjectiveBlock:
    """The `objective` block of a plan file; a UsageError of the first key that is none, or whose value cannot be."""
    if not isinstance(data, Mapping):
        raise UsageError("objective: a block holds keys and values.", "See `rlcorr help objectives`.")
    for key, value in data.items():
        choices = OBJECTIVE_CHOICES.get(key)
        if key not in OBJECTIVE_KEYS:
            raise UsageError(
                f"objective.{shortened(key, quotes=False)} is no key of the block.",
                f"Keys: {', '.join(OBJECTIVE_KEYS)}.",
            )
        if choices is not None and value not in choices:
            raise not_one_of(f"objective.{key}", value, choices)
        if choices is None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise UsageError(
                f"objective.{key} should be a number, not {shortened(value)}.", "Leave it out for the default."
            )
    return ObjectiveBlock(**data)


def parse(text: str, suffix: str) -> documents.Document:
    """What a text in TOML, YAML or JSON, or a launch script, holds, as plain values within the limits."""
    try:
        if suffix == ".toml":
            document = documents.Document(_toml(text))
        elif suffix == ".json":
            document = documents.Document(documents.parse_json(text))
        elif suffix == ".sh":
            from rlcorr_cli.plans.yaml_files import parse_script

            document = parse_script(text)
        else:
            # Here, not above: presets and explain read no YAML, and it takes time to load.
            from rlcorr_cli.plans.yaml_files import parse_yaml

            document = parse_yaml(text)
    except RecursionError:
        raise documents.too_deep() from None
    _check_size(document.data)
    return document


def _toml(text: str) -> dict[str, Any]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.count(".") > MOST_DOTS:
            raise UsageError(f"line {number} has more than {MOST_DOTS} dots.", "Write a dotted key as tables.")
    try:
        return tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, or an integer of too many digits
        if again := re.match(r"Cannot overwrite a value \(at (?:line (\d+)|end of document)", str(error)):
            lines = text.rstrip().splitlines()
            number = int(again[1] or len(lines))
            key, equals, _ = lines[number - 1].partition("=")
            if equals:
                raise documents.twice(key.strip(), number) from None
        raise documents.not_valid("TOML", error) from None


def _check_size(data: Any) -> None:
    """Refuse values that are more, deeper or larger than the limits."""
    for n_values, (depth, value) in enumerate(_walk(data), 1):
        if n_values > documents.MOST_VALUES:
            raise documents.too_many()
        if depth > documents.MOST_DEPTH:
            raise documents.too_deep()
        if isinstance(value, int) and abs(value) > documents.LARGEST_INTEGER:
            raise documents.too_large()


def _walk(data: Any) -> Iterator[tuple[int, Any]]:
    """Every key and value with its depth, without recursion."""
    waiting: list[tuple[int, Any]] = [(1, data)]
    while waiting:
        depth, value = waiting.pop()
        yield depth, value
        if isinstance(value, dict):
            waiting += [(depth + 1, part) for pair in value.items() for part in pair]
        elif isinstance(value, (list, tuple, set)):
            waiting += [(depth + 1, part) for part in value]


_TABLES: Mapping[str, type[Record]] = {"weighting": Weighting, "rejections": Rejection, "budgets": Budget}
"""Key of a plan file -> whose table, or tables, stand there."""


def plan_from_dict(data: Mapping[str, Any]) -> Plan:
    """A plan from our own records; a UsageError names what is no key, or the first value that cannot be, by its place.

    A table's `low` and `high` are its `bounds`.  TOML has no null, so there infinity stands for no limit.
    """
    # Here, not above: presets and explain read no plan file.
    import msgspec

    if unknown := list(_unknown_keys(data)):
        more = f"; and {len(unknown) - FAULTS:,} more" if len(unknown) > FAULTS else ""
        places = ", ".join(shortened(place, quotes=False) for place in unknown[:FAULTS])
        raise _no_plan(f"no such key: {places}{more}")
    values = {key: _with_bounds(value) if key in _TABLES else value for key, value in data.items()}
    if values.get("log_ratio_limit") == math.inf:
        values["log_ratio_limit"] = None
    try:
        return msgspec.convert(values, Plan)
    except UnicodeEncodeError as error:  # of one that is held against a plan's choices
        raise _no_plan(f"{shortened(error.object)} is no text of whole characters") from None
    except msgspec.ValidationError as error:
        fault, _, at = str(error).partition(" - at `$.")
        place = at.rstrip("`").replace(".bounds", "")
        table, _, key = re.sub(r"\[\d+\]", "", place).rpartition(".")
        if fault.startswith("Invalid enum value"):
            allowed = ", ".join(get_args(get_type_hints(_TABLES.get(table, Plan))[key]))
            fault = shortened(fault.replace("Invalid enum value", f"one of {allowed} was expected, not"), quotes=False)
        raise _no_plan(f"{place}: {fault}" if place else fault) from None


def _no_plan(fault: str) -> UsageError:
    return UsageError(f"not a plan: {fault}.", "`rlcorr presets show geo_rs` shows what a plan file looks like.")


def _with_bounds(table: Any) -> Any:
    """A table, or each of several, with what `low` and `high` say as `bounds`."""
    if isinstance(table, list):
        return [_with_bounds(each) for each in table]
    if not isinstance(table, Mapping):
        return table
    return {**table, "bounds": {end: table[end] for end in _ENDS if end in table}}


def _unknown_keys(data: Mapping[str, Any], of: type[Record] = Plan, place: str = "") -> Iterator[str]:
    """The places of keys that no record has."""
    known = {key for each in fields(of) for key in (_ENDS if each.name == "bounds" else (each.name,))}
    for key, value in data.items():
        if key not in known:
            yield f"{place}{key}"
        for n, table in enumerate(value if isinstance(value, list) else [value]):
            if key in _TABLES and isinstance(table, Mapping):
                number = f"[{n}]" if isinstance(value, list) else ""
                yield from _unknown_keys(table, _TABLES[key], f"{place}{key}{number}.")
