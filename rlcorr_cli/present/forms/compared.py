"""A comparison's Sheet: what it says in every form, and its two panels."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from rlcorr_cli import __version__
from rlcorr_cli.atomic import Destination, Staging
from rlcorr_cli.present.compared import PLAN_NOTE, agreement, group_rows, objective_rows, plan_rows, skipped, title
from rlcorr_cli.present.figures import style
from rlcorr_cli.present.forms import sheet as sheets
from rlcorr_cli.present.forms.content import Cause
from rlcorr_cli.present.forms.sheet import Panel, Section, Sheet
from rlcorr_cli.present.numbers import number, plural, share
from rlcorr_cli.present.stdout import clean
from rlcorr_cli.present.terminal.verdict import anomaly_sentence
from rlcorr_cli.report.compared import Comparison

MOST_GROUPS = 1000
MOST_BARS = 24
STATUS = {"near": "ok", "weight": "ok", "outliers": "warn", "moved": "warn", "far": "fail"}
"""The headline flag -> how the recommendation looks."""


def destinations(path: Path) -> tuple[Destination, ...]:
    """All that may be written for a comparison of this name."""
    return sheets.destinations(path)


def write(comparison: Comparison, path: Path, staging: Staging) -> None:
    """Stage a comparison in the form of the path's suffix."""
    sheets.write(sheet(comparison), path, staging)


def sheet(comparison: Comparison) -> Sheet:
    """What a comparison says."""
    recommendation, counts = comparison.recommendation, comparison.whole.counts
    sections = [Section("Plans", PLAN_NOTE, plan_rows(comparison))]
    of_objective = objective_rows(comparison)
    if of_objective is not None:
        sections.append(Section("Objective", "Means over the training batches.", of_objective))
    if comparison.groups:
        sections.append(Section("Groups", agreement(comparison), group_rows(comparison, MOST_GROUPS)))
    facts = [(name.replace("_", " "), f"{counts[name]:,}") for name in counts if counts[name]]
    facts += [("columns", ", ".join(clean(column) for column in comparison.inputs[0].columns.values()))]
    facts += [("input", clean(source.path)) for source in comparison.inputs[:20]]
    return Sheet(
        title=title(comparison),
        summary=", ".join(
            (
                plural(counts["sequences"], "sequence"),
                plural(counts["tokens"], "token"),
                plural(len(comparison.whole.plans), "plan"),
            )
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
        reasons=[f"{reason.text} {reason.option}".rstrip() for reason in recommendation.reasons],
        causes=[
            Cause("fail" if each.voids else "warn", f"{each.name}: {clean(anomaly_sentence(each))}", each.fix)
            for each in comparison.anomalies
        ],
    )


def _records(comparison: Comparison) -> list[dict[str, Any]]:
    """A line for each value of every plan, of the whole dump and of each group."""
    keys = tuple(comparison.groups[0].key) if comparison.groups else ()
    records: list[dict[str, Any]] = []
    for scope, group in (("total", comparison.whole), *(("group", group) for group in comparison.groups)):
        of_group: dict[str, Any] = {"scope": scope, **{name: group.key.get(name) for name in keys}}
        for plan in group.plans:
            for name, value in plan.values.items():
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
    best = plans[0]
    sentence = f"The most is worth {style.label(best.name)}: {best.worth:.3f}."
    left = len(comparison.whole.plans) - len(plans)
    return f"{sentence} {left} plans worth less are not shown." if left else sentence


def _kept(axes: Axes, comparison: Comparison) -> str:
    """A point per plan: the tokens kept, and their k3."""
    points = [
        (plan, plan.values["kept"], plan.values["k3_left"])
        for plan in comparison.sorted_plans()
        if plan.values["kept"] is not None and plan.values["k3_left"] is not None
    ]
    taken = comparison.recommendation.plan
    named: list[tuple[float, float]] = []
    for plan, kept, k3 in points:
        axes.plot(kept, k3, "o", color=style.ORANGE if plan.name == taken else style.BLUE, alpha=0.8)
        # A name where no other stands already: plans that keep everything lie on one point.
        if all(abs(kept - x) > 0.04 or abs(k3 - y) > 0.04 * max(k3, y) for x, y in named):
            side = "right" if kept > 0.5 else "left"
            offset = (-6, 4) if side == "right" else (6, 4)
            axes.annotate(
                style.label(plan.name), (kept, k3), xytext=offset, textcoords="offset points", ha=side, fontsize=7
            )
            named.append((kept, k3))
    axes.set_xlim(-0.02, 1.05)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("tokens kept")
    axes.set_ylabel("k3 of what is kept (nats)")
    if not points:
        return "No plan keeps a token."
    least = min(points, key=lambda point: point[2])
    return (
        f"The closest tokens are left by {style.label(least[0].name)}: k3 {number(least[2])}, {share(least[1])} kept."
    )
