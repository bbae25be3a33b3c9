"""`presets` on a terminal, from the tables the code uses; loads neither torch nor numpy."""

import textwrap

from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.plans.presets import PRESETS, Preset, preset
from rlcorr_cli.plans.presets.configs import CONFIGS, PeerConfig
from rlcorr_cli.present.stdout import emit

WIDTH = 80


def print_presets() -> None:
    """Print each preset: name, aliases, when to take it, records."""
    lines: list[str] = []
    for row in PRESETS.values():
        also = f"  (also {', '.join(row.aliases)})" if row.aliases else ""
        lines += [f"{row.name}{also}", *indented(row.when), *indented(records(row.plan)), ""]
    lines.append("Take one with --preset NAME; change it with --is, --rs, --veto and the like.")
    emit("\n".join(lines) + "\n")


def print_preset(name: str) -> None:
    """Print one preset, with the framework's config and the plan file that mean the same."""
    from rlcorr_cli.plans.files import plan_to_toml

    row = preset(name)
    config = CONFIGS.get(row.name)
    lines = about_preset(row)
    if config is not None:
        lines += ["", f"# In the framework's own words{_how_to_read(config)}:", config.text]
    emit("\n".join([*lines, "", "# As a plan file, for --plan:", plan_to_toml(row.plan)]))


def _how_to_read(config: PeerConfig) -> str:
    if config.reader is None:
        return ""
    return " (--plan FILE reads it)" if not config.reader else f" (--profile {config.reader} --plan FILE reads it)"


def about_preset(row: Preset) -> list[str]:
    """What a preset is for, its records, its source and its note, as lines."""
    lines = [row.name, *indented(row.when), *indented(records(row.plan)), *indented(f"Source: {row.source}.")]
    return lines + indented(row.note)


def records(plan: Plan) -> str:
    """A plan's records in one line."""
    parts = [plan.mode, plan.loss]
    if plan.weighting is not None:
        parts.append(f"weights {plan.weighting.rule}")
    parts += [f"keeps {rejection.rule} ({rejection.name})" for rejection in plan.rules]
    return "; ".join(parts)


def indented(text: str) -> list[str]:
    """A paragraph under a name, wrapped for 80 columns."""
    return textwrap.wrap(text, WIDTH - 4, initial_indent="    ", subsequent_indent="    ")
