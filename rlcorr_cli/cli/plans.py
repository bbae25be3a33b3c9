"""Which plan a command line asks for: preset, then file, then flags; resolved in one place."""

from dataclasses import dataclass
from typing import Any, get_args

from rlcorr_cli.errors import UsageError, nearest
from rlcorr_cli.plan import Mode, Outside, Plan, WeightScope, override, parse_rejection, veto


@dataclass(frozen=True)
class Flags:
    """The plan's single knobs as typed."""

    scope: str | None
    high: float | None
    low: float | None
    outside: str | None
    normalize: str | None
    rejections: tuple[str, ...]
    veto: float | None
    mode: str | None


@dataclass(frozen=True)
class Chosen:
    """The resolved plan, the peer's profile (None for canonical), and what the user should know about either."""

    plan: Plan
    profile: Any
    notes: tuple[str, ...]


def resolve(preset: str | None, path: str | None, profile_name: str, flags: Flags) -> Chosen:
    """preset < file < flags.  A file replaces a preset, so both together are refused rather than one ignored."""
    from rlcorr_cli.profiles import profile as profile_of

    profile = profile_of(profile_name)
    if preset and path:
        raise UsageError("--preset and --plan both name a plan.", "Keep one, and change it with --is, --rs or --veto.")
    notes: tuple[str, ...] = ()
    if path:
        from rlcorr_cli.planfile import read_plan

        found = read_plan(path, profile)
        plan, notes = found.plan, found.notes
    elif preset:
        from rlcorr_cli.presets import preset as preset_of

        plan = preset_of(preset).plan
    else:
        plan = Plan("disabled")
    plan = _with_flags(plan, flags)
    if profile is not None:
        notes += profile.notes(plan)
    return Chosen(plan, profile, notes)


def _with_flags(plan: Plan, flags: Flags) -> Plan:
    rejections = tuple(parse_rejection(text) for text in flags.rejections)
    if flags.veto is not None:
        rejections += (veto(flags.veto),)
    return override(
        plan,
        scope=_choice("--is", flags.scope, WeightScope),
        high=flags.high,
        low=flags.low,
        outside=_choice("--is-outside", flags.outside, Outside),
        normalize=_choice("--normalize", flags.normalize, None),
        rejections=rejections,
        mode=_choice("--mode", flags.mode, Mode),
    )


def _choice(option: str, value: str | None, literal: Any) -> Any:
    allowed = get_args(literal) if literal else ("none", "batch")
    if value is None or value in allowed:
        return value
    raise UsageError(
        f"{option} must be one of {', '.join(allowed)}, got '{value}'.", f"Try {nearest(value, allowed, 1)}."
    )
