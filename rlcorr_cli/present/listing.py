"""`presets` and `explain` on a terminal, from the tables the code uses; loads neither torch nor numpy."""

import textwrap

from rlcorr_cli.errors import UsageError, nearest
from rlcorr_cli.health import RULES
from rlcorr_cli.metrics import DRIFT, METRICS
from rlcorr_cli.plan import STATISTIC_FORMULAS, Plan
from rlcorr_cli.plan_metrics import FACTOR, OOB, REJECTIONS, WEIGHTS
from rlcorr_cli.present.sink import emit
from rlcorr_cli.presets import ALIASES, PRESETS, Preset, preset
from rlcorr_cli.presets.configs import CONFIGS, PeerConfig

WIDTH = 80


def print_presets() -> None:
    """Each preset: name, aliases, records, when."""
    lines: list[str] = []
    for one in PRESETS.values():
        also = f"  (also {', '.join(one.aliases)})" if one.aliases else ""
        lines += [f"{one.name}{also}", *_wrapped(one.when), *_wrapped(records(one.plan)), ""]
    lines.append("Take one with --preset NAME; change it with --is, --rs, --veto and the like.")
    emit("\n".join(lines) + "\n")


def print_preset(name: str) -> None:
    """One preset, and the peer's config and the plan file that say the same."""
    from rlcorr_cli.planfile import plan_to_toml

    one = preset(name)
    config = CONFIGS.get(one.name)
    lines = _about(one)
    if config is not None:
        lines += ["", f"# In the framework's own words{_how(config)}:", config.text]
    emit("\n".join([*lines, "", "# As a plan file, for --plan:", plan_to_toml(one.plan)]))


def _how(config: PeerConfig) -> str:
    if config.reader is None:
        return ""
    return " (--plan FILE reads it)" if not config.reader else f" (--profile {config.reader} --plan FILE reads it)"


def _about(one: Preset) -> list[str]:
    lines = [one.name, *_wrapped(one.when), *_wrapped(records(one.plan)), *_wrapped(f"Source: {one.source}.")]
    return lines + _wrapped(one.note)


def print_explanation(name: str) -> None:
    """A metric, statistic or preset, by its own name or a peer's; an unknown one is a UsageError with the nearest."""
    key = name.strip().lower().replace("-", "_").rsplit("/", 1)[-1].removeprefix("mismatch_")
    plain = key.removeprefix("kept_") if key not in REJECTIONS else key
    found = PRESETS.get(ALIASES.get(key, key))
    if found is not None:
        lines = _about(found)
    else:
        lines = _definition(plain)
        if lines and plain != key:
            lines += _wrapped("Here over the tokens that the plan's rejections keep.")
    if not lines:
        known = [*DEFINED, *STATISTIC_FORMULAS, *PRESETS, *ALIASES]
        raise UsageError(f"Nothing is called '{name}'.", f"Nearest: {nearest(key, set(known))}.")
    emit("\n".join(lines) + "\n")


DEFINED: dict[str, str] = {
    **{metric.name: metric.formula for metric in (*METRICS, *DRIFT)},
    **{f"rollout_is_{row.name}": row.formula for row in (*WEIGHTS, OOB, FACTOR)},
    **REJECTIONS,
}
"""Every metric's formula, from the tables that compute them."""


def _definition(name: str) -> list[str]:
    """A metric's or statistic's lines; none for an unknown name."""
    if name in STATISTIC_FORMULAS and name not in DEFINED:
        return [name, *_wrapped(f"Rejection statistic: {STATISTIC_FORMULAS[name]}.")]
    if name not in DEFINED:
        return []
    lines = [name, *_wrapped(DEFINED[name])]
    ideal = next((metric.ideal for metric in (*METRICS, *DRIFT) if metric.name == name), None)
    if ideal is not None:
        lines += _wrapped(f"Ideal: {ideal:g}, when the policies are the same.")
    for rule in (rule for rule in RULES if rule.metric == name):
        lines += _wrapped(f"Rule ({rule.severity}): {rule}.  {rule.remedy}")
    return lines


def records(plan: Plan) -> str:
    """A plan's records in one line."""
    parts = [plan.mode, plan.loss]
    if plan.weighting is not None:
        parts.append(f"weights {plan.weighting.rule}")
    parts += [f"keeps {one.rule} ({one.name})" for one in plan.rules]
    return "; ".join(parts)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH - 4, initial_indent="    ", subsequent_indent="    ")
