"""What plans that are compared leave behind: totals by name, one block per plan, and one per mode that they share.

A plan's f is its applied weight times 1 where it keeps a token and 0 elsewhere.  f_i is f's mean over sequence i, A_i
that of the advantages (1 without them), S_i the sequence's log-ratio, q = (1 - e^a)^2 the size of the sampled token's
own part of a softmax score.  The same block of no correction at all (f = 1) is what every plan is held against.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rlcorr_cli.frozen import frozen
from rlcorr_cli.plans.plan import Mode, Plan
from rlcorr_cli.totals.tail import Tail
from rlcorr_cli.totals.totals import Merge, Replicates, Table, Totals
from rlcorr_cli.totals.view import Numbers

MASS = "mass"
"""The tail of the sum of |A f| over each sequence."""
DEGREES: Mapping[str, int] = {
    "kept": 0,  # tokens with f > 0
    "kept_sequences": 0,  # sequences with such a token
    "k3": 0,  # k3 of these tokens
    "f": 1,  # f_i
    "f_squared": 2,
    "f_tokens": 1,  # f_i n_i
    "f_advantage": 1,  # f_i A_i
    "f_squared_advantage": 2,
    "f_squared_advantage_squared": 2,
    "score": 1,  # A^2 f q over tokens
    "score_squared": 2,  # A^2 f^2 q
    "mass": 1,  # |A f| over tokens
    "weight": 1,  # the weighting's units, before any rejection
    "weight_squared": 2,
    "units": 0,
}
"""Sums of a plan -> the power of a scale on its weights that they go with."""
PARTS = ("", "_positive", "_negative", "_square")
"""What names of logs end in: times 1, A+, A- and A^2, because a log has no sign."""
LOGS = tuple(f"f_ratio{part}" for part in PARTS)
"""Logs of sums over sequences of f_i e^S times 1, A+, A- and A^2: all of degree 1."""
RESAMPLED = (
    *("kept", "kept_sequences", "k3", "f", "f_tokens", "score", "score_squared"),
    *("weight", "weight_squared", "units"),
)
"""The sums of a plan that have replicates."""
_DIAGNOSTICS = ("tokens", "sequences", "seq_tv")
REFERENCE_SUMS = ("advantage", "advantage_squared", "score")
REFERENCE_LOGS = tuple(f"{ratio}{part}" for ratio in ("ratio", "ratio_squared") for part in PARTS)
"""Logs of sums over sequences of e^S and e^2S times 1, A+, A- and A^2."""
COMPARISON = "comparison"
"""The name of the block that holds all plans that are compared, and of its replicates."""


def uncorrected(mode: Mode) -> Plan:
    """No correction at all in a mode; in bypass PPO the ratio would be one."""
    return Plan("disabled", mode=mode, loss="reinforce" if mode == "bypass" else "ppo_clip")


def plan_name(plan: Plan, name: str) -> str:
    """The name of a plan's total in the block."""
    return f"{plan.id}.{name}"


def reference_name(mode: Mode, name: str) -> str:
    """The name of a total of what all plans of a mode are held against."""
    return f"{mode}.{name}"


def resampled_names(plans: Sequence[Plan]) -> list[str]:
    """The sums that have replicates."""
    modes: dict[Mode, None] = dict.fromkeys(plan.mode for plan in plans)
    references = [reference_name(mode, "score") for mode in modes]
    return [plan_name(plan, name) for plan in plans for name in RESAMPLED] + references


@frozen(kw_only=True, eq=False)
class ComparedTotals:
    """One plan's totals as formulas read them: once (floats) or for every replicate (f64[R], sums alone).

    plan, reference, diagnostics: sums by name.  corrects_mismatch: as of the plan.  logs: of the plan and of the
    reference, by name.
    """

    plan: Mapping[str, Any]
    reference: Mapping[str, Any]
    diagnostics: Mapping[str, Any]
    corrects_mismatch: bool
    logs: Mapping[str, float] | None = None
    mass: Tail | None = None

    @classmethod
    def of(cls, totals: Totals, plan: Plan, at: int) -> "ComparedTotals":
        """Of the group at a place."""
        numbers, of_mode = Numbers(totals, (COMPARISON,), at), Numbers.of_mode(totals, plan.mode, at)
        names = {plan_name(plan, name): name for name in LOGS}
        names |= {reference_name(plan.mode, name): name for name in REFERENCE_LOGS}
        return cls(
            plan={name: numbers.sum(plan_name(plan, name)) for name in DEGREES},
            reference={name: numbers.sum(reference_name(plan.mode, name)) for name in REFERENCE_SUMS},
            diagnostics={name: of_mode.sum(name) for name in _DIAGNOSTICS},
            corrects_mismatch=plan.corrects_mismatch,
            logs={name: numbers.log(full) for full, name in names.items()},
            mass=numbers.tail(plan_name(plan, MASS)),
        )

    @classmethod
    def resampled(cls, replicates: Replicates, diagnostics: Replicates, plan: Plan) -> "ComparedTotals":
        """Of replicates."""
        sums = replicates.sums
        return cls(
            plan={name: sums[plan_name(plan, name)] for name in RESAMPLED},
            reference={"score": sums[reference_name(plan.mode, "score")]},
            diagnostics={name: diagnostics.sums[name] for name in _DIAGNOSTICS},
            corrects_mismatch=plan.corrects_mismatch,
        )


def normalized(totals: Totals, plans: Sequence[Plan]) -> Totals:
    """The same with each training batch's weights divided by their mean, for the plans that ask for it.

    Every total of a plan is homogeneous in its weights, so that a scale on them is one on the totals.
    """
    sums, logs = (totals.tables[merge] for merge in ("sum", "log_sum_exp"))
    scaled_sums, scaled_logs, tails = sums.values.copy(), logs.values.copy(), dict(totals.tails)
    for plan in filter(divides_by_mean, plans):
        means = weight_means(totals, plan)
        scale = 1 / np.array([means[batch] for batch, *_ in totals.keys])
        for name, degree in DEGREES.items():
            scaled_sums[sums.places[f"{COMPARISON}.{plan_name(plan, name)}"]] *= scale**degree
        for name in LOGS:
            scaled_logs[logs.places[f"{COMPARISON}.{plan_name(plan, name)}"]] += np.log(scale)
        masses = f"{COMPARISON}.{plan_name(plan, MASS)}"
        of_groups = zip(tails[masses] or (), scale, strict=False)
        scaled_tails = tuple(mass and replace(mass, largest=mass.largest * by) for mass, by in of_groups)
        tails[masses] = tails[masses] and scaled_tails
    scaled: dict[Merge, Table] = {"sum": Table(sums.names, scaled_sums), "log_sum_exp": Table(logs.names, scaled_logs)}
    return replace(totals, tables={**totals.tables, **scaled}, tails=tails)


def weight_means(totals: Totals, plan: Plan) -> dict[Any, float]:
    """The mean of a plan's weights over their units in each training batch, before they are divided by it; 1 without a
    weight."""
    of_batches = totals.numbers.regrouped(lambda key: key[:1])
    weight, units = (of_batches.sum(f"{COMPARISON}.{plan_name(plan, name)}") for name in ("weight", "units"))
    means = np.where(weight == 0, 1.0, weight / np.where(units == 0, 1.0, units)).tolist()
    return {batch: mean for (batch,), mean in zip(of_batches.keys, means, strict=True)}


def divides_by_mean(plan: Plan) -> bool:
    """Whether the weights that its loss takes are divided by their batch's mean."""
    return plan.applied_weighting is not None and plan.applied_weighting.normalize == "batch"
