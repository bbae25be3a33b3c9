"""Which plan and which objective are asked for: a preset's name, or a file, a mapping or a Plan; then single knobs."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rlcorr_cli.commands import completion
from rlcorr_cli.commands.arguments import OBJECTIVE, PLAN, How, ModeName
from rlcorr_cli.commands.declared import Opt, PythonOnly, changed, several, takes
from rlcorr_cli.errors import UsageError, as_flags, plain
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.frameworks.profiles import profile_called
from rlcorr_cli.frozen import frozen
from rlcorr_cli.metrics.framework_names import CANONICAL
from rlcorr_cli.plans.flags import override
from rlcorr_cli.plans.objective import Aggregation, Denominator, Objective, ObjectiveBlock, ObjectiveChoice
from rlcorr_cli.plans.plan import Normalize, Plan, Rejection

if TYPE_CHECKING:
    from rlcorr_cli.frameworks.framework import Framework

PlanLike = Plan | ChosenPlan | str | Path | Mapping[str, Any]
"""A plan, what `choose_plan` made, a file, or a mapping of what a file would hold: our own records, or a framework's
config."""


@frozen(kw_only=True, eq=False)
class PlanOptions:
    """Which plan, and what is turned on it, a knob at a time."""

    preset: Annotated[
        str | None,
        Opt(
            help="A named correction, such as token_is; `rlcorr presets` lists all.",
            panel=PLAN,
            metavar="NAME",
            should="be a preset's name",
            such_as="token_is",
            offers=completion.presets,
        ),
    ] = None
    plan: Annotated[
        PlanLike | None,
        Opt(
            help="A plan file or a framework's config.",
            python="Or a Plan, what `choose_plan` made, or a mapping of what a file would hold.",
            panel=PLAN,
            metavar="FILE",
            should="be a Plan, a file's path or a mapping",
            such_as="mine.toml",
        ),
    ] = None
    mode: ModeName = None
    is_: Annotated[
        str | None,
        Opt(
            help="Importance weights, such as token:,2, sequence:,2 or token:0.5,5:zero (0 outside the bounds; else "
            "clamped to them).",
            panel=PLAN,
            metavar="SCOPE:LOW,HIGH[:zero]",
            such_as="token:,2",
            offers=completion.weight_scopes,
        ),
    ] = None
    normalize: Annotated[Normalize | None, Opt(help="Divide weights by their batch mean.", panel=PLAN, rare=True)] = (
        None
    )
    rs: Annotated[
        str | Rejection | Sequence[str | Rejection],
        Opt(
            help="A rejection, such as ratio.seq_mean:0.999,1.001 or k3.token:,0.01; `rlcorr help corrections` lists "
            "them. Repeatable.",
            python="Or a Rejection.",
            panel=PLAN,
            metavar="STAT.SCOPE:LOW,HIGH",
            should="be a rejection, or a list of them",
            such_as="k3.token:,0.01",
            offers=completion.rejections,
        ),
    ] = ()
    veto: Annotated[float | None, Opt(help="Reject sequences with a token ratio below this.", panel=PLAN)] = None


@frozen(kw_only=True, eq=False)
class ProfiledPlanOptions(PlanOptions):
    """The same, with a framework's own numbers."""

    profile: Annotated[
        str,
        Opt(
            help="canonical, or a framework's own numbers: verl-mismatch, verl-0.6, verl-0.7, verl-0.8, verl-0.9, "
            "slime.",
            panel=PLAN,
            metavar="NAME",
            offers=completion.profiles,
            rare=True,
        ),
    ] = CANONICAL


def asks_for_plan(options: PlanOptions) -> bool:
    """Whether any option asks for a plan, or turns a knob of one."""
    return bool(changed(options, ProfiledPlanOptions))


@takes(ProfiledPlanOptions)
def choose_plan(options: ProfiledPlanOptions) -> ChosenPlan:
    """The plan that is asked for, with its knobs turned, and its notes; `plan` of every command takes it.

    A profile is a framework's release, whose plan comes from its own config (a file, a mapping; none for its defaults),
    or a preset that it has.
    """
    return chosen_plan(options)


def chosen_plan(options: PlanOptions) -> ChosenPlan:
    """The plan that is asked for among the options of a command, with its knobs turned."""
    profile = profile_called(options.profile) if isinstance(options, ProfiledPlanOptions) else None
    knobs = {name: getattr(options, name) for name in changed(options, PlanOptions) if name not in ("preset", "plan")}
    rules = several(knobs.pop("rs", ()))
    chosen = plan_of(options.preset, options.plan, profile, is_changed=bool(rules or knobs.keys() - {"mode"}))
    plan = override(chosen.plan, rs=rules, **knobs)
    notes = chosen.notes if chosen.profile is None else chosen.notes + chosen.profile.notes(plan)
    named = None
    if chosen.options is not None and all(isinstance(rule, str) for rule in rules):
        flags = {as_flags(f"⟦{name}⟧"): value for name, value in knobs.items()}
        kept = (option for option in chosen.options if option.partition(" ")[0] not in flags)
        values = (f"{flag} {value if isinstance(value, str) else plain(value)}" for flag, value in flags.items())
        named = (*kept, *values, *(f"--rs {shlex.quote(rule)}" for rule in rules))
    return replace(chosen, plan=plan, notes=tuple(dict.fromkeys(notes)), options=named)


def plan_of(
    preset: str | None, plan: PlanLike | None, profile: "Framework | None" = None, *, is_changed: bool = False
) -> ChosenPlan:
    """The plan of a preset's name; or one that is given, or that a file or a mapping holds; without any of these, none
    that corrects.

    A profile has its framework's plans only: what that logs of others would be made up.  is_changed: whether knobs are
    to be turned on the plan.
    """
    if plan is not None and preset is not None:
        raise UsageError("⟦preset⟧ and ⟦plan⟧ both name a plan.", "Keep one, and change it with ⟦is_⟧, ⟦rs⟧ or ⟦veto⟧.")
    holder = plan.profile if isinstance(plan, ChosenPlan) else profile
    asked = holder or profile
    if asked is not None and (holder is None or is_changed or isinstance(plan, Plan)):
        raise UsageError(
            f"⟦profile {asked.name}⟧ takes its plan from that framework's own config or presets, not from flags.",
            f"Write {asked.keys[0]} and the like to a YAML file and name it with ⟦plan⟧.",
        )
    if isinstance(plan, ChosenPlan):
        return replace(plan, profile=profile or holder)
    if isinstance(plan, Plan):
        return ChosenPlan(plan=plan)
    if preset is None and plan is None:
        return ChosenPlan(plan=Plan("disabled") if profile is None else profile.read({}), profile=profile, options=())
    from rlcorr_cli.plans import presets

    if preset is not None and profile is None:
        row = presets.preset(preset)
        return ChosenPlan(plan=row.plan, notes=row.notes, options=(f"--preset {shlex.quote(preset)}",))
    from rlcorr_cli.frameworks import read

    if preset is not None and profile is not None:
        return read.preset_in(presets.preset(preset), profile)
    if isinstance(plan, Mapping):
        return read.plan_in(dict(plan), profile)
    if isinstance(plan, str) and presets.is_preset(plan):
        raise UsageError(f"⟦plan⟧ takes a file, and {plan} is a preset.", f"Write ⟦preset {plan}⟧.")
    return replace(read.read_plan(str(plan), profile), options=(f"--plan {shlex.quote(str(plan))}",))


@frozen(kw_only=True, eq=False)
class ObjectiveOptions:
    """Which policy objective, and what is turned on it, a knob at a time."""

    objective: Annotated[
        Objective | ObjectiveChoice | None,
        Opt(
            help="Also report this objective's loss and gradient (needs advantages). auto: the plan's own loss.",
            python="Or what `choose_objective` made.",
            panel=OBJECTIVE,
            typed=ObjectiveChoice | None,
        ),
    ] = None
    clip_low: Annotated[
        float | None, Opt(help="Lower clip range (default 0.2; gspo 3e-4).", panel=OBJECTIVE, rare=True)
    ] = None
    clip_high: Annotated[
        float | None, Opt(help="Upper clip range (default 0.2; gspo 4e-4).", panel=OBJECTIVE, rare=True)
    ] = None
    loss_agg: Annotated[
        Aggregation | None,
        Opt(help="How token losses are averaged (the last is Dr.GRPO's).", panel=OBJECTIVE, rare=True),
    ] = None


@frozen(kw_only=True, eq=False)
class HowPlanned(PlanOptions, How):
    """How a dump is read, and by which plan."""


@frozen(kw_only=True, eq=False)
class HowCorrected(ObjectiveOptions, ProfiledPlanOptions, How):
    """How a dump is read, by which plan it is corrected, and which objective is reported."""


@frozen(kw_only=True, eq=False)
class ChoosingObjective(ProfiledPlanOptions, ObjectiveOptions):
    """What `choose_objective` takes: beside the knobs, what on a command line the `objective` block of a plan's file
    says."""

    dual_clip: Annotated[float | None, PythonOnly("PPO's second clip, where A < 0; none unless named.")] = None
    loss_constant: Annotated[
        float | None, PythonOnly("What seq-mean-token-sum-norm divides a sequence's sum by, such as 8192.")
    ] = None
    denominator: Annotated[
        Denominator | None, PythonOnly("Divide by what the plan keeps (kept, the default), or by all that is valid.")
    ] = None


@takes(ChoosingObjective)
def choose_objective(options: ChoosingObjective) -> Objective:
    """The policy objective of a plan with its knobs; `objective` of every command takes it.

    Knobs left out are those of the plan file's `objective` block, and then of the method's paper: clips 0.2 (3e-4 and
    4e-4 of GSPO), the token mean (GSPO: of each sequence's mean).
    """
    return _turned(chosen_plan(options), options)


def asks_for_objective(options: ObjectiveOptions) -> bool:
    """Whether any option asks for an objective, or turns a knob of one."""
    return bool(changed(options, ObjectiveOptions))


def objective_under(plan: ChosenPlan, options: ObjectiveOptions) -> Objective | None:
    """The objective that is asked for under a plan, or that of the plan's file; None where neither is."""
    objective = options.objective
    if not isinstance(objective, Objective):
        return _turned(plan, options) if asks_for_objective(options) or plan.objective is not None else None
    if changed(options, ObjectiveOptions) != ["objective"]:
        raise UsageError(
            "⟦clip_low⟧, ⟦clip_high⟧ and ⟦loss_agg⟧ change an objective of a name, and this one was chosen already.",
            "Name them where it is chosen.",
        )
    if objective.mode != plan.plan.mode:
        raise UsageError(
            f"The objective is one of {objective.mode} mode, and the plan of {plan.plan.mode} mode.",
            "Choose it for this plan.",
        )
    return objective


def _turned(plan: ChosenPlan, options: ObjectiveOptions) -> Objective:
    """An objective of a name with knobs; what neither says is as the plan's file, or the method's paper, has it."""
    objective: Any = options.objective
    turned = ObjectiveBlock(
        name=plan.loss if objective in (None, "auto") and plan.loss is not None else objective,
        clip_low=options.clip_low,
        clip_high=options.clip_high,
        aggregation=options.loss_agg,
        **{name: getattr(options, name, None) for name in ("dual_clip", "loss_constant", "denominator")},
    )
    return turned.over(plan.objective).of(plan.plan)
