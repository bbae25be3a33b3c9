"""Which metrics a plan brings, and what to type for those that a report does not have.

For what a user names: a rule on a metric that is not there is refused, with the option that brings it or the names
nearest to it, and before the dump is read where the plan alone tells.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from rlcorr_cli.errors import UsageError, nearest
from rlcorr_cli.metrics.advantages import ADVANTAGES
from rlcorr_cli.metrics.catalog import logged_name
from rlcorr_cli.metrics.comparison import COMPARISON
from rlcorr_cli.metrics.diagnostics import METRICS
from rlcorr_cli.metrics.drift import DRIFT
from rlcorr_cli.metrics.framework_names import PROFILED
from rlcorr_cli.metrics.objective import BY_FULL_NAME, OBJECTIVE, full_name
from rlcorr_cli.metrics.rejections import ALL_REJECTIONS, KEPT, VETO
from rlcorr_cli.metrics.weights import FACTOR, KEPT_SIZE, OOB, WEIGHTS
from rlcorr_cli.plans.plan import Plan

ALWAYS = frozenset(metric.name for metric in METRICS)
FRAMEWORK_PREFIX = re.compile(r"^(.*/)?(mismatch_|mis_)?")
EACH_REJECTION = "rollout_rs_"
TOGETHER = frozenset(row.name for row in (*ALL_REJECTIONS, *VETO, *KEPT))
"""Metrics of all rejections together; others that start with EACH_REJECTION are of one, whose name they bear."""


@dataclass(frozen=True)
class Source:
    """Metrics that not every report has.  brought: whether a plan brings them.  how: what to type to have them."""

    names: frozenset[str]
    brought: Callable[[Plan], bool]
    how: str


_VETO = frozenset(row.name for row in VETO)

SOURCES: tuple[Source, ...] = (
    Source(
        frozenset(metric.name for metric in OBJECTIVE),
        lambda plan: False,
        f"A rule names its objective, too: --objective ppo --max {full_name('ppo', 'clip_fraction')}=0.2.",
    ),
    Source(
        frozenset(BY_FULL_NAME),
        lambda plan: False,
        "It comes with its objective: --objective ppo, say.",
    ),
    Source(
        frozenset(metric.name for metric in ADVANTAGES),
        lambda plan: True,  # the dump's columns decide
        "It comes with a dump of advantages: --map advantages=COLUMN.",
    ),
    Source(
        frozenset(metric.name for metric in COMPARISON),
        lambda plan: False,
        "`rlcorr compare DUMP` reports it, beside plans; no rule can be on it.",
    ),
    Source(
        frozenset(metric.name for metric in DRIFT),
        lambda plan: True,  # the dump's columns decide
        "It comes with a dump of current_log_probs beside old_log_probs: --map current_log_probs=COLUMN.",
    ),
    Source(
        _VETO,
        lambda plan: any(rejection.is_veto for rejection in plan.rejections),
        "It comes with a veto: --veto 1e-4.",
    ),
    Source(
        frozenset({OOB.name}),
        lambda plan: plan.weighting is not None and plan.weighting.outside == "zero",
        "It comes with weights that are zeroed: --is token --is-high 2 --is-outside zero.",
    ),
    Source(
        frozenset({FACTOR.name}),
        lambda plan: plan.normalizes,
        "It comes with weights of batch mean 1: --is token --is-high 2 --normalize batch.",
    ),
    Source(
        frozenset({KEPT_SIZE.name}),
        lambda plan: plan.weighting is not None and bool(plan.rules) and not plan.normalizes,
        "It comes with weights beside a rejection: --preset geo_rs --is token --is-high 2.",
    ),
    Source(
        frozenset(row.name for row in WEIGHTS),
        lambda plan: plan.weighting is not None,
        "It comes with weights, such as --preset token_is.",
    ),
    Source(
        TOGETHER - _VETO | {f"kept_{name}" for name in ALWAYS},
        lambda plan: bool(plan.rules),
        "It comes with a rejection, such as --preset geo_rs.",
    ),
)


def possible(metric: str, plan: Plan, objective: str | None = None) -> bool:
    """Whether a dump measured under a plan, and an objective of this name, may have a metric."""
    if metric in BY_FULL_NAME:
        return objective is not None and metric == full_name(objective, BY_FULL_NAME[metric].name)
    if _is_of_one_rejection(metric):
        return any(metric.startswith(f"{EACH_REJECTION}{rejection.name}_") for rejection in plan.rules)
    return metric in ALWAYS or any(metric in source.names and source.brought(plan) for source in SOURCES)


def missing(metric: str, origin: str, available: Collection[str]) -> UsageError:
    """The error for a metric that `origin` names and that is not available; of no dump in particular if none are."""
    prefix = _prefix(next(iter(available), ""))
    how = None if prefix else _how(metric, available)
    if how is not None:
        return UsageError(f"{origin}: {metric} is not in this report.", how)
    logged = None if prefix else logged_name(metric)
    if logged is not None and logged.difference:
        message = f"{origin}: {metric} is {logged.framework}'s, and not quite {logged.canonical}: {logged.note}"
        own = f", or take --profile for {logged.framework}'s own numbers" if logged.framework in PROFILED else ""
        return UsageError(message, f"Name {logged.canonical}{own}.")
    known = available or {*ALWAYS, *(name for source in SOURCES for name in source.names)}
    near = prefix + metric.removeprefix(_prefix(metric))
    return UsageError(f"{origin}: there is no metric '{metric}' here.", f"Nearest: {nearest(near, known)}.")


def _prefix(metric: str) -> str:
    """What a framework's name has before ours: 'rollout_corr/', 'mis_' or nothing."""
    match = FRAMEWORK_PREFIX.match(metric)
    return match.group() if match else ""


def _is_of_one_rejection(metric: str) -> bool:
    return metric.startswith(EACH_REJECTION) and metric not in TOGETHER


def _how(metric: str, available: Collection[str]) -> str | None:
    """What to type to have a metric; None for a name that no option brings."""
    if _is_of_one_rejection(metric):
        has_rejection = any(name.startswith(EACH_REJECTION) for name in available)
        return None if has_rejection else "It comes with a rejection of that name: `rlcorr presets` lists some."
    return next((source.how for source in SOURCES if metric in source.names), None)
