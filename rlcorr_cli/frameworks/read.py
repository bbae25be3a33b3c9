"""A plan from a file: a framework's own config, known by its keys or by the profile named, or our own records."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcorr_cli.errors import UsageError
from rlcorr_cli.frameworks.peers import peer_of
from rlcorr_cli.frameworks.profile import Profile
from rlcorr_cli.plans.files import load, plan_from_dict
from rlcorr_cli.plans.plan import Plan


@dataclass(frozen=True)
class PlanFile:
    """A file's plan and what its reader should know about it."""

    plan: Plan
    notes: tuple[str, ...]


def read_plan(path: str, profile: Profile | None) -> PlanFile:
    """The plan in a file: a peer's config when a profile is given, else our own records."""
    data, notes = load(Path(path))
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
        plan = peer.plan(data)
        return PlanFile(plan, (f"read as {peer.name}'s config.", *peer.notes(plan)))
    return PlanFile(plan_from_dict(data), ())


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
