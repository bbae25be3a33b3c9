"""What a framework is here: how its config is known and read as a plan, and, of some, its own numbers of our totals.

First the options of a config: numbers, flags and choices read from it, and what is refused.  Then Framework, of which
each of the other modules makes one for every release that it knows; the table of all is in `read.py`.  Last statistics
over sequences that count those without a valid token, as verl and slime do: rlcorr's own leave such rows out, and
without any valid token at all there is no statistic, None.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, TypeVar, overload

from rlcorr_cli.errors import UsageError, contradiction, nearest, shortened
from rlcorr_cli.frozen import frozen
from rlcorr_cli.plans.objective import ObjectiveName
from rlcorr_cli.plans.plan import STATISTICS, Bounds, Plan, Rejection, Scope, veto
from rlcorr_cli.totals.limits import exp
from rlcorr_cli.totals.view import BatchMean, Numbers, StatisticFamily, Value, Values

Option = TypeVar("Option", bound=str)
Path = tuple[str, ...]
CLOSE = 0.85
"""How like one of ours a key among others' must be to count as a misspelling of it."""


class Config(dict[str, Any]):
    """A framework's options as they were written.

    Each method reads one as a kind of value; a value of another kind is a UsageError that names the option.
    """

    def check_keys(self, keys: tuple[str, ...], framework: str) -> None:
        """Refuse keys that the framework does not know, by an error that names the nearest."""
        for key in self:
            if key not in keys:
                raise UsageError(f"{framework} has no option '{key}'.", f"Nearest: {nearest(str(key), keys)}.")

    def first_key(self, keys: tuple[str, ...]) -> str | None:
        """The first of some options that are there, if only as null."""
        return next((key for key in keys if key in self), None)

    def number(self, key: str, default: float | None = None) -> float | None:
        """A finite number or None; strings of digits count, 'nan' and booleans do not."""
        value = self.get(key, default)
        if value is None:
            return None
        try:
            result = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            result = math.nan
        if not math.isfinite(result):
            raise UsageError(f"{key} must be a finite number, got {shortened(value)}.", "Use null for no bound.")
        return result

    def positive(self, key: str, default: float | None = None) -> float | None:
        """A number above 0, or None."""
        value = self.number(key, default)
        if value is not None and value <= 0:
            raise UsageError(f"{key} must be positive, got {value:g}.", "Use null to switch it off.")
        return value

    def around_one(self, what: str, high_key: str, low_key: str, default: float | None = 2.0) -> Bounds:
        """A ratio's bounds: a high one, which `what` needs, and a low one, 1 / high where it is not given."""
        high = self.positive(high_key, default)
        if high is None:
            raise UsageError(f"{what} needs {high_key}.", f"For example {high_key}: 2.0.")
        low = self.number(low_key)
        return Bounds(1 / high if low is None else low, high)

    def vetoes(self, key: str) -> tuple[Rejection, ...]:
        """The veto at a threshold; none where that is null or left out."""
        threshold = self.positive(key)
        return () if threshold is None else (veto(threshold),)

    def flag(self, key: str, default: bool = False) -> bool:
        """The option's true or false."""
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise UsageError(f"{key} must be true or false, got {shortened(value)}.", "Write it without quotes.")
        return value

    @overload
    def choice(self, key: str, allowed: tuple[Option, ...], default: Option) -> Option: ...
    @overload
    def choice(self, key: str, allowed: tuple[Option, ...], default: None = None) -> Option | None: ...
    def choice(self, key: str, allowed: tuple[Option, ...], default: Option | None = None) -> Option | None:
        """One of `allowed`; the default where the option is null or left out."""
        value = self.get(key)
        if value is None:
            return default
        if value in allowed:
            return value
        raise UsageError(
            f"{key} must be one of {', '.join(allowed)}, got {shortened(value)}.", "Use null to switch it off."
        )


def key_of(table: Mapping[Option, Any], value: object) -> Option | None:
    """What a framework calls one of our values, by the table that it is read with; None where it has no name for it."""
    return next((key for key, each in table.items() if each == value), None)


DIGITS = 9
"""Significant digits of a bound that is written, and in which bounds are compared: those of a ratio and of its log are
not each other's to the last."""


def scalar(value: Any) -> str:
    """A value of a config in YAML: numbers without an exponent, which PyYAML takes for text; text that looks like a
    number in quotes."""
    match value:
        case None:
            return "null"
        case {}:
            return "{}"
        case bool():
            return "true" if value else "false"
        case float():
            text = format(Decimal(f"{value:.{DIGITS + 1}g}"), "f")
            return text if "." in text else f"{text}.0"
        case list():
            return f"[{', '.join(map(scalar, value))}]"
        case str() if value[:1].isdigit() or "," in value:
            return f'"{value}"'
        case _:
            return str(value)


def under(path: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options under a dotted path."""
    first, *rest = path.split(".")
    return {first: under(".".join(rest), options) if rest else options}


def outliers(low: float | None, high: float | None, names: tuple[str, str]) -> tuple[Rejection, ...]:
    """Reject a sequence with any token's ratio below low or above high, each where it is one.  names: of the two."""
    below = () if not low else (Rejection("ratio", "seq_min", Bounds(low, None), names[0]),)
    above = () if high is None else (Rejection("ratio", "seq_max", Bounds(None, high), names[1]),)
    return below + above


def outlier_options(plan: Plan, stem: str) -> dict[str, Any]:
    """The same, of a plan, as options of that stem, _low and _high."""
    rejections = rejections_by(plan)
    lows, highs = rejections.get(("ratio", "seq_min")), rejections.get(("ratio", "seq_max"))
    low = {} if lows is None else {f"{stem}_low": lows.bounds.low}
    return low | ({} if highs is None else {f"{stem}_high": highs.bounds.high})


def rejections_by(plan: Plan) -> dict[tuple[str, Scope], Rejection]:
    """A plan's rejections by statistic and scope, of which a framework picks those that it has options for."""
    return {(each.statistic, each.scope): each for each in plan.rejections}


def meaning(plan: Plan) -> object:
    """What a plan does to tokens whose log-ratio is far from any limit, whatever its records are called."""
    weighting = plan.weighting
    weights: object = None
    if weighting is not None:
        low, high = weighting.bounds.low or None, weighting.bounds.high
        outside = "clamp" if (low, high) == (None, None) or weighting.outside == "cap" else weighting.outside
        low = None if weighting.outside == "cap" else low
        of = "mismatch" if plan.mode == "bypass" else weighting.of
        weights = (weighting.scope, _rounded(low), _rounded(high), outside, weighting.normalize, of, weighting.gate)
    rejections = sorted(repr(_rejection(each, plan)) for each in plan.rejections)
    budgets = sorted(repr((each.statistic, each.mean_below, each.of)) for each in plan.budgets)
    return weights, rejections, budgets, plan.mode, plan.loss


def _rejection(rejection: Rejection, plan: Plan) -> tuple[object, ...]:
    statistic, low, high = rejection.statistic, rejection.bounds.low, rejection.bounds.high
    if statistic in ("k1", "log_ratio") and rejection.scope in ("token", "seq_sum", "seq_mean"):
        if statistic == "k1":
            low, high = (None if high is None else -high), (None if low is None else -low)
        statistic, low, high = "ratio", *(None if end is None else exp(end) for end in (low, high))
    of = "mismatch" if plan.mode == "bypass" else rejection.of
    low = None if STATISTICS[statistic].nonnegative and not low else low
    acts = (of, rejection.gate, rejection.gates_tokens, rejection.applied)
    return (statistic, rejection.scope, _rounded(low), _rounded(high), *acts)


def _rounded(bound: float | None) -> float | None:
    return None if bound is None else float(f"{bound:.{DIGITS}g}")


def _nothing(*_: object) -> tuple[str, ...]:
    return ()


def no_numbers(numbers: Numbers, plan: Plan) -> Values:
    """Of a framework whose numbers rlcorr does not compute: its reports have rlcorr's own alone."""
    return {}


_OTHER_LOSSES: tuple[ObjectiveName, ...] = ("gspo", "cispo", "sapo", "dro", "reinforce")
_ALIASES = {"sequence": "gspo", "seq": "gspo", "gpg": "reinforce"}
"""What frameworks call objectives: the level of a ratio, and verl's plain policy gradient."""


@frozen
class Switch:
    """An option that stands beside a framework's own and decides what these mean, such as the loss of a run.

    reads: values under which the framework's own are read as they stand, apart by spaces.  refuses: values under which
    they are something that no plan here is, in the same way -> what.
    """

    reads: str = ""
    refuses: Mapping[str, str] = field(default_factory=dict)

    def objective(self, framework: str, key: str, value: object) -> ObjectiveName | None:
        """The objective of a value, if it is not the plan's; a UsageError if the framework's own options cannot be read
        beside it, or if it is not known."""
        text = str(value).lower() if isinstance(value, bool) else str(value)
        reasons = {name: reason for names, reason in self.refuses.items() for name in names.split()}
        if text in self.reads.split():
            return next((name for name in _OTHER_LOSSES if name == _ALIASES.get(text, text)), None)
        option = f"{framework}'s {key}: {shortened(text, quotes=False)}"
        if text in reasons:
            hint = f"Leave {key} out to read the other options without it, or write the correction as ⟦is_⟧ and ⟦rs⟧."
            raise UsageError(f"{option} cannot be read as a plan: {reasons[text]}.", hint)
        known = [*self.reads.split(), *reasons]
        hint = f"Nearest: {nearest(text, known)}." if known else f"Leave {key} out."
        raise UsageError(f"{option} is not known here, and may change what its other options mean.", hint)


@frozen(kw_only=True)
class Framework:
    """One framework, or one release of it: its config -> Plan, and our totals -> its metrics where it has a `write`.

    One with a `write` is a profile: --profile names it, and all that stands in its block must be its own.  Others are
    known by their keys, also within the config of a whole run.

    keys: those that are read.  blocks: where they stand, beside the top level.  own: blocks that hold nothing else, so
    that an unknown key there is an error; elsewhere only one that looks like a misspelling is.  shared: those of `own`
    whose name is an option of another framework, too: they are there where they hold options.  common: keys that, at
    the top level, do not tell whose config it is.  outside: keys that do not stand in `own`.  others: keys that look
    like one of `keys` and mean something else.
    switches: keys that are no part of its correction, but decide what that means.  family: a pattern of how the names
    of its correction's options begin; one of them that is not known may change what the others mean, and is refused.
    signs: switches that tell the framework where they are set.
    write: totals and a plan that `read` made -> the framework's metrics, by its names.
    to_plan: its options -> the plan that they mean.
    to_config: a plan -> the options that come nearest to it, which `write.py` holds to be read as the plan again.
    toml: whether its config is TOML, where others' is YAML.  flags: whether its command line takes options as flags of
    their dotted names.
    batch_mean: what it divides weights by where the plan normalises them.
    by_rollout: whether it averages over rollouts, where a dump tells which sample is of which.
    Three kinds of notes.  notes: what a user of such a plan should know about the framework.  config_notes: what a
    config says that shows in no plan.  remarks: what a report of its numbers should say: what the data made of them,
    and how far the release's own may lie from them.
    needs: what must be on in its config beside the lines of any plan.
    """

    name: str
    keys: tuple[str, ...]
    blocks: tuple[Path, ...] = ()
    to_plan: Callable[[Config], Plan]
    own: tuple[Path, ...] = ()
    shared: tuple[Path, ...] = ()
    common: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    switches: Mapping[str, Switch] = field(default_factory=dict)
    family: str = "(?!)"
    signs: tuple[str, ...] = ()
    write: Callable[[Numbers, Plan], Values] = no_numbers
    to_config: Callable[[Plan], Mapping[str, Any] | None] = lambda plan: None
    toml: bool = False
    flags: bool = False
    batch_mean: BatchMean = field(default_factory=BatchMean)
    by_rollout: bool = False
    notes: Callable[[Plan], tuple[str, ...]] = _nothing
    config_notes: Callable[[Config], tuple[str, ...]] = _nothing
    needs: str = ""
    remarks: Callable[[Numbers, Plan], tuple[str, ...]] = _nothing

    @property
    def is_profile(self) -> bool:
        """Whether its own numbers can be had."""
        return self.write is not no_numbers

    @property
    def _places(self) -> tuple[Path, ...]:
        """Where its options may stand, beside the top level."""
        return (*self.own, *self.blocks)

    def knows(self, data: Mapping[str, Any]) -> bool:
        """Whether a config has any of the framework's keys at its place."""
        if any(key in self.keys and key not in self.common for key in data):
            return True
        if self.is_signed(data):
            return True
        places = (path for path in self.own if path not in self.shared or isinstance(_value(data, path), Mapping))
        own = any(_is_there(data, path) for path in places)
        return own or any(key in self.keys for path in self.blocks for key in _at(data, path))

    def is_signed(self, data: Mapping[str, Any]) -> bool:
        """Whether a switch that no other framework has tells whose config it is."""
        return any(data.get(key) is not None for key in self.signs)

    def read(self, options: Mapping[str, Any]) -> Plan:
        """The plan that its options mean; a UsageError where they mean none."""
        return self.to_plan(Config(options))

    def options(self, data: Mapping[str, Any]) -> Config:
        """The framework's options in a config; a key that is not its own, or contradicts another, is a UsageError."""
        return Config(self._only_block(data) if self.is_profile else self._all_blocks(data))

    def _only_block(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Those under the first of its blocks that has any, else those at top level."""
        for path in self.blocks:
            inner = _value(data, path)
            if isinstance(inner, Mapping) and any(key in self.keys for key in inner):
                block = {str(key): value for key, value in inner.items()}
                # A whole trainer config's block holds options of other parts, too; a correction block does not.
                return {k: v for k, v in block.items() if k in self.keys} if path == ("algorithm",) else block
        if data and not any(key in self.keys for key in data):
            where = " or ".join(".".join(path) for path in self.blocks)
            raise UsageError(
                f"there is no option of {self.name} in it.", f"They are looked for under {where}, and at top level."
            )
        return data

    def _all_blocks(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Those of all its blocks together."""
        options: dict[str, Any] = {}
        for path in (*self._places, ()):
            block = _at(data, path)
            self._check(block, path)
            # At the top level such a key belongs to something else, once the peer's own block has been found.
            left = self.common if path == () and options else ()
            for key in (key for key in self.keys if key in block and key not in left):
                if key in options and options[key] != block[key]:
                    first, second = (f"{key}: {shortened(value)}" for value in (options[key], block[key]))
                    raise contradiction(first, second, "Keep it in one place.")
                options[key] = block[key]
        return options

    def objectives(self, data: Mapping[str, Any]) -> dict[str, ObjectiveName]:
        """The objectives that switches choose, by their options; a UsageError where a switch, or an option of the
        correction that is not known, changes what the others mean."""
        chosen: dict[str, ObjectiveName] = {}
        for path in (*self._places, ()):
            block = {key: value for key, value in _at(data, path).items() if value is not None}
            for key in (key for key in self.switches if key in block):
                name = self.switches[key].objective(self.name, key, block[key])
                if name:
                    chosen[f"{key}: {block[key]}"] = name
            for key in (str(key) for key, value in block.items() if not (value is False or isinstance(value, Mapping))):
                if key not in (*self.keys, *self.others, *self.switches) and re.match(self.family, key):
                    raise UsageError(
                        f"{self.name}'s {key} is not known here, and may change what its other options mean.",
                        f"Nearest: {nearest(key, self.keys)}; or leave it out.",
                    )
        return chosen

    def unread(self, data: Mapping[str, Any]) -> tuple[str, ...]:
        """The options that stand beside its own and are not read, by their dotted names, those first that share words
        with its own; blocks are others' parts."""
        words = {word for key in self.keys for word in key.split("_")}
        names: list[str] = []
        for path in (*self._places, ()):
            block = _at(data, path)
            if not any(key in self.keys for key in block):
                continue
            for key in (key for key, value in block.items() if not isinstance(value, Mapping)):
                is_block = any(_under(str(key), at) for at in self._places)
                if key not in (*self.keys, *self.others) and not is_block:
                    names.append(".".join((*path, str(key))))
        names.sort(key=lambda name: -len(words & set(name.rpartition(".")[2].split("_"))))
        return tuple(dict.fromkeys(names))

    def _check(self, block: Mapping[str, Any], path: tuple[str, ...]) -> None:
        for key in map(str, block):
            known = (*self.keys, *self.others)
            if (key in known and not (path in self.own and key in self.outside)) or (
                path == () and any(key == at[0] or _under(key, at) for at in self._places)
            ):
                continue
            if path in self.own or get_close_matches(key, self.keys, 1, CLOSE):
                where = f" under {'.'.join(path)}" if path else ""
                raise UsageError(f"{self.name} has no option '{key}'{where}.", f"Nearest: {nearest(key, self.keys)}.")


def _is_there(data: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    """Whether a config has something, if only null, at a path.  What is not a block of options is a UsageError."""
    inner: Any = data
    for key in path:
        if not isinstance(inner, Mapping) or key not in inner:
            return bool(_at(data, path))
        inner = inner[key]
    if inner is not None and not isinstance(inner, Mapping):
        raise UsageError(
            f"{'.'.join(path)} must be a block of options, got {shortened(inner)}.", "Leave it out for none."
        )
    return True


def _at(data: Mapping[str, Any], path: tuple[str, ...]) -> Mapping[str, Any]:
    """The block at a path; empty where there is none.  'a.b.c' as one key is the same place."""
    inner = _value(data, path)
    dotted = {str(k).removeprefix(".".join(path) + "."): v for k, v in data.items() if _under(str(k), path)}
    return {**dotted, **inner} if isinstance(inner, Mapping) else dotted


def _value(data: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """What stands at a path; None where nothing does."""
    inner: Any = data
    for key in path:
        inner = inner.get(key) if isinstance(inner, Mapping) else None
    return inner


def _under(key: str, path: tuple[str, ...]) -> bool:
    return bool(path) and key.startswith(".".join(path) + ".")


def with_empty(mean: Value, numbers: Numbers, value: float) -> Value:
    """A mean over non-empty sequences with the empty ones counted in at `value`."""
    if mean is None:
        return None
    n, empty = numbers.sequences, numbers.sum("empty")
    return (mean * n + value * empty) / (n + empty)


def std_with_empty(family: StatisticFamily, numbers: Numbers, value: float) -> Value:
    """Sample standard deviation of the sequences' means with the empty ones counted in at `value`; 0.0 of one row."""
    n, empty = numbers.sequences, numbers.sum("empty")
    rows = n + empty
    if not n:
        return None
    if rows < 2:
        return 0.0
    mean = (numbers.sum(f"{family.prefix}seq") + empty * value) / rows
    deviation = numbers.sum(f"{family.prefix}seq_dev") + empty * (value - family.centre) ** 2
    return math.sqrt(max(deviation - rows * (mean - family.centre) ** 2, 0.0) / (rows - 1))


def extreme(value: Value, numbers: Numbers, at_empty: float, pick: Callable[[float, float], float]) -> Value:
    """A minimum or maximum over sequences with an empty one's value considered too."""
    return value if value is None or not numbers.sum("empty") else pick(value, at_empty)


def counted_empty(numbers: Numbers, framework: str, counted: str) -> tuple[str, ...]:
    """A remark on rows without a valid token, where there are any."""
    empty = int(numbers.sum("empty"))
    if not empty:
        return ()
    return (f"Rows without a valid token: {empty:,}; {framework} counts each as {counted}.",)
