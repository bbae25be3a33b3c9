"""A comparison's Sheet: what it says in every form, and its two panels."""

from pathlib import Path
from typing import Any

from rlcorr_cli import __version__
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.results.compared import Comparison
from rlcorr_cli.show.compared import (
    PLAN_NOTE,
    agreement,
    group_objective_note,
    group_objective_rows,
    group_rows,
    objective_notes,
    objective_rows,
    plan_rows,
    skipped,
)
from rlcorr_cli.show.figures import Axes, Drawn, style
from rlcorr_cli.show.figures.names import name_points
from rlcorr_cli.show.forms import sheet as sheets
from rlcorr_cli.show.forms.content import anomaly_cause
from rlcorr_cli.show.forms.sheet import Panel, Section, Sheet
from rlcorr_cli.show.inputs import input_facts, joined, last_change, named
from rlcorr_cli.show.numbers import amounts, number, plural, share
from rlcorr_cli.show.stdout import clean

KIND = "compare"
"""What `plot` calls the picture."""
MOST_GROUPS = 1000
MOST_BARS = 24
STATUS = {"near": "ok", "weight": "ok", "outliers": "warn", "moved": "warn", "far": "fail"}
"""The headline flag -> how the recommendation looks."""


def write(comparison: Comparison, path: Path, staging: Outputs) -> None:
    """Stage a comparison in the form of the path's suffix."""
    sheets.write(sheet(comparison), path, staging)


def drawn(comparison: Comparison) -> Drawn:
    """The picture of a comparison."""
    return sheets.drawn(sheet(comparison), KIND)


def sheet(comparison: Comparison) -> Sheet:
    """What a comparison says."""
    recommendation, counts = comparison.recommendation, comparison.whole.counts
    sections = [Section("Plans", PLAN_NOTE, plan_rows(comparison))]
    of_objective = objective_rows(comparison)
    if of_objective is not None:
        sections.append(Section("Objective", " ".join(objective_notes(comparison)), of_objective))
    if comparison.groups:
        sections.append(Section("Groups", agreement(comparison), group_rows(comparison, MOST_GROUPS)))
    of_groups = group_objective_rows(comparison, MOST_GROUPS)
    if of_groups is not None:
        note = group_objective_note(comparison, MOST_GROUPS)
        sections.append(Section("Objective by group", note, of_groups))
    facts = [(name.replace("_", " "), f"{counts[name]:,}") for name in counts if counts[name]]
    facts += [("columns", ", ".join(clean(column) for column in comparison.inputs[0].columns.values()))]
    facts += input_facts(comparison.inputs)
    return Sheet(
        title=named(comparison.inputs),
        summary=joined(
            *amounts(counts, comparison.clusters),
            plural(len(comparison.whole.plans), "plan"),
            last_change(comparison.inputs),
        ),
        headline=recommendation.headline,
        status="fail" if recommendation.plan is None else STATUS[recommendation.flags[0]],
        sections=sections,
        panels=(
            Panel("Worth of each plan", lambda axes: _worth(axes, comparison)),
            Panel("What is kept, and how far apart it is", lambda axes: _kept(axes, comparison)),
        ),
        facts=[*facts, ("rlcorr", __version__)],
        notes=[*skipped(comparison), *map(clean, comparison.notes)],
        document=comparison.to_dict(),
        records=_records(comparison),
        reasons=[f"{reason.text} `{reason.option}`".removesuffix(" ``") for reason in recommendation.reasons],
        causes=[anomaly_cause(each) for each in comparison.anomalies],
    )


def _records(comparison: Comparison) -> list[dict[str, Any]]:
    """A line for each value of every plan, of the whole dump and of each group."""
    keys = tuple(comparison.groups[0].key) if comparison.groups else ()
    records: list[dict[str, Any]] = []
    for scope, group in (("total", comparison.whole), *(("group", group) for group in comparison.groups)):
        of_group: dict[str, Any] = {"scope": scope, **{name: group.key.get(name) for name in keys}}
        for plan in group.plans:
            for name, value in {**plan.values, **plan.objective_metrics}.items():
                low, high = plan.intervals.get(name, (None, None))
                records.append(of_group | {"plan": plan.name, "column": name, "value": value, "low": low, "high": high})
    return records


def _worth(axes: Axes, comparison: Comparison) -> str:
    """A bar per plan, what it leaves (pale) and is worth (full), the best on top."""
    plans = comparison.sorted_plans()[:MOST_BARS]
    taken = comparison.recommendation.plan
    for place, plan in enumerate(reversed(plans)):
        colour = style.ORANGE if plan.name == taken else style.BLUE
        axes.barh(place, plan.info, color=style.GRID, height=0.7)
        axes.barh(place, plan.worth, color=colour, height=0.7)
    axes.set_yticks(range(len(plans)), [style.label(plan.name) for plan in reversed(plans)], fontsize=7)
    axes.set_xlim(0, 1.02)
    axes.set_xlabel("worth (bar), info (pale)")
    axes.grid(axis="y", visible=False)
    best, left = plans[0], len(comparison.whole.plans) - len(plans)
    sentence = f"{style.label(best.name)} is worth the most: {best.worth:.3f}."
    if any(plan.name == taken for plan in plans):
        sentence += f" Orange: {style.label(taken)}, which to take."
    return f"{sentence} {plural(left, 'plan')} worth less are not shown." if left else sentence


def _kept(axes: Axes, comparison: Comparison) -> str:
    """A point per plan: the tokens kept, and their k3."""
    taken = comparison.recommendation.plan
    points = [
        (plan, plan.values["kept"], plan.values["k3_left"])
        for plan in comparison.sorted_plans()
        if plan.values["kept"] is not None and plan.values["k3_left"] is not None
    ]
    # The plan to take is named first, and drawn last, where no other hides it.
    points.sort(key=lambda point: point[0].name != taken)
    for plan, kept, k3 in reversed(points):
        axes.plot(kept, k3, "o", color=style.ORANGE if plan.name == taken else style.BLUE)
    axes.set_xlim(-0.02, 1.05)
    axes.set_ylim(0, 1.12 * max((k3 for _, _, k3 in points), default=1.0) or 1.0)
    axes.set_xlabel("tokens kept")
    axes.set_ylabel("k3 of what is kept (nats)")
    if not points:
        return "No plan keeps a token."
    name_points(axes, [(kept, k3, plan.name) for plan, kept, k3 in points])
    least = min(points, key=lambda point: point[2])
    return f"{style.label(least[0].name)} leaves the closest tokens: k3 {number(least[2])}, {share(least[1])} kept."
