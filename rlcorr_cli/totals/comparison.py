"""What plans that are compared leave behind: totals by name, one block per plan, and one per mode that they share.

A plan's f is its applied weight times 1 where it keeps a token and 0 elsewhere.  f_i is f's mean over sequence i, A_i
that of the advantages (1 without them), S_i the sequence's log-ratio, q = (1 - e^a)^2 the size of the sampled token's
own part of a softmax score.  The same block of no correction at all (f = 1) is what every plan is held against.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlcorr_cli.plans.plan import Mode, Plan
from rlcorr_cli.totals.block import Block, Layout, diagnostics_block
from rlcorr_cli.totals.histogram import Floats
from rlcorr_cli.totals.summary import GroupKey, Replicates, Summary
from rlcorr_cli.totals.tail import Tail

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
    "kept",
    "kept_sequences",
    "k3",
    "f",
    "f_tokens",
    "score",
    "score_squared",
    "weight",
    "weight_squared",
    "units",
)
"""The sums of a plan that have replicates."""
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


def comparison_layout(plans: Sequence[Plan]) -> Layout:
    """The names of the block's numbers: of plans by mode, each mode's followed by its reference."""
    modes: dict[Mode, None] = dict.fromkeys(plan.mode for plan in plans)
    sums: list[str] = []
    logs: list[str] = []
    for mode in modes:
        of_mode = [plan for plan in plans if plan.mode == mode]
        sums += [plan_name(plan, name) for plan in of_mode for name in DEGREES]
        sums += [reference_name(mode, name) for name in REFERENCE_SUMS]
        logs += [plan_name(plan, name) for plan in of_mode for name in LOGS]
        logs += [reference_name(mode, name) for name in REFERENCE_LOGS]
    masses = tuple(plan_name(plan, MASS) for mode in modes for plan in plans if plan.mode == mode)
    return Layout(sums=tuple(sums), mins=(), maxs=(), logs=tuple(logs), histograms=(), tails=masses)


def resampled_names(plans: Sequence[Plan]) -> list[str]:
    """The sums that have replicates."""
    modes: dict[Mode, None] = dict.fromkeys(plan.mode for plan in plans)
    references = [reference_name(mode, "score") for mode in modes]
    return [plan_name(plan, name) for plan in plans for name in RESAMPLED] + references


@dataclass(frozen=True, eq=False, kw_only=True)
class ComparedTotals:
    """One plan's totals as formulas read them: once (floats) or for every replicate (f64[R], sums alone).

    plan, reference, diagnostics: sums by name.  logs: of the plan and of the reference, by name.
    """

    plan: Mapping[str, Any]
    reference: Mapping[str, Any]
    diagnostics: Mapping[str, Any]
    logs: Mapping[str, float] | None = None
    mass: Tail | None = None

    @classmethod
    def of(cls, summary: Summary, plan: Plan) -> "ComparedTotals":
        """Of a Summary."""
        (totals,) = cls.of_each(summary, (plan,))
        return totals

    @classmethod
    def of_each(cls, summary: Summary, plans: Sequence[Plan]) -> "list[ComparedTotals]":
        """Of a Summary, one for each plan; its numbers are named once, because groups may be many."""
        block = summary.blocks[COMPARISON]
        sums, logs = _sums(block), _logs(block)
        diagnostics = {plan.mode: _sums(summary.blocks[diagnostics_block(plan.mode)]) for plan in plans}
        return [
            cls(
                plan={name: sums[plan_name(plan, name)] for name in DEGREES},
                reference={name: sums[reference_name(plan.mode, name)] for name in REFERENCE_SUMS},
                diagnostics=diagnostics[plan.mode],
                logs={name: logs[plan_name(plan, name)] for name in LOGS}
                | {name: logs[reference_name(plan.mode, name)] for name in REFERENCE_LOGS},
                mass=block.tails[block.layout.places["tails"][plan_name(plan, MASS)]],
            )
            for plan in plans
        ]

    @classmethod
    def resampled(cls, replicates: Replicates, diagnostics: Replicates, plan: Plan) -> "ComparedTotals":
        """Of replicates."""
        sums = dict(zip(replicates.names, replicates.sums, strict=True))
        return cls(
            plan={name: sums[plan_name(plan, name)] for name in RESAMPLED},
            reference={"score": sums[reference_name(plan.mode, "score")]},
            diagnostics=dict(zip(diagnostics.names, diagnostics.sums, strict=True)),
        )


def normalized(by_group: Mapping[GroupKey, Summary], plans: Sequence[Plan]) -> dict[GroupKey, Summary]:
    """The same with each training batch's weights divided by their mean, for the plans that ask for it.

    Every total of a plan is homogeneous in its weights, so that a scale on them is one on the totals.
    """
    divided = [plan for plan in plans if divides_by_mean(plan)]
    by_batch: dict[Any, list[GroupKey]] = {}
    for key in by_group if divided else ():
        by_batch.setdefault(key[0], []).append(key)
    scaled = dict(by_group)
    for keys in by_batch.values():
        scales: dict[str, float] = {}
        for plan in divided:
            weight, units = (
                sum(by_group[key].blocks[COMPARISON].sum(plan_name(plan, name)) for key in keys)
                for name in ("weight", "units")
            )
            scales[plan.id] = units / weight if weight else 1.0
        for key in keys:
            blocks = by_group[key].blocks
            scaled[key] = replace(by_group[key], blocks={**blocks, COMPARISON: _scaled(blocks[COMPARISON], scales)})
    return scaled


def weight_mean(summary: Summary, plan: Plan) -> float:
    """The mean of a plan's weights over their units, before they are divided by it; 1 without a weight."""
    weight, units = (summary.blocks[COMPARISON].sum(plan_name(plan, name)) for name in ("weight", "units"))
    return weight / units if units and weight else 1.0


def divides_by_mean(plan: Plan) -> bool:
    """Whether the weights that its loss takes are divided by their batch's mean."""
    return plan.applied_weighting is not None and plan.applied_weighting.normalize == "batch"


def _scaled(block: Block, scales: Mapping[str, float]) -> Block:
    """The block with some plans' weights scaled; scales: by the plan's id."""

    def scale(name: str, degree: int) -> float:
        return scales.get(name.partition(".")[0], 1.0) ** degree

    layout = block.layout
    return replace(
        block,
        sums=block.sums * np.array([scale(name, DEGREES.get(name.partition(".")[2], 0)) for name in layout.sums]),
        log_rests=block.log_rests * np.array([scale(name, 1) for name in layout.logs]),
        tails=tuple(
            replace(tail, largest=tail.largest * scale(name, 1))
            for name, tail in zip(layout.tails, block.tails, strict=True)
        ),
    )


def _sums(block: Block) -> dict[str, float]:
    return dict(zip(block.layout.sums, block.sums.tolist(), strict=True))


def _logs(block: Block) -> dict[str, float]:
    with np.errstate(divide="ignore"):
        values: Floats = block.log_peaks + np.log(block.log_rests)
    return dict(zip(block.layout.logs, values.tolist(), strict=True))
