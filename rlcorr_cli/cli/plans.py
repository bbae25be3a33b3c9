"""Which plan a command line asks for: preset, then file, then flags; resolved in one place."""

from typing import Any, get_args

from rlcorr_cli.cli.option_groups import PlanOptions
from rlcorr_cli.errors import UsageError, nearest
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.plans.flags import override, parse_rejection
from rlcorr_cli.plans.plan import Mode, Normalize, Plan, WeightScope, veto


def resolve(options: PlanOptions, profile_name: str) -> ChosenPlan:
    """preset < file < flags.  A file replaces a preset, so both together are refused rather than one ignored.

    A profile has its peer's plans only, from its peer's config: what it logs of any other would be made up.
    """
    from rlcorr_cli.frameworks.profiles import profile as profile_of
    from rlcorr_cli.frameworks.read import read_plan

    profile = profile_of(profile_name)
    preset, path = options.preset, options.plan
    if preset and path:
        raise UsageError("--preset and --plan both name a plan.", "Keep one, and change it with --is, --rs or --veto.")
    if profile is not None and (preset or options.turns_knobs):
        raise UsageError(
            f"--profile {profile.name} takes its plan from that peer's own config, not from presets or flags.",
            f"Write {profile.keys[0]} and the like to a YAML file and name it with --plan.",
        )
    notes: tuple[str, ...] = ()
    if path:
        found = read_plan(path, profile)
        plan, notes = found.plan, found.notes
    elif preset:
        from rlcorr_cli.plans.presets import preset as preset_of

        named = preset_of(preset)
        plan, notes = named.plan, named.notes
    else:
        plan = Plan("disabled") if profile is None else profile.read({})
    plan = _with_knobs(plan, options)
    return ChosenPlan(plan, profile, notes if profile is None else notes + profile.notes(plan))


def _with_knobs(plan: Plan, options: PlanOptions) -> Plan:
    rejections = tuple(parse_rejection(text) for text in options.rs or ())
    if options.veto is not None:
        rejections += (veto(options.veto),)
    return override(
        plan,
        scope=choice("--is", options.is_scope, get_args(WeightScope)),
        high=options.is_high,
        low=options.is_low,
        outside=choice("--is-outside", options.is_outside, ("clamp", "zero")),
        normalize=choice("--normalize", options.normalize, get_args(Normalize)),
        rejections=rejections,
        mode=choice("--mode", options.mode, get_args(Mode)),
    )


def choice(option: str, value: str | None, allowed: tuple[str, ...]) -> Any:
    """The value if it is allowed, or None."""
    if value is None or value in allowed:
        return value
    message = f"{option} must be one of {', '.join(allowed)}, got '{value}'."
    raise UsageError(message, f"Try {nearest(value, allowed, 1)}.")
