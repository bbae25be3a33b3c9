"""Rules files: TOML, YAML or JSON, each record one rule.

    defaults = true             # false: only what stands here

    [[rule]]
    metric = "k3_kl"
    max = 0.02                  # or min, or both; inclusive
    severity = "warn"           # fail unless said otherwise
    over = "groups"             # total, groups; both unless said otherwise
    absolute = false            # judge the value, not its size
    remedy = "Restart the rollout workers."

Several rules on one metric all hold: a warning at one value and a failure at another.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from rlcorr_cli.errors import UsageError, nearest, shortened
from rlcorr_cli.plans.files import load
from rlcorr_cli.results.judge import NamedRule, written
from rlcorr_cli.results.rule import Over, Severity

EXAMPLE = 'A rule is [[rule]], then metric = "kl" and max = 0.1 below it.'


@dataclass(frozen=True)
class RulesFile:
    """A file's rules, whether the default rules hold beside them, and the file's path (empty without a file)."""

    rules: tuple[NamedRule, ...] = ()
    defaults: bool = True
    path: str = ""


@dataclass(frozen=True)
class Key:
    """What a key of a rules file takes, in words and as a test."""

    takes: str
    fits: Callable[[Any], bool]


def _number(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def _one_of(allowed: tuple[str, ...]) -> Key:
    return Key(
        " or ".join(f'"{value}"' for value in allowed), lambda value: isinstance(value, str) and value in allowed
    )


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


FLAG = Key("true or false", lambda value: isinstance(value, bool))
NUMBER = Key("a finite number", _number)
TOP = {"defaults": FLAG, "rule": Key("a list of [[rule]] records", lambda value: isinstance(value, list))}
KEYS: dict[str, Key] = {
    "metric": Key("a metric's name", _text),
    "min": NUMBER,
    "max": NUMBER,
    "absolute": FLAG,
    "severity": _one_of(get_args(Severity)),
    "over": _one_of(get_args(Over)),
    "remedy": Key("a sentence", _text),
}
"""Key of a rule -> what it takes."""


def read_rules(path: str) -> RulesFile:
    """The rules in a file; an error names the rule's number and its key."""
    data, _ = load(path, "rules file", EXAMPLE)
    _checked(data, TOP, path)
    rules = tuple(_rule(record, f"{path}, rule {i}") for i, record in enumerate(data.get("rule", []), 1))
    return RulesFile(rules, data.get("defaults", True), path)


def _checked(data: Mapping[Any, Any], keys: Mapping[str, Key], where: str) -> None:
    for name, value in data.items():
        if name not in keys:
            close = nearest(name, keys, 1) if isinstance(name, str) else ", ".join(keys)
            raise UsageError(f"{where}: there is no key '{name}'.", f"Nearest: {close}. Keys: {', '.join(keys)}.")
        if not keys[name].fits(value):
            raise UsageError(f"{where}: {name} must be {keys[name].takes}, got {shortened(value)}.", EXAMPLE)


def _rule(data: Any, where: str) -> NamedRule:
    if not isinstance(data, Mapping):
        raise UsageError(f"{where} is {shortened(data)}, not a record.", EXAMPLE)
    _checked(data, KEYS, where)
    low, high = data.get("min"), data.get("max")
    if "metric" not in data:
        raise UsageError(f"{where} names no metric.", EXAMPLE)
    if low is None and high is None:
        raise UsageError(f"{where}: {data['metric']} has neither min nor max.", EXAMPLE)
    if low is not None and high is not None and low > high:
        raise UsageError(f"{where}: min {low:g} is above max {high:g}.", "Nothing lies between them: swap them.")
    more = {key: data[key] for key in ("absolute", "severity", "over", "remedy") if key in data}
    return NamedRule(written(data["metric"].strip(), low, high, **more), where)
