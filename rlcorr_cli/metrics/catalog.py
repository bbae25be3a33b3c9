"""FAMILIES: every metric that a report prints, with what brings it.  `define`: what any printed name means.

The same table gives `canonical` the metrics of a plan, `explain` and the manual their headings, and the errors about
unknown names what to type instead.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rlcorr_cli.errors import LONGEST_NAME, UsageError, nearest
from rlcorr_cli.frozen import frozen
from rlcorr_cli.metrics.advantages import ADVANTAGES, PREFIX
from rlcorr_cli.metrics.comparison import COMPARISON
from rlcorr_cli.metrics.diagnostics import METRICS
from rlcorr_cli.metrics.divergence import DRIFT
from rlcorr_cli.metrics.framework_names import (
    LOGGED,
    PROFILED,
    VERL_NAMES,
    VERL_PREFIXES,
    LoggedName,
    verl_difference,
)
from rlcorr_cli.metrics.metric import GAP, Metric, Place, evaluated
from rlcorr_cli.metrics.objective import OBJECTIVE, by_full_name, full_name
from rlcorr_cli.metrics.rejections import (
    ALL_REJECTIONS,
    EACH,
    EACH_REJECTION,
    KEPT,
    VETO,
    all_rejections,
    each_rejection,
    veto_of,
)
from rlcorr_cli.metrics.weights import FACTOR, KEPT_SIZE, OOB, WEIGHTS
from rlcorr_cli.plans.plan import RESERVED, Plan

if TYPE_CHECKING:
    from rlcorr_cli.totals.view import Numbers, Values

ANY = "NAME"
"""What stands for a rejection's name."""
FRAMEWORK_PREFIX = re.compile(r"^(.*/)?(mismatch_|mis_)?")


@frozen(kw_only=True)
class Family:
    """Metrics that come together.

    heading: what they are listed under; "" of those that are listed elsewhere.  prefix: what stands before a row's
    name.  brought: whether a report with this plan has them; true also where the columns of the dump alone decide it.
    of: prefix of their names in the report -> the totals that they are made of; empty where the dump lacks these.  how:
    what to type to have them.
    """

    rows: tuple[Metric, ...]
    heading: str = ""
    prefix: str = ""
    brought: Callable[[Plan], bool] = lambda plan: True
    of: Callable[["Numbers", Plan], Mapping[str, Any]] = lambda numbers, plan: {}
    how: str = ""

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of its metrics in a report."""
        return frozenset(self.prefix + row.name for row in self.rows)


def _has_weights(plan: Plan) -> bool:
    return plan.weighting is not None


def _has_rules(plan: Plan) -> bool:
    return bool(plan.rules)


def _weights(numbers: "Numbers", plan: Plan) -> Mapping[str, Any]:
    from rlcorr_cli.totals.view import Weights

    return {"": Weights.of(numbers, plan)}


FAMILIES: tuple[Family, ...] = (
    Family(
        rows=METRICS,
        heading="Diagnostics",
        of=lambda numbers, plan: {"": numbers},
    ),
    Family(
        rows=DRIFT,
        heading="From the old to the current policy",
        of=lambda numbers, plan: {"": numbers} if numbers.has("drift.ratio") else {},
        how="It comes with a dump of current_log_probs beside old_log_probs: ⟦map current_log_probs=COLUMN⟧.",
    ),
    Family(
        rows=ADVANTAGES,
        heading="Where a dump has advantages",
        of=lambda numbers, plan: {"": numbers} if numbers.has(f"{PREFIX}rows") else {},
        how="It comes with a dump of advantages: ⟦map advantages=COLUMN⟧.",
    ),
    Family(
        rows=WEIGHTS,
        heading="Importance weights",
        brought=_has_weights,
        of=_weights,
        how="It comes with weights, such as ⟦preset token_is⟧.",
    ),
    Family(
        rows=(KEPT_SIZE,),
        heading="Importance weights",
        brought=lambda plan: _has_weights(plan) and _has_rules(plan) and not plan.normalizes,
        # Totals that were saved by an older release have no such sum.
        of=lambda numbers, plan: _weights(numbers, plan) if numbers.has("applied.kept") else {},
        how="It comes with weights beside a rejection: ⟦preset geo_rs⟧ ⟦is_ token:,2⟧.",
    ),
    Family(
        rows=(OOB,),
        heading="Importance weights",
        brought=lambda plan: plan.weighting is not None and plan.weighting.outside == "zero",
        of=_weights,
        how="It comes with weights that are zeroed: ⟦is_ token:,2:zero⟧.",
    ),
    Family(
        rows=(FACTOR,),
        heading="Importance weights",
        brought=lambda plan: plan.normalizes,
        of=_weights,
        how="It comes with weights of batch mean 1: ⟦is_ token:,2⟧ ⟦normalize batch⟧.",
    ),
    Family(
        rows=EACH_REJECTION,
        heading="Each rejection",
        prefix=f"{EACH}{ANY}_",
        brought=_has_rules,
        of=each_rejection,
        how="It comes with a rejection of that name: `rlcorr presets` lists some.",
    ),
    Family(
        rows=ALL_REJECTIONS,
        heading="All rejections together",
        brought=_has_rules,
        of=lambda numbers, plan: {"": all_rejections(numbers)},
        how="It comes with a rejection, such as ⟦preset geo_rs⟧.",
    ),
    Family(
        rows=VETO,
        heading="All rejections together",
        brought=lambda plan: any(rejection.is_veto for rejection in plan.rejections),
        of=lambda numbers, plan: {"": veto_of(numbers, plan)},
        how="It comes with a veto: ⟦veto 1e-4⟧.",
    ),
    Family(
        rows=KEPT,
        heading="What is kept",
        brought=_has_rules,
        of=lambda numbers, plan: {"": numbers.under("kept.")},
        how="It comes with a rejection, such as ⟦preset geo_rs⟧.",
    ),
    Family(
        rows=METRICS,
        prefix="kept_",
        brought=_has_rules,
        of=lambda numbers, plan: {"kept_": numbers.under("kept.")},
        how="It comes with a rejection, such as ⟦preset geo_rs⟧.",
    ),
    Family(
        rows=OBJECTIVE,
        heading="Policy objective",
        brought=lambda plan: False,
        how="A rule names its objective, too: ⟦objective ppo⟧ ⟦max objective/ppo/clip_fraction=0.2⟧.",
    ),
    Family(
        rows=COMPARISON,
        heading="Plans beside each other",
        brought=lambda plan: False,
        how="`⟦compare(DUMP)⟧` reports it, beside plans; no rule can be on it.",
    ),
)
"""In the order of a report; the last two are no part of a plan's summary."""

GROUPS: dict[str, tuple[Metric, ...]] = {
    heading: tuple(
        replace(row, name=family.prefix + row.name)
        for family in FAMILIES
        if family.heading == heading
        for row in family.rows
    )
    for heading in dict.fromkeys(family.heading for family in FAMILIES if family.heading)
}
"""Every definition under its heading; NAME stands for a rejection's name."""

DEFINITIONS: dict[str, Metric] = {row.name: row for family in FAMILIES if not family.prefix for row in family.rows}
"""Every metric whose name does not depend on the plan."""


def shown_at(place: Place) -> tuple[str, ...]:
    """The metrics that stand at a place, in their order there."""
    rows = [row for row in DEFINITIONS.values() if place in row.shown]
    return tuple(row.name for row in sorted(rows, key=lambda row: row.shown[place]))


def canonical(numbers: "Numbers", plan: Plan) -> "Values":
    """Every metric of a plan's summary under rlcorr's own names."""
    return {
        prefix + name: value
        for family in FAMILIES
        if family.brought(plan)
        for prefix, totals in family.of(numbers, plan).items()
        for name, value in evaluated(family.rows, totals).items()
    }


def may_have_metric(metric: str, plan: Plan, objective: str | None = None) -> bool:
    """Whether a dump measured under a plan, and an objective of this name, may have a metric."""
    if metric in by_full_name():
        return objective is not None and metric.startswith(full_name(objective, ""))
    if _is_of_one_rejection(metric):
        return any(metric.startswith(f"{EACH}{rejection.name}_") for rejection in plan.rules)
    return any(metric in family.names and family.brought(plan) for family in FAMILIES)


USUAL = "kl, k3_kl, token_ess and seq_ess are usual; `rlcorr help metrics` lists all."
"""The hint for a name that is no metric and like none."""


def missing_metric_error(metric: str, origin: str, available: Collection[str]) -> UsageError:
    """The error for a metric that `origin` names and that a report lacks: what to type to have it, or what is near it.

    available: the metrics that the report has; empty before a dump is read, where the plan rules the metric out.
    """
    prefix = _framework_prefix(next(iter(available), ""))
    how = "" if prefix else _how_to_have(metric, available)
    if how:
        return UsageError(f"{origin}: {metric} is not in this report.", how)
    logged = None if prefix else logged_name(metric)
    if logged is not None and not logged.canonical:
        return UsageError(f"{origin}: {metric} is {logged.framework}'s, and no metric here: {logged.note}", USUAL)
    if logged is not None and logged.difference:
        message = f"{origin}: {metric} is {logged.framework}'s, and not quite {logged.canonical}: {logged.note}"
        own = f", or take ⟦profile⟧ for {logged.framework}'s own numbers" if logged.framework in PROFILED else ""
        return UsageError(message, f"Name {logged.canonical}{own}.")
    from difflib import get_close_matches

    known = available or {*by_full_name(), *(name for family in FAMILIES for name in family.names if ANY not in name)}
    near = prefix + metric.removeprefix(_framework_prefix(metric))
    begins = any(name.startswith(f"{near}_") for name in known)
    is_near = len(near) <= LONGEST_NAME and (begins or get_close_matches(near, known, n=1))
    hint = f"Nearest: {nearest(near, known)}." if is_near or prefix else USUAL
    if available and GAP not in available and not prefix:  # of a log
        ours = [name for name in available if name in DEFINITIONS] or [*available]
        hint = f"This log has {', '.join(ours[:4])}; `rlcorr scalars LOG --all` lists all names."
    return UsageError(f"{origin}: there is no metric '{metric}' here.", hint)


def _framework_prefix(metric: str) -> str:
    """What a framework's name has before ours: 'rollout_corr/', 'mis_' or nothing."""
    match = FRAMEWORK_PREFIX.match(metric)
    return match.group() if match else ""


def _is_of_one_rejection(metric: str) -> bool:
    return metric.startswith(EACH) and metric not in DEFINITIONS


def _how_to_have(metric: str, available: Collection[str]) -> str:
    """What to type to have a metric; "" for a name that no option brings."""
    if metric in by_full_name():
        return "It comes with its objective: ⟦objective ppo⟧, say."
    if _is_of_one_rejection(metric):
        has_rejection = any(name.startswith(EACH) for name in available)
        return "" if has_rejection else next(family.how for family in FAMILIES if family.rows is EACH_REJECTION)
    return next((family.how for family in FAMILIES if metric in family.names), "")


_EACH = {row.name: row for row in EACH_REJECTION}
_WEIGHT_STEMS = {row.name.removeprefix("rollout_is_"): row for row in WEIGHTS}
_LOGGED_BY_NAME = {row.name: row for row in LOGGED}
_AROUND_VERL = re.compile(r"^.*/(?=(rollout_corr|mismatch)/)|(?<=.)/(mean|avg)$")
_SCOPES = ("train", "all", "env")
"""Parts of a name that say which data it is of."""
_NOT_MEANS = ("max", "min", "std", "median")
_KEPT = "Over the tokens that the plan's rejections keep."


def define(name: str) -> Metric | None:
    """The definition of a name that a report prints; None of a name that none does.

    `name` of the definition is the one asked for; its note says how that differs from our metric.
    """
    return _own_definition(name) or _logged_definition(name) or _verl_definition(_AROUND_VERL.sub("", name))


def ideal(name: str) -> float | None:
    """A metric's value where the policies are equal, under any name; None where it has none."""
    definition = define(name)
    return None if definition is None else definition.ideal


def is_two_sided(name: str) -> bool:
    """Whether a metric departs from its ideal of 0 in both directions, as kl does and a share does not."""
    definition = define(name)
    return definition is not None and definition.ideal == 0 and definition.can_be_negative


def explained_names() -> list[str]:
    """Every fixed name that `define` knows, for near misses."""
    of_verl = (f"{VERL_PREFIXES[0]}{name}" for name in sorted(VERL_NAMES))
    return list(dict.fromkeys([*DEFINITIONS, *_LOGGED_BY_NAME, *of_verl]))


def logged_name(name: str) -> LoggedName | None:
    """A framework's name with the metric of ours that it logs; None of our own names and of unknown ones."""
    prefix = next((prefix for prefix in VERL_PREFIXES if name.startswith(prefix)), None)
    if prefix is None or name in _LOGGED_BY_NAME:
        return None if name in DEFINITIONS else _find_logged(name)
    stem = name.removeprefix(prefix).removeprefix("mismatch_")
    return (
        LoggedName(framework="verl", name=name, canonical=stem, difference=verl_difference(stem, prefix))
        if stem in VERL_NAMES
        else None
    )


OWN = "rlcorr/"
"""What our own names begin with in event files of TensorBoard's."""
_NAMES_OF_OTHERS = ("kl", "reward_mean", "length_mean")
"""Names of ours that trainers log, too: kl from the reference policy."""


def known_in_log(name: str) -> LoggedName | None:
    """What a name in a trainer's log is, with whatever stands before and after it; None of a name that speaks neither
    of the gap, nor of the sample, nor of a correction.  The framework of our own names is rlcorr."""
    own = name.removeprefix(OWN)
    in_reports = any(own in family.names for family in FAMILIES[:-2]) and own not in _NAMES_OF_OTHERS
    if in_reports or (own != name and _own_definition(own) is not None):
        return LoggedName(framework="rlcorr", name=name, canonical=own)
    bare = _AROUND_VERL.sub("", name)
    # Writers of TensorBoard's have an underscore for what is no part of a name there.
    row = _find_logged(name) or logged_name(bare) or _find_logged(re.sub("_sum$", "@sum", name))
    if row is None and bare.startswith(VERL_PREFIXES) and (definition := _verl_definition(bare)) is not None:
        row = LoggedName(framework="verl", name=name, canonical="", difference=definition.note)
    return row and replace(row, name=name)


def logged_as(name: str) -> list[str]:
    """Under which names frameworks log a metric of ours, and whether their number differs: "verl's rollout_corr/kl"."""
    of_verl = logged_name(f"{VERL_PREFIXES[0]}{name}")
    rows = [*([of_verl] if of_verl else []), *(row for row in LOGGED if row.canonical == name)]
    return list(dict.fromkeys(f"{row.framework}'s {row.name}{' (differs)' if row.note else ''}" for row in rows))


def _own_definition(name: str) -> Metric | None:
    if name in DEFINITIONS:
        return DEFINITIONS[name]
    if name in by_full_name():
        return replace(by_full_name()[name], name=name)
    kept = DEFINITIONS.get(name.removeprefix("kept_")) if name.startswith("kept_") else None
    if kept is not None:
        # Its typical sizes are of whole dumps.
        return replace(kept, name=name, note=_KEPT, measured=None)
    rejection, row = _split_rejection(name, _EACH)
    if row is None or rejection in ("", *RESERVED):
        return None
    return replace(row, name=name, note=f"x is the statistic of the plan's rejection '{rejection}'.")


def _find_logged(name: str) -> LoggedName | None:
    """The row of the longest part of a name that is one: of "mismatch_kl/all/mean" that of "mismatch_kl"."""
    whole = name.split("/")
    for parts in (whole, [part for part in whole if part not in _SCOPES]):
        firsts = range(1 if name.startswith(VERL_PREFIXES) else len(parts))
        spans = [(first, last) for first in firsts for last in range(first + 1, len(parts) + 1)]
        for first, last in sorted(spans, key=lambda span: (span[0] - span[1], -span[1])):
            row = _LOGGED_BY_NAME.get("/".join(parts[first:last]))
            if row is not None:
                end = parts[-1] if last < len(parts) and parts[-1] in _NOT_MEANS and row.canonical else ""
                other = f"Its {end} is no metric here: {row.canonical} is the mean. "
                return replace(row, difference=f"{other}{row.difference}".rstrip()) if end else row
    return None


def _logged_definition(name: str) -> Metric | None:
    row = _find_logged(name)
    if row is None:
        return None
    definition = _own_definition(row.canonical)
    if definition is None:
        return Metric(
            name=name,
            formula="",
            unit="",
            meaning=f"{row.framework}'s, and no metric here. {row.note}",
            value=lambda _: None,
        )
    note = f"{row.framework}'s name of {row.canonical}. {row.note}".rstrip()
    return replace(definition, name=name, note=note, measured=None if row.difference else definition.measured)


def _verl_definition(name: str) -> Metric | None:
    """verl's names: ours after a prefix, and families of a rejection's statistic that ours do not have."""
    prefix = next((prefix for prefix in VERL_PREFIXES if name.startswith(prefix)), "")
    stem = name.removeprefix(prefix).removeprefix("mismatch_")
    if stem in DEFINITIONS:
        note = f"verl's name of {stem}. {verl_difference(stem, prefix)}".rstrip()
        return replace(DEFINITIONS[stem], name=name, note=note) if prefix else None
    rejection, row = _split_rejection(stem, {**_WEIGHT_STEMS, **_EACH})
    if row is None:
        masked = _own_definition(stem.replace("rollout_is_", "rollout_rs_", 1)) if prefix else None
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


def _split_rejection(name: str, rows: Mapping[str, Metric]) -> tuple[str, Metric | None]:
    """rollout_rs_{rejection}_{row} as the rejection's name and the row of the longest name that fits."""
    inner = name.removeprefix("rollout_rs_")
    if inner == name:
        return "", None
    for suffix in sorted(rows, key=len, reverse=True):
        if inner == suffix or inner.endswith(f"_{suffix}"):
            return inner.removesuffix(suffix).rstrip("_"), rows[suffix]
    return "", None
