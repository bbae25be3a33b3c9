"""Which plan a command line asks for: preset, then file, then flags; resolved in one place."""

from dataclasses import dataclass
from typing import Any, get_args

from rlcorr_cli.errors import UsageError, nearest
from rlcorr_cli.plan import Mode, Normalize, Plan, WeightScope, override, parse_rejection, veto


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

    @property
    def change_plan(self) -> bool:
        """Whether any knob but the mode is turned."""
        knobs = (self.scope, self.high, self.low, self.outside, self.normalize, self.veto)
        return bool(self.rejections) or any(knob is not None for knob in knobs)


@dataclass(frozen=True)
class Chosen:
    """The resolved plan, the peer's profile (None for canonical), and what the user should know about either."""

    plan: Plan
    profile: Any
    notes: tuple[str, ...]


def resolve(preset: str | None, path: str | None, profile_name: str, flags: Flags) -> Chosen:
    """preset < file < flags.  A file replaces a preset, so both together are refused rather than one ignored.

    A profile has its peer's plans only, from its peer's config: what it logs of any other would be made up.
    """
    from rlcorr_cli.planfile import read_plan
    from rlcorr_cli.profiles import profile as profile_of

    profile = profile_of(profile_name)
    if preset and path:
        raise UsageError("--preset and --plan both name a plan.", "Keep one, and change it with --is, --rs or --veto.")
    if profile is not None and (preset or flags.change_plan):
        raise UsageError(
            f"--profile {profile.name} takes its plan from that peer's own config, not from presets or flags.",
            f"Write {profile.keys[0]} and the like to a YAML file and name it with --plan.",
        )
    notes: tuple[str, ...] = ()
    if path:
        found = read_plan(path, profile)
        plan, notes = found.plan, found.notes
    elif preset:
        from rlcorr_cli.presets import preset as preset_of

        named = preset_of(preset)
        plan, notes = named.plan, named.notes
    else:
        plan = Plan("disabled") if profile is None else profile.read({})
    plan = _with_flags(plan, flags)
    return Chosen(plan, profile, notes if profile is None else notes + profile.notes(plan))


def _with_flags(plan: Plan, flags: Flags) -> Plan:
    rejections = tuple(parse_rejection(text) for text in flags.rejections)
    if flags.veto is not None:
        rejections += (veto(flags.veto),)
    return override(
        plan,
        scope=choice("--is", flags.scope, get_args(WeightScope)),
        high=flags.high,
        low=flags.low,
        outside=choice("--is-outside", flags.outside, ("clamp", "zero")),
        normalize=choice("--normalize", flags.normalize, get_args(Normalize)),
        rejections=rejections,
        mode=choice("--mode", flags.mode, get_args(Mode)),
    )


def choice(option: str, value: str | None, allowed: tuple[str, ...]) -> Any:
    """The value if it is allowed, or None."""
    if value is None or value in allowed:
        return value
    message = f"{option} must be one of {', '.join(allowed)}, got '{value}'."
    raise UsageError(message, f"Try {nearest(value, allowed, 1)}.")
