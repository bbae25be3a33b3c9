"""define: what any name means that a report prints: ours, a rejection's, and those of frameworks' profiles."""

import re
from collections.abc import Mapping
from dataclasses import replace

from rlcorr_cli.metrics.advantages import ADVANTAGES
from rlcorr_cli.metrics.comparison import COMPARISON
from rlcorr_cli.metrics.definition import Definition
from rlcorr_cli.metrics.diagnostics import METRICS
from rlcorr_cli.metrics.drift import DRIFT
from rlcorr_cli.metrics.framework_names import LOGGED, VERL_DIFFERENCES, VERL_NAMES, VERL_PREFIXES, LoggedName
from rlcorr_cli.metrics.objective import BY_FULL_NAME, OBJECTIVE
from rlcorr_cli.metrics.rejections import ALL_REJECTIONS, EACH_REJECTION, KEPT, VETO
from rlcorr_cli.metrics.weights import FACTOR, KEPT_SIZE, OOB, WEIGHTS
from rlcorr_cli.plans.plan import RESERVED

GROUPS: dict[str, tuple[Definition, ...]] = {
    "Diagnostics": METRICS,
    "From the old to the current policy": DRIFT,
    "Where a dump has advantages": ADVANTAGES,
    "Importance weights": (*WEIGHTS, KEPT_SIZE, OOB, FACTOR),
    "Each rejection": tuple(replace(row, name=f"rollout_rs_NAME_{row.name}") for row in EACH_REJECTION),
    "All rejections together": (*ALL_REJECTIONS, *VETO),
    "What is kept": KEPT,
    "Policy objective": OBJECTIVE,
    "Plans beside each other": COMPARISON,
}
"""Every definition under its heading; NAME stands for a rejection's name."""

DEFINITIONS: dict[str, Definition] = {
    row.name: row for heading, rows in GROUPS.items() if heading != "Each rejection" for row in rows
}
"""Every metric whose name does not depend on the plan."""

_EACH = {row.name: row for row in EACH_REJECTION}
_WEIGHT_STEMS = {row.name.removeprefix("rollout_is_"): row for row in WEIGHTS}
_LOGGED = {row.name: row for row in LOGGED}
_KEPT = "Over the tokens that the plan's rejections keep."


def define(name: str) -> Definition | None:
    """The definition of a name that a report prints; None of a name that none does.

    `name` of the definition is the one asked for; its note says how that departs from the metric it is defined by.
    """
    return _own(name) or _logged(name) or _verl(name)


def ideal(name: str) -> float | None:
    """A metric's value where the policies are equal, under any name; None where it has none."""
    definition = define(name)
    return None if definition is None else definition.ideal


def is_two_sided(name: str) -> bool:
    """Whether a metric departs from its ideal of 0 in both directions, as kl does and a share does not."""
    definition = define(name)
    return definition is not None and definition.ideal == 0 and definition.can_be_negative


def names() -> list[str]:
    """Every fixed name that `define` knows, for near misses."""
    of_verl = (f"{VERL_PREFIXES[0]}{name}" for name in sorted(VERL_NAMES))
    return list(dict.fromkeys([*DEFINITIONS, *_LOGGED, *of_verl]))


def logged_name(name: str) -> LoggedName | None:
    """A framework's name with the metric of ours that it logs; None of our own names and of unknown ones."""
    prefix = next((prefix for prefix in VERL_PREFIXES if name.startswith(prefix)), None)
    if prefix is None:
        return None if name in DEFINITIONS else _LOGGED.get(name)
    stem = name.removeprefix(prefix).removeprefix("mismatch_")
    return (
        LoggedName(framework="verl", name=name, canonical=stem, difference=VERL_DIFFERENCES.get(stem, ""))
        if stem in VERL_NAMES
        else None
    )


def logged_as(name: str) -> list[str]:
    """Under which names frameworks log a metric of ours, and whether their number differs: "verl's rollout_corr/kl"."""
    of_verl = logged_name(f"{VERL_PREFIXES[0]}{name}")
    rows = [*([of_verl] if of_verl else []), *(row for row in LOGGED if row.canonical == name)]
    return [f"{row.framework}'s {row.name}{' (differs)' if row.note else ''}" for row in rows]


def _own(name: str) -> Definition | None:
    if name in DEFINITIONS:
        return DEFINITIONS[name]
    if name in BY_FULL_NAME:
        return replace(BY_FULL_NAME[name], name=name)
    kept = DEFINITIONS.get(name.removeprefix("kept_")) if name.startswith("kept_") else None
    if kept is not None:
        # Its typical sizes are of whole dumps.
        return replace(kept, name=name, note=_KEPT, measured=None)
    rejection, row = _split(name, _EACH)
    if row is None or rejection in ("", *RESERVED):
        return None
    return replace(row, name=name, note=f"x is the statistic of the plan's rejection '{rejection}'.")


def _logged(name: str) -> Definition | None:
    row = _LOGGED.get(name)
    if row is None:
        return None
    definition = _own(row.canonical)
    assert definition is not None, row.canonical
    note = f"{row.framework}'s name of {row.canonical}. {row.note}".rstrip()
    return replace(definition, name=name, note=note, measured=None if row.difference else definition.measured)


def _verl(name: str) -> Definition | None:
    """verl's names: ours after a prefix, and families of a rejection's statistic that ours do not have."""
    prefix = next((prefix for prefix in VERL_PREFIXES if name.startswith(prefix)), "")
    stem = name.removeprefix(prefix).removeprefix("mismatch_")
    if stem in DEFINITIONS:
        difference = VERL_DIFFERENCES.get(stem, "")
        note = f"verl's name of {stem}. {difference}".rstrip()
        return replace(DEFINITIONS[stem], name=name, note=note) if prefix else None
    rejection, row = _split(stem, {**_WEIGHT_STEMS, **_EACH})
    if row is None:
        masked = _own(stem.replace("rollout_is_", "rollout_rs_", 1)) if prefix else None
        return masked and replace(masked, name=name, note="verl's mask mode of 2025-10, which masks by the weight.")
    of = f" '{rejection}'" if rejection else ""
    formula = re.sub(r"\bw\b", "x", row.formula).replace(", of applied weights", "")
    return replace(
        row,
        name=name,
        formula=formula,
        meaning=row.meaning if row in EACH_REJECTION else f"Like {row.name}, of what the rejection bounds.",
        worry="",
        measured=None,
        note=f"verl's statistics of the rejection{of}: x in place of w, over tokens, clamped in std and sample size.",
    )


def _split(name: str, rows: Mapping[str, Definition]) -> tuple[str, Definition | None]:
    """rollout_rs_{rejection}_{row} as the rejection's name and the row of the longest name that fits."""
    inner = name.removeprefix("rollout_rs_")
    if inner == name:
        return "", None
    for suffix in sorted(rows, key=len, reverse=True):
        if inner == suffix or inner.endswith(f"_{suffix}"):
            return inner.removesuffix(suffix).rstrip("_"), rows[suffix]
    return "", None
