"""Which metrics there are, what brings those that only some reports have, and what is ideal of them.

For what a user names: a rule on a metric that is not there is refused, with the option that brings it or the names
nearest to it, and before the dump is read where the plan alone tells.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from rlcorr_cli.errors import UsageError, nearest
from rlcorr_cli.metrics.corrections import FACTOR, OOB, REJECTIONS, WEIGHTS
from rlcorr_cli.metrics.diagnostics import DRIFT, METRICS
from rlcorr_cli.plans.plan import Plan

ALWAYS = frozenset(metric.name for metric in METRICS)
PEER = re.compile(r"^(.*/)?(mismatch_|mis_)?")
IDEALS = {metric.name: metric.ideal for metric in (*METRICS, *DRIFT)}
ONE_REJECTION = "rollout_rs_"


@dataclass(frozen=True)
class Source:
    """Metrics that not every report has.  brought: whether a plan brings them; how: what to type otherwise."""

    names: frozenset[str]
    brought: Callable[[Plan], bool]
    how: str


_VETO = frozenset({"rollout_is_veto_fraction", "rollout_is_catastrophic_token_fraction"})

SOURCES: tuple[Source, ...] = (
    Source(
        frozenset(metric.name for metric in DRIFT),
        lambda plan: True,  # the dump's columns decide
        "It comes with a dump of current_log_probs beside old_log_probs: --map current_log_probs=COLUMN.",
    ),
    Source(_VETO, lambda plan: any(r.is_veto for r in plan.rejections), "It comes with a veto: --veto 1e-4."),
    Source(
        frozenset({f"rollout_is_{OOB.name}"}),
        lambda plan: plan.weighting is not None and plan.weighting.outside == "zero",
        "It comes with weights that are zeroed: --is token --is-high 2 --is-outside zero.",
    ),
    Source(
        frozenset({f"rollout_is_{FACTOR.name}"}),
        lambda plan: plan.normalizes,
        "It comes with weights of batch mean 1: --is token --is-high 2 --normalize batch.",
    ),
    Source(
        frozenset(f"rollout_is_{row.name}" for row in WEIGHTS),
        lambda plan: plan.weighting is not None,
        "It comes with weights, such as --preset token_is.",
    ),
    Source(
        frozenset(REJECTIONS) - _VETO | {f"kept_{name}" for name in ALWAYS},
        lambda plan: bool(plan.rules),
        "It comes with a rejection, such as --preset geo_rs.",
    ),
)


def ideal(metric: str) -> float | None:
    """A metric's value when the policies are equal, also of a peer's name for it (rollout_corr/kl) and of kept_kl."""
    stem = metric.removeprefix(_prefix(metric))
    return IDEALS.get(stem, IDEALS.get(stem.removeprefix("kept_")))


def possible(metric: str, plan: Plan) -> bool:
    """Whether a dump measured under a plan may have a metric."""
    if metric.startswith(ONE_REJECTION) and metric not in REJECTIONS:
        return any(metric.startswith(f"{ONE_REJECTION}{rule.name}_") for rule in plan.rules)
    return metric in ALWAYS or any(metric in source.names and source.brought(plan) for source in SOURCES)


def missing(metric: str, origin: str, there: Collection[str]) -> UsageError:
    """What to say of a metric that `origin` names and that is not among those there (none: any dump may have any)."""
    prefix = _prefix(next(iter(there), ""))
    how = None if prefix else _how(metric, there)
    if how is not None:
        return UsageError(f"{origin}: {metric} is not in this report.", how)
    known = there or {*ALWAYS, *(name for source in SOURCES for name in source.names)}
    near = prefix + metric.removeprefix(_prefix(metric))
    return UsageError(f"{origin}: there is no metric '{metric}' here.", f"Nearest: {nearest(near, known)}.")


def _prefix(metric: str) -> str:
    """What a peer's name has before ours."""
    found = PEER.match(metric)
    return found.group() if found else ""


def _how(metric: str, there: Collection[str]) -> str | None:
    """What brings a metric that there may be."""
    if metric.startswith(ONE_REJECTION) and metric not in REJECTIONS:
        named = any(name.startswith(ONE_REJECTION) for name in there)
        return None if named else "It comes with a rejection of that name: `rlcorr presets` lists some."
    return next((source.how for source in SOURCES if metric in source.names), None)
