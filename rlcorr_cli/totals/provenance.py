"""What totals are of: the plan, settings and columns that they came by, and the shards that they cover.

Names alone do not tell totals apart: a plan that clamps at 2 and one that zeroes outside [0.5, 9] have equally many
weights of the same name.  So totals carry a Provenance, and add only to totals of an equal one.
"""

from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.frozen import frozen
from rlcorr_cli.plans.plan import Plan

SCHEMA = 5
"""Goes up whenever a total comes to mean something else."""
_SHOWN = 6
_WHOLE_FILE = (0, 1 << 62)


@dataclass(frozen=True, order=True)
class ShardId:
    """One part of one input: part is a range (first, past the last) of it, None the whole of it."""

    path: str
    part: tuple[int, int] | None = None


@frozen(kw_only=True)
class Provenance:
    """plans: by their ids.  settings: what a user may set and totals depend on, by name.  columns:
    canonical name -> the dump's.  batch: the column that a group's key begins with, None where all rows are one
    training batch.  groups: the columns of the key's other values, in order.  adds_step: whether the step was added to
    these, as the last, without being asked for.  is_pooled: whether it had too many values, and was left out again.
    seed: of the bootstrap; None without one.  budget_bounds: a digest of what the data set; "" without budgets.
    """

    plans: Mapping[str, Plan]
    settings: Mapping[str, float | bool | str | None]
    columns: Mapping[str, str]
    batch: str | None = None
    groups: tuple[str, ...] = ()
    adds_step: bool = False
    is_pooled: bool = False
    seed: int | None = None
    budget_bounds: str = ""
    schema: int = SCHEMA

    @staticmethod
    def by_id(*plans: Plan) -> dict[str, Plan]:
        """`plans` of these plans; their names are left out, as they are of ids."""
        return {plan.id: replace(plan, name="custom") for plan in plans}

    @property
    def asked_groups(self) -> tuple[str, ...]:
        """The columns that were asked for; where there are none, the step that was added."""
        return self.groups[:-1] if self.adds_step and len(self.groups) > 1 else self.groups

    @property
    def without_step(self) -> "Provenance":
        """The same without the step that was added."""
        return replace(self, groups=self.groups[:-1], adds_step=False, is_pooled=True) if self.adds_step else self

    def check_same(self, other: "Provenance") -> None:
        """A UsageError that names what differs, as either side has it."""
        refuse_differing(self.differences(other))

    def differences(self, other: "Provenance", sides: tuple[str, str] = ("one", "the other")) -> list[str]:
        """What differs, each in a clause; of a record that one side alone has, only that."""
        # The records say what the ids stand for.
        if self is other or (self.plans.keys() == other.plans.keys() and self.facts == other.facts):
            return []
        mine, theirs = self.described, other.described
        here, there = sides
        owner = dict.fromkeys(_records_of(mine) - _records_of(theirs), here)
        owner |= dict.fromkeys(_records_of(theirs) - _records_of(mine), there)
        clauses: dict[str, None] = {}
        for name in dict.fromkeys((*mine, *theirs)):
            record, my_value, their_value = name.rpartition(".")[0], mine.get(name), theirs.get(name)
            if record in owner:
                clauses[f"{record} is in {owner[record]} alone"] = None
            elif my_value != their_value:
                clauses[f"{name} is {_in_words(my_value)} in {here} and {_in_words(their_value)} in {there}"] = None
        return list(clauses)

    def places_of(self, columns: Sequence[str]) -> list[int]:
        """Where some of the columns of the groups stand in their keys; a UsageError of one that they lack."""
        if lacking := [name for name in columns if name not in self.groups]:
            by = f"grouped by {', '.join(self.groups)} alone" if self.groups else "of the whole dump alone"
            raise UsageError(f"⟦group_by {lacking[0]}⟧: these totals are {by}.", "Group when the totals are made.")
        return [self.groups.index(name) for name in columns]

    @property
    def facts(self) -> dict[str, Any]:
        """Everything but the plans."""
        return {
            "batch column": self.batch,
            "groups": ", ".join(self.groups),
            "seed": self.seed,
            "budget bounds": self.budget_bounds,
            "schema": self.schema,
            **_flat(self.settings),
            **_flat(self.columns, "columns."),
        }

    @property
    def described(self) -> dict[str, Any]:
        """All of it, plans, too, by name."""
        plans = [
            {name: value for name, value in plan.to_dict().items() if name != "name"} for plan in self.plans.values()
        ]
        prefixes = [""] if len(plans) == 1 else [f"plan {number}: " for number in range(1, len(plans) + 1)]
        flat = [_flat(plan, prefix) for prefix, plan in zip(prefixes, plans, strict=True)]
        return {name: value for part in flat for name, value in part.items()} | self.facts


def refuse_differing(differences: Sequence[str], which: str = "These totals") -> None:
    """A UsageError of what keeps some totals from being added, if anything does."""
    if not differences:
        return
    more = f"; and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
    raise UsageError(
        f"{which} cannot be added: {'; '.join(differences[:_SHOWN])}{more}.",
        "Measure both with the same plan, settings and columns.",
    )


@dataclass
class Coverage:
    """The shards covered so far; `add` refuses one that overlaps them."""

    _ranges: dict[str, list[tuple[int, int]]] = field(default_factory=dict[str, list[tuple[int, int]]])
    shards: set[ShardId] = field(default_factory=set[ShardId])

    def add(self, shards: Iterable[ShardId]) -> None:
        """More shards; a DataError if any of them holds rows that were counted already."""
        for shard in shards:
            ranges = self._ranges.setdefault(shard.path, [])
            first, last = shard.part or _WHOLE_FILE
            place = bisect(ranges, (first, last))
            # The ranges so far lie apart, so only the two neighbours can reach into this one.
            if any(max(low, first) < min(high, last) for low, high in ranges[max(0, place - 1) : place + 1]):
                part = "" if shard.part is None else f", part {first} to {last},"
                raise DataError(
                    f"{shard.path}{part} is in both totals: its rows would count twice.", "Leave one of them out."
                )
            ranges.insert(place, (first, last))
            self.shards.add(shard)


def _flat(records: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested records as one level, with dotted names; an item of a list goes by its own name."""
    flat: dict[str, Any] = {}
    for name, value in records.items():
        inner = {str(item["name"]): item for item in value} if isinstance(value, (list, tuple)) else value
        flat |= _flat(inner, f"{prefix}{name}.") if isinstance(inner, Mapping) else {prefix + name: value}
    return flat


def _records_of(facts: Mapping[str, Any]) -> set[str]:
    """The records whose numbers have dotted names."""
    return {name.rpartition(".")[0] for name in facts}


def _in_words(value: Any) -> str:
    if value is None:
        return "unset"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value) or "none"
