"""Which plan is asked for, resolved in one place: a plan, a preset's name, a file or a mapping; then single knobs."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rlcorr_cli.commands.arguments import kind_of, one_of
from rlcorr_cli.commands.words import speaks_of_arguments
from rlcorr_cli.errors import UsageError
from rlcorr_cli.frameworks.chosen import CANONICAL, ChosenPlan, profile_called
from rlcorr_cli.places import scheme
from rlcorr_cli.plans.flags import override, parse_rejection
from rlcorr_cli.plans.objective import Aggregation, Denominator, Objective, ObjectiveChoice
from rlcorr_cli.plans.plan import Mode, Normalize, Plan, Rejection, WeightScope
from rlcorr_cli.plans.plan import veto as veto_rejection
from rlcorr_cli.plans.swept import plain

if TYPE_CHECKING:
    from rlcorr_cli.frameworks.profile import Profile

PlanLike = Plan | ChosenPlan | str | Path | Mapping[str, Any]
"""A plan, what `choose_plan` made, a preset's name, a file, or a mapping: our own records or a framework's config."""

FlagOutside = Literal["clamp", "zero"]
"""What a flag may ask for outside the bounds; plan files know more."""

SUFFIXES = (".toml", ".yaml", ".yml", ".json")


@speaks_of_arguments
def choose_plan(
    plan: PlanLike | None = None,
    *,
    profile: str = CANONICAL,
    mode: Mode | None = None,
    is_scope: WeightScope | None = None,
    is_high: float | None = None,
    is_low: float | None = None,
    is_outside: FlagOutside | None = None,
    normalize: Normalize | None = None,
    rs: str | Rejection | Sequence[str | Rejection] = (),
    veto: float | None = None,
) -> ChosenPlan:
    """The plan that is asked for, single knobs turned as by `--is`, `--rs` and the like, with its notes.

    plan: None measures alone.  A URI or a name that ends in .toml, .yaml, .yml or .json is a file's, any other a
    preset's.
    profile: a framework's release, whose plan comes from its own config (a file, a mapping; None for its defaults), or
    a preset that it has.
    rs: rejections, or texts such as 'k3.token:,0.01'.
    """
    rejections = [rs] if isinstance(rs, str | Rejection) else list(rs)
    knobs = (is_scope, is_high, is_low, is_outside, normalize, veto)
    chosen = _resolved(plan, profile, turned=bool(rejections) or any(knob is not None for knob in knobs))
    vetoes = [] if veto is None else [veto_rejection(veto)]
    changed = override(
        chosen.plan,
        scope=_choice("--is", is_scope, WeightScope),
        high=is_high,
        low=is_low,
        outside=_choice("--is-outside", is_outside, FlagOutside),
        normalize=_choice("--normalize", normalize, Normalize),
        rejections=tuple(parse_rejection(each) if isinstance(each, str) else each for each in [*rejections, *vetoes]),
        mode=_choice("--mode", mode, Mode),
    )
    notes = chosen.notes if chosen.profile is None else chosen.notes + chosen.profile.notes(changed)
    knobs = {"--mode": mode, "--is": is_scope, "--is-high": is_high, "--is-low": is_low, "--is-outside": is_outside}
    options = _options(chosen.options, knobs | {"--normalize": normalize, "--veto": veto}, rejections)
    return replace(chosen, plan=changed, notes=tuple(dict.fromkeys(notes)), options=options)


def _options(
    of_plan: tuple[str, ...] | None, knobs: Mapping[str, Any], rejections: Sequence[str | Rejection]
) -> tuple[str, ...] | None:
    """The options of the command line that name a plan, with knobs turned on it; None where it has no such name."""
    turned = {option: value for option, value in knobs.items() if value is not None}
    texts = [text for text in rejections if isinstance(text, str)]
    if of_plan is None or len(texts) < len(rejections):
        return None
    kept = (option for option in of_plan if option.partition(" ")[0] not in turned)
    values = (f"{option} {value if isinstance(value, str) else plain(value)}" for option, value in turned.items())
    return (*kept, *values, *(f"--rs {shlex.quote(text)}" for text in texts))


ObjectiveLike = Objective | ObjectiveChoice


@speaks_of_arguments
def choose_objective(
    plan: PlanLike | None = None,
    objective: ObjectiveChoice = "auto",
    *,
    clip_low: float | None = None,
    clip_high: float | None = None,
    dual_clip: float | None = None,
    aggregation: Aggregation | None = None,
    loss_constant: float | None = None,
    denominator: Denominator = "kept",
) -> Objective:
    """The policy objective of a plan, for `analyze`, with its knobs as by `--clip-low`, `--loss-agg` and the like.

    objective: auto is PPO or reinforce, as the plan's loss is.  Knobs left out are those of the method's paper: clips
    0.2 (3e-4 and 4e-4 of GSPO), the token mean (GSPO: of each sequence's mean).
    """
    _refuse_no_number("--clip-low", clip_low)
    _refuse_no_number("--clip-high", clip_high)
    _refuse_no_number("--dual-clip", dual_clip)
    _refuse_no_number("--loss-constant", loss_constant)
    one_of("--objective", objective, ObjectiveChoice)
    return Objective.of(
        choose_plan(plan).plan,
        None if objective == "auto" else objective,
        clip_low=clip_low,
        clip_high=clip_high,
        dual_clip=dual_clip,
        aggregation=_choice("--loss-agg", aggregation, Aggregation),
        loss_constant=loss_constant,
        denominator=one_of("--loss-denominator", denominator, Denominator),
    )


def _refuse_no_number(name: str, value: Any) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise UsageError(f"{name} should be a number, not {kind_of(value)}.", "Leave it out for the default.")


def objective_under(plan: ChosenPlan, objective: Any) -> Objective | None:
    """The objective that is asked for under a plan: one that was chosen, or a name."""
    if objective is None:
        return None
    if not isinstance(objective, Objective):
        return choose_objective(plan, objective)
    if objective.mode != plan.plan.mode:
        raise UsageError(
            f"The objective is one of {objective.mode} mode, and the plan of {plan.plan.mode} mode.",
            "Choose it for this plan.",
        )
    return objective


def plan_file(plan: Any) -> str | None:
    """The file that a plan comes from, if any."""
    if isinstance(plan, ChosenPlan):
        return plan.file
    return str(plan) if isinstance(plan, Path) or (isinstance(plan, str) and _names_file(plan)) else None


def _names_file(plan: str) -> bool:
    return bool(scheme(plan)) or plan.lower().endswith(SUFFIXES)


def _choice(option: str, value: Any, choices: Any) -> Any:
    return None if value is None else one_of(option, value, choices)


def _resolved(plan: Any, profile_name: str, *, turned: bool) -> ChosenPlan:
    """The plan before knobs.  A profile has its framework's plans only: what that logs of others would be made up."""
    profile = profile_called(profile_name)
    if profile is not None and isinstance(plan, ChosenPlan) and plan.profile is None:
        raise _not_of(profile)
    if isinstance(plan, ChosenPlan):
        if turned and plan.profile is not None:
            raise _not_of(plan.profile)
        return plan if profile is None else replace(plan, profile=profile)
    is_preset = isinstance(plan, str) and not _names_file(plan)
    if profile is not None and (turned or isinstance(plan, Plan)):
        raise _not_of(profile)
    return _source(plan, profile, is_preset=is_preset)


def _source(plan: Any, profile: "Profile | None", *, is_preset: bool) -> ChosenPlan:
    """What a plan is named by, read."""
    if plan is None:
        return ChosenPlan(plan=Plan("disabled") if profile is None else profile.read({}), profile=profile, options=())
    if isinstance(plan, Plan):
        return ChosenPlan(plan=plan)
    if is_preset:
        from rlcorr_cli.plans.presets import preset

        named = preset(plan)
        if profile is None:
            return ChosenPlan(plan=named.plan, notes=named.notes, options=(f"--preset {shlex.quote(plan)}",))
        from rlcorr_cli.frameworks.read import preset_in

        own = preset_in(named, profile)
        return ChosenPlan(plan=own.plan, profile=profile, notes=own.notes)
    if isinstance(plan, str | Path):
        from rlcorr_cli.frameworks.read import read_plan

        file = read_plan(str(plan), profile)
        options = (f"--plan {shlex.quote(str(plan))}",)
        return ChosenPlan(plan=file.plan, profile=profile, notes=file.notes, file=str(plan), options=options)
    if isinstance(plan, Mapping):
        from rlcorr_cli.frameworks.read import plan_in

        read = plan_in(dict(plan), profile)
        return ChosenPlan(plan=read.plan, profile=profile, notes=read.notes)
    raise UsageError(
        f"plan should be a Plan, a preset's name, a file's path or a mapping, not {kind_of(plan)}.",
        'For example plan="token_is".',
    )


def _not_of(profile: "Profile") -> UsageError:
    return UsageError(
        f"--profile {profile.name} takes its plan from that framework's own config or presets, not from flags.",
        f"Write {profile.keys[0]} and the like to a YAML file and name it with --plan.",
    )
