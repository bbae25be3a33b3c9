"""`presets` and `explain` on a terminal, from the tables the code uses; loads neither torch nor numpy."""

import textwrap
from collections.abc import Sequence

from rlcorr_cli.errors import UsageError, nearest
from rlcorr_cli.health import RULES
from rlcorr_cli.metrics import METRICS
from rlcorr_cli.plan import Plan
from rlcorr_cli.present.sink import emit
from rlcorr_cli.presets import ALIASES, PRESETS, Preset

WIDTH = 80


def print_presets(presets: Sequence[Preset]) -> None:
    """Each preset: name, aliases, records, when."""
    lines: list[str] = []
    for one in presets:
        also = f"  (also {', '.join(one.aliases)})" if one.aliases else ""
        lines += [f"{one.name}{also}", *_wrapped(one.when), *_wrapped(records(one.plan)), ""]
    lines.append("Take one with --preset NAME; change it with --is, --rs, --veto and the like.")
    emit("\n".join(lines) + "\n")


def print_explanation(name: str) -> None:
    """A metric or a preset; an unknown name is a UsageError with the nearest."""
    metric = next((m for m in METRICS if m.name == name), None)
    key = name.lower().replace("-", "_")
    if metric is not None:
        lines = [metric.name, *_wrapped(metric.formula)]
        if metric.ideal is not None:
            lines += _wrapped(f"Ideal: {metric.ideal:g}, when the policies are the same.")
    elif ALIASES.get(key, key) in PRESETS:
        one = PRESETS[ALIASES.get(key, key)]
        lines = [one.name, *_wrapped(one.when), *_wrapped(records(one.plan)), *_wrapped(f"Source: {one.source}.")]
    else:
        lines = [name] if any(rule.metric == name for rule in RULES) else []
    for rule in (rule for rule in RULES if rule.metric == name):
        lines += _wrapped(f"Rule ({rule.severity}): {rule}.  {rule.remedy}")
    if not lines:
        known = [*(m.name for m in METRICS), *PRESETS, *ALIASES, *(rule.metric for rule in RULES)]
        raise UsageError(f"Nothing is called '{name}'.", f"Nearest: {nearest(name, set(known))}.")
    emit("\n".join(lines) + "\n")


def records(plan: Plan) -> str:
    """A plan's records in one line."""
    parts = [plan.mode, plan.loss]
    if plan.weighting is not None:
        one = plan.weighting
        parts.append(f"weights {one.scope} {one.bounds} ({one.outside})")
    parts += [f"keeps {r.statistic} {r.scope} {r.bounds} ({r.name})" for r in plan.rejections]
    return "; ".join(parts)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH - 4, initial_indent="    ", subsequent_indent="    ")
