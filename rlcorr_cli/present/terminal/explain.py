"""`presets` and `explain` on a terminal, from the tables the code uses; loads neither torch nor numpy."""

import json
import textwrap
from pathlib import Path

from rlcorr_cli.errors import UsageError, nearest
from rlcorr_cli.metrics.corrections import FACTOR, OOB, REJECTIONS, WEIGHTS
from rlcorr_cli.metrics.diagnostics import DRIFT, METRICS
from rlcorr_cli.metrics.origins import ORIGINS
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.plans.presets import ALIASES, PRESETS, Preset, preset
from rlcorr_cli.plans.presets.configs import CONFIGS, PeerConfig
from rlcorr_cli.plans.statistics import STATISTICS
from rlcorr_cli.present.stdout import emit
from rlcorr_cli.quality.anomalies import SUSPICIONS
from rlcorr_cli.quality.bad_rows import PROBLEMS
from rlcorr_cli.rules.defaults import RULES

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
    from rlcorr_cli.plans.files import plan_to_toml

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
    """A metric, statistic, preset, class of bad rows or suspicion, by its own name or a peer's; an unknown one is a
    UsageError with the nearest."""
    key = name.strip().lower().replace("-", "_").rsplit("/", 1)[-1].removeprefix("mismatch_")
    plain = key.removeprefix("kept_") if key not in REJECTIONS else key
    found = PRESETS.get(ALIASES.get(key, key))
    if found is not None:
        lines = _about(found)
    else:
        lines = _definition(plain) or _class(key)
        if lines and plain != key:
            lines += _wrapped("Here over the tokens that the plan's rejections keep.")
    if not lines:
        classes = (one.name for one in (*PROBLEMS, *SUSPICIONS))
        known = [*DEFINED, *STATISTICS, *PRESETS, *ALIASES, *classes]
        raise UsageError(f"Nothing is called '{name}'.", f"Nearest: {nearest(key, set(known))}.")
    emit("\n".join(lines) + "\n")


def print_schema(name: str | None) -> None:
    """The JSON Schema of every output, or of the one named."""
    text = (Path(__file__).parents[2] / "report" / "schema.json").read_text(encoding="utf-8")
    whole = json.loads(text)
    outputs = [one["$ref"].removeprefix("#/$defs/") for one in whole["anyOf"]]
    if name is not None:
        if name not in outputs:
            raise UsageError(f"There is no output '{name}' with a schema.", f"Nearest: {nearest(name, outputs)}.")
        del whole["anyOf"]
        text = json.dumps({**whole, "$ref": f"#/$defs/{name}"}, indent=2) + "\n"
    emit(text)


DEFINED: dict[str, str] = {
    **{metric.name: metric.formula for metric in (*METRICS, *DRIFT)},
    **{f"rollout_is_{row.name}": row.formula for row in (*WEIGHTS, OOB, FACTOR)},
    **REJECTIONS,
}
"""Every metric's formula, from the tables that compute them."""


UNITS: dict[str, str] = {
    **{metric.name: metric.unit for metric in (*METRICS, *DRIFT)},
    **{f"rollout_is_{row.name}": row.unit for row in (*WEIGHTS, OOB, FACTOR)},
    **{name: name.removeprefix("kept_") if name.startswith("kept_") else "share" for name in REJECTIONS},
}


def _origin(name: str) -> str:
    if name.startswith("retention_"):
        return "MaxText's retention bands"
    if name.startswith("log_ratio_p"):
        return "a histogram of l, merged exactly"
    return ORIGINS.get(name, f"verl's rollout_corr/{name}")


def _class(name: str) -> list[str]:
    """A class of bad rows, or a suspicion about whole files."""
    for one in PROBLEMS:
        if one.name == name:
            what = "Class of bad rows: --on-bad-row says what is done about them."
            return [
                name,
                *_wrapped(one.means),
                *_wrapped(what),
                *_wrapped(f"Cure: {one.cure}"),
                *_wrapped(f"Seen in: {one.seen}."),
            ]
    for one in SUSPICIONS:
        if one.name == name:
            what = "Suspicion about a whole file, from its first rows: a warning that changes nothing."
            return [
                name,
                *_wrapped(one.means),
                *_wrapped(what),
                *_wrapped(f"Cure: {one.cure}"),
                *_wrapped(f"Source: {one.source}."),
            ]
    return []


def _definition(name: str) -> list[str]:
    """A metric's or statistic's lines; none for an unknown name."""
    if name in STATISTICS and name not in DEFINED:
        return [name, *_wrapped(f"Rejection statistic: {STATISTICS[name].formula}.")]
    if name not in DEFINED:
        return []
    lines = [name, *_wrapped(DEFINED[name])]
    ideal = next((metric.ideal for metric in (*METRICS, *DRIFT) if metric.name == name), None)
    if ideal is not None:
        lines += _wrapped(f"Ideal: {ideal:g}, when the policies are the same.")
    lines += _wrapped(f"Unit: {UNITS[name]}. Shape: one number for the whole dump, and one for each group.")
    for rule in (rule for rule in RULES if rule.metric == name):
        lines += _wrapped(f"Rule ({rule.severity}): {rule}.  {rule.remedy}")
    return lines + _wrapped(f"Source: {_origin(name)}.")


def records(plan: Plan) -> str:
    """A plan's records in one line."""
    parts = [plan.mode, plan.loss]
    if plan.weighting is not None:
        parts.append(f"weights {plan.weighting.rule}")
    parts += [f"keeps {one.rule} ({one.name})" for one in plan.rules]
    return "; ".join(parts)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH - 4, initial_indent="    ", subsequent_indent="    ")
