"""A plan from a file: a framework's own config, known by its keys or by the profile named, or our own records."""

from dataclasses import dataclass, replace
from typing import Any

from rlcorr_cli.errors import UsageError
from rlcorr_cli.frameworks.peers import peer_of
from rlcorr_cli.frameworks.profile import Profile
from rlcorr_cli.plans.files import load, plan_from_dict
from rlcorr_cli.plans.plan import Bounds, Plan
from rlcorr_cli.plans.preset_configs import CONFIGS
from rlcorr_cli.plans.presets import PRESETS, Preset

LISTED = 6
"""Presets that an error names."""


@dataclass(frozen=True)
class PlanFile:
    """A file's plan and what its reader should know about it."""

    plan: Plan
    notes: tuple[str, ...]


def read_plan(path: str, profile: Profile | None) -> PlanFile:
    """The plan in a file: a peer's config when a profile is given, else our own records."""
    data, notes = load(path)
    try:
        read = plan_in(data, profile)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", error.hint) from None
    return PlanFile(read.plan, tuple(f"{path}, {note}" for note in (*notes, *read.notes)))


def plan_in(data: dict[str, Any], profile: Profile | None) -> PlanFile:
    """The same of what a file would hold."""
    if profile is not None:
        config = _block(data, profile)
        return PlanFile(profile.read(config), tuple(profile.ignored(config)))
    if peer := peer_of(data):
        options = peer.options(data)
        plan = peer.read(options)
        return PlanFile(plan, (f"read as {peer.name}'s config.", *peer.notes(options, plan)))
    return PlanFile(plan_from_dict(data), ())


def preset_in(row: Preset, profile: Profile) -> PlanFile:
    """A preset as a framework's release has it; a UsageError where the release has nothing that means the same."""
    config = CONFIGS.get(row.name)
    plan = None if config is None or not config.reader else _understood(config.text, profile)
    if config is None or plan is None or _meaning(plan) != _meaning(row.plan):
        names = presets_of(profile)
        has = f"It has {', '.join(names[:LISTED])}{', …' if len(names) > LISTED else ''}; or name" if names else "Name"
        raise UsageError(f"{profile.name} has no preset '{row.name}'.", f"{has} its own config with --plan.")
    options = ", ".join(line.strip() for line in config.text.splitlines() if not line.endswith(":"))
    return PlanFile(plan, (f"{row.name} as {profile.name} has it: {options}.",))


def presets_of(profile: Profile) -> tuple[str, ...]:
    """The presets that a framework's release has, each by its shortest name."""
    plans = {row: _understood(CONFIGS[row.name].text, profile) for row in _with_reader()}
    same = (row for row, plan in plans.items() if plan is not None and _meaning(plan) == _meaning(row.plan))
    return tuple(min((row.name, *row.aliases), key=len) for row in same)


def _with_reader() -> tuple[Preset, ...]:
    return tuple(row for row in PRESETS.values() if row.name in CONFIGS and CONFIGS[row.name].reader)


def _understood(text: str, profile: Profile) -> Plan | None:
    """The plan of a config; None where the release does not know an option, or refuses a value."""
    from rlcorr_cli.plans.yaml_files import parse_yaml  # here, not above: most runs read no YAML

    try:
        return plan_in(parse_yaml(text).data, profile).plan
    except UsageError:
        return None


def _meaning(plan: Plan) -> object:
    """What a plan does to a dump, apart from what its records are called and where a release limits log-ratios."""
    weighting = plan.weighting
    if weighting is not None and weighting.outside == "clamp" and not weighting.bounds.low:
        weighting = replace(weighting, bounds=Bounds(None, weighting.bounds.high))
    rejections = tuple(replace(rejection, name="r") for rejection in plan.rejections)
    return weighting, rejections, plan.budgets, plan.mode, plan.loss


def _block(data: dict[str, Any], profile: Profile) -> dict[str, Any]:
    """The peer's options: under one of its blocks, else at top level."""
    for path in profile.blocks:
        inner: Any = data
        for key in path:
            inner = inner.get(key) if isinstance(inner, dict) else None
        if isinstance(inner, dict) and any(key in profile.keys for key in inner):
            block = {str(key): value for key, value in inner.items()}
            # A whole trainer config's block holds options of other parts too; a correction block of its own does not.
            return {k: v for k, v in block.items() if k in profile.keys} if path == ("algorithm",) else block
    if data and not any(key in profile.keys for key in data):
        where = " or ".join(".".join(path) for path in profile.blocks)
        raise UsageError(
            f"there is no option of {profile.name} in it.", f"They are looked for under {where}, and at top level."
        )
    return data
