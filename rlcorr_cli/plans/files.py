"""Plan files: TOML, YAML or JSON as plain data, and rlcorr's own records in them as a Plan.

verl's and slime's configs are read with their profile; other frameworks' are known by their keys (`frameworks/`).

Our own (see `Plan.to_dict`):

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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlcorr_cli.errors import UsageError
from rlcorr_cli.plans.plan import Plan

RECORDS = "See `rlcorr presets` for the records of a plan."

TRAINER_KEYS = ("algorithm", "rollout_correction", "rollout_is", "rollout_rs", "use_tis", "tis_level")
"""Keys that tell that a file is the config of a trainer whose profile reads it, and no plan file."""


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


def load(path: Path, what: str = "plan file", records: str = RECORDS) -> tuple[dict[str, Any], list[str]]:
    """A mapping from a TOML, YAML or JSON file, by suffix, and notes on scalars that may not mean what they show.

    what: the kind of file, for messages.  records: the hint for a file that holds no mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"Cannot read the {what} {path}: {reason}.", "Name a TOML, YAML or JSON file.") from None
    suffix = path.suffix.lower()
    if suffix not in (".toml", ".yaml", ".yml", ".json"):
        raise UsageError(f"{path}: cannot tell a {what}'s format.", "Call it .toml, .yaml or .json.")
    try:
        notes: list[str] = []
        if suffix == ".toml":
            data = tomllib.loads(text)
        elif suffix == ".json":
            data = json.loads(text)
        else:
            data, notes = _load_yaml(text)
    except (ValueError, RecursionError) as error:  # tomllib's and json's errors are ValueErrors, and so is _load_yaml's
        raise UsageError(f"{path} is not valid {suffix[1:].upper()}: {error}.", "Fix the file.") from None
    if not isinstance(data, dict):
        raise UsageError(f"{path} holds no mapping of options.", records)
    return data, notes


def plan_from_dict(data: Mapping[str, Any]) -> Plan:
    """A plan from our own records; every wrong key and type is reported at once, with its path."""
    # Here, not above: pydantic takes longer to load than a light command takes to run.
    from pydantic import ValidationError

    from rlcorr_cli.plans.records import PlanRecord

    try:
        record = PlanRecord.model_validate(data)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg'].lower()}" for e in error.errors())
        of_trainer = any(key in data for key in TRAINER_KEYS)
        hint = "A config of verl or slime needs its --profile (verl-0.6, verl-0.9, slime, ...)."
        raise UsageError(
            f"not a plan: {faults}.",
            hint if of_trainer else "`rlcorr presets show geo_rs` shows what a plan file looks like.",
        ) from None
    return record.plan()


def _load_yaml(text: str) -> tuple[Any, list[str]]:
    """What a YAML text holds, and a note for every scalar that may not mean what it shows."""
    import yaml

    class Loader(yaml.SafeLoader):
        """SafeLoader that reads 1e-4 as a number, as YAML 1.2 and OmegaConf do."""

    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
    )
    try:
        notes = [
            f"line {token.start_mark.line + 1}: {token.value} without quotes is the number "
            f"{yaml.load(token.value, Loader):g}, to the trainer as well; quote it if two bounds are meant."
            for token in yaml.scan(text)
            if isinstance(token, yaml.ScalarToken)
            and token.plain
            and re.fullmatch(r"[0-9.]+_[0-9_.]+", token.value)
            and isinstance(yaml.load(token.value, Loader), int | float)
        ]
        return yaml.load(text, Loader), notes
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
