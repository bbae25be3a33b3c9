"""Which plan and which objective are asked for: a preset's name, or a file, a mapping or a Plan; then single knobs."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rlcorr_cli.commands import completion
from rlcorr_cli.commands.arguments import OBJECTIVE, PLAN, TEXT, TEXTS, How, ModeName
from rlcorr_cli.commands.declared import Opt, PythonOnly, changed, takes
from rlcorr_cli.errors import UsageError, plain
from rlcorr_cli.frameworks.chosen import ChosenPlan, profile_called
from rlcorr_cli.metrics.framework_names import CANONICAL
from rlcorr_cli.plans.flags import override, parse_rejection, parse_weights
from rlcorr_cli.plans.objective import Aggregation, Denominator, Objective, ObjectiveBlock, ObjectiveChoice
from rlcorr_cli.plans.plan import Normalize, Plan, Rejection
from rlcorr_cli.plans.plan import veto as veto_rejection

if TYPE_CHECKING:
    from rlcorr_cli.frameworks.framework import Framework

PlanLike = Plan | ChosenPlan | str | Path | Mapping[str, Any]
"""A plan, what `choose_plan` made, a file, or a mapping of what a file would hold: our own records, or a framework's
config."""


@dataclass(frozen=True, kw_only=True, eq=False)
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
            typed=TEXT,
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
            typed=TEXTS,
            metavar="STAT.SCOPE:LOW,HIGH",
            should="be a rejection, or a list of them",
            such_as="k3.token:,0.01",
            offers=completion.rejections,
        ),
    ] = ()
    veto: Annotated[float | None, Opt(help="Reject sequences with a token ratio below this.", panel=PLAN)] = None


@dataclass(frozen=True, kw_only=True, eq=False)
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
    """The plan that is asked for among the options of a command."""
    plan, preset = options.plan, options.preset
    profile = options.profile if isinstance(options, ProfiledPlanOptions) else CANONICAL
    if plan is not None and preset is not None:
        raise UsageError("⟦preset⟧ and ⟦plan⟧ both name a plan.", "Keep one, and change it with ⟦is_⟧, ⟦rs⟧ or ⟦veto⟧.")
    rs, veto, mode = options.rs or (), options.veto, options.mode
    weights, normalize = options.is_, options.normalize
    rejections = [rs] if isinstance(rs, str | Rejection) else list(rs)
    turned = any(knob is not None for knob in (weights, normalize, veto))
    chosen = _resolved(plan, preset, profile, turned=bool(rejections) or turned)
    vetoes = [] if veto is None else [veto_rejection(veto)]
    changed = override(
        chosen.plan,
        weights=None if weights is None else parse_weights(weights),
        normalize=normalize,
        rejections=tuple(parse_rejection(each) if isinstance(each, str) else each for each in [*rejections, *vetoes]),
        mode=mode,
    )
    notes = chosen.notes if chosen.profile is None else chosen.notes + chosen.profile.notes(changed)
    by_option = {"--mode": mode, "--is": weights, "--normalize": normalize, "--veto": veto}
    named = _options(chosen.options, by_option, rejections)
    return replace(chosen, plan=changed, notes=tuple(dict.fromkeys(notes)), options=named)


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


@dataclass(frozen=True, kw_only=True, eq=False)
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


@dataclass(frozen=True, kw_only=True, eq=False)
class HowPlanned(PlanOptions, How):
    """How a dump is read, and by which plan."""


@dataclass(frozen=True, kw_only=True, eq=False)
class HowCorrected(ObjectiveOptions, ProfiledPlanOptions, How):
    """How a dump is read, by which plan it is corrected, and which objective is reported."""


@dataclass(frozen=True, kw_only=True, eq=False)
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
    return _turned(
        chosen_plan(options),
        options,
        dual_clip=options.dual_clip,
        loss_constant=options.loss_constant,
        denominator=options.denominator,
    )


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


def _turned(plan: ChosenPlan, options: ObjectiveOptions, **of_block: Any) -> Objective:
    """An objective of a name with knobs; what neither says is as the plan's file, or the method's paper, has it."""
    objective: Any = options.objective
    turned = ObjectiveBlock(
        name=plan.loss if objective in (None, "auto") and plan.loss is not None else objective,
        clip_low=options.clip_low,
        clip_high=options.clip_high,
        aggregation=options.loss_agg,
        **of_block,
    )
    return turned.over(plan.objective).of(plan.plan)


def plan_file(plan: Any) -> str | None:
    """The file that a plan comes from, if any."""
    if isinstance(plan, ChosenPlan):
        return plan.file
    return str(plan) if isinstance(plan, str | Path) else None


def _resolved(plan: Any, preset: str | None, profile_name: str, *, turned: bool) -> ChosenPlan:
    """The plan before knobs.  A profile has its framework's plans only: what that logs of others would be made up."""
    profile = profile_called(profile_name)
    if isinstance(plan, ChosenPlan):
        if turned and plan.profile is not None:
            raise _not_of(plan.profile)
        if profile is not None and plan.profile is None:
            raise _not_of(profile)
        return plan if profile is None else replace(plan, profile=profile)
    if profile is not None and (turned or isinstance(plan, Plan)):
        raise _not_of(profile)
    return _read(plan, profile) if preset is None else _of_preset(preset, profile)


def _of_preset(name: Any, profile: "Framework | None") -> ChosenPlan:
    from rlcorr_cli.plans.presets import preset

    named = preset(name)
    if profile is None:
        return ChosenPlan(plan=named.plan, notes=named.notes, options=(f"--preset {shlex.quote(name)}",))
    from rlcorr_cli.frameworks.read import preset_in

    own = preset_in(named, profile)
    return ChosenPlan(plan=own.plan, profile=profile, notes=own.notes)


def _read(plan: Any, profile: "Framework | None") -> ChosenPlan:
    """A plan as it is given, or what its file or mapping holds."""
    if plan is None:
        return ChosenPlan(plan=Plan("disabled") if profile is None else profile.read({}), profile=profile, options=())
    if isinstance(plan, Plan):
        return ChosenPlan(plan=plan)
    if isinstance(plan, str | Path):
        from rlcorr_cli.frameworks.read import read_plan
        from rlcorr_cli.plans.presets import is_preset

        if isinstance(plan, str) and is_preset(plan):
            raise UsageError(f"⟦plan⟧ takes a file, and {plan} is a preset.", f"Write ⟦preset {plan}⟧.")
        file = read_plan(str(plan), profile)
        options = (f"--plan {shlex.quote(str(plan))}",)
        return ChosenPlan(
            plan=file.plan,
            profile=profile,
            notes=file.notes,
            file=str(plan),
            options=options,
            objective=file.objective,
            loss=file.loss,
        )
    from rlcorr_cli.frameworks.read import plan_in

    read = plan_in(dict(plan), profile)
    return ChosenPlan(plan=read.plan, profile=profile, notes=read.notes, objective=read.objective, loss=read.loss)


def _not_of(profile: "Framework") -> UsageError:
    return UsageError(
        f"⟦profile {profile.name}⟧ takes its plan from that framework's own config or presets, not from flags.",
        f"Write {profile.keys[0]} and the like to a YAML file and name it with ⟦plan⟧.",
    )
