"""Which plan and which objective are asked for: a plan, a preset's name, a file or a mapping; then single knobs."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, Unpack

from rlcorr_cli.commands import completion
from rlcorr_cli.commands.arguments import OBJECTIVE, PLAN, TEXTS, ModeName, kind_of, one_of
from rlcorr_cli.commands.declared import Opt, PythonOnly, Via
from rlcorr_cli.errors import UsageError, plain
from rlcorr_cli.frameworks.chosen import CANONICAL, ChosenPlan, profile_called
from rlcorr_cli.places import scheme
from rlcorr_cli.plans.flags import override, parse_rejection, parse_weights
from rlcorr_cli.plans.objective import Aggregation, Denominator, Objective, ObjectiveBlock, ObjectiveChoice
from rlcorr_cli.plans.plan import Mode, Normalize, Plan, Rejection
from rlcorr_cli.plans.plan import veto as veto_rejection

if TYPE_CHECKING:
    from rlcorr_cli.frameworks.framework import Framework

PlanLike = Plan | ChosenPlan | str | Path | Mapping[str, Any]
"""A plan, what `choose_plan` made, a preset's name, a file, or a mapping: our own records or a framework's config."""
PLAN_LIKE = (
    "A preset's name, a file (.toml, .yaml, .json, a URI), a Plan, what `choose_plan` made, or a mapping: our own "
    "records or a framework's config. None measures alone."
)

SUFFIXES = (".toml", ".yaml", ".yml", ".json")


RS = Opt(
    help="A rejection, such as ratio.seq_mean:0.999,1.001 or k3.token:,0.01; `rlcorr explain statistics` lists them. "
    "Repeatable.",
    python="Or a Rejection.",
    panel=PLAN,
    default=(),
    typed=TEXTS,
    metavar="STAT.SCOPE:LOW,HIGH",
    offers=completion.rejections,
)


class Knobs(TypedDict, total=False):
    """What is turned on a plan, a knob at a time."""

    mode: ModeName
    is_: Annotated[
        str | None,
        Opt(
            help="Importance weights, such as token:,2, sequence:,2 or token:0.5,5:zero (0 outside the bounds; else "
            "clamped to them).",
            panel=PLAN,
            flags=("--is",),
            metavar="SCOPE:LOW,HIGH[:zero]",
            offers=completion.weight_scopes,
        ),
    ]
    normalize: Annotated[Normalize | None, Opt(help="Divide weights by their batch mean.", panel=PLAN, rare=True)]
    rs: Annotated[str | Rejection | Sequence[str | Rejection], RS]
    veto: Annotated[float | None, Opt(help="Reject sequences with a token ratio below this.", panel=PLAN)]
    profile: Annotated[
        str,
        Opt(
            help="canonical, or a framework's own numbers: verl-mismatch, verl-0.6, verl-0.7, verl-0.8, verl-0.9, "
            "slime.",
            panel=PLAN,
            default=CANONICAL,
            metavar="NAME",
            offers=completion.profiles,
            rare=True,
        ),
    ]


class Named(TypedDict, total=False):
    """The options that name a plan."""

    preset: Annotated[
        str | None,
        Opt(
            help="A named plan, such as token_is; `rlcorr presets` lists all.",
            panel=PLAN,
            metavar="NAME",
            offers=completion.presets,
            argument="plan",
        ),
    ]
    plan: Annotated[
        str | None,
        Opt(help="A plan file, or a framework's config.", panel=PLAN, metavar="FILE"),
    ]


class Typed(Named, Knobs, total=False):
    """The options that name a plan, and its knobs."""


def typed_plan(**typed: Unpack[Typed]) -> ChosenPlan | None:
    """The plan that a command line asks for; None where no option does."""
    if all(value in (None, (), CANONICAL) for value in typed.values()):
        return None
    preset, plan = typed.get("preset"), typed.get("plan")
    if preset and plan:
        raise UsageError("--preset and --plan both name a plan.", "Keep one, and change it with --is, --rs or --veto.")
    knobs: Any = {name: value for name, value in typed.items() if name not in Named.__annotations__}
    return choose_plan(named_file(plan) if plan else preset, **knobs)


PlanAsked = Annotated[PlanLike | None, Via(make=typed_plan, help=PLAN_LIKE)]
PlanOfOurs = Annotated[PlanLike | None, Via(make=typed_plan, help=PLAN_LIKE, without=("profile",))]


def named_file(typed: str) -> str | Path:
    """What --plan names, which is never a preset, whatever it is called."""
    return typed if scheme(typed) else Path(typed)


def choose_plan(plan: Annotated[PlanLike | None, PythonOnly(PLAN_LIKE)] = None, **knobs: Unpack[Knobs]) -> ChosenPlan:
    """The plan that is asked for, single knobs turned as by `--is`, `--rs` and the like, with its notes.

    A URI or a name that ends in .toml, .yaml, .yml or .json is a file's, any other a preset's.  A profile is a
    framework's release, whose plan comes from its own config (a file, a mapping; None for its defaults), or a preset
    that it has.  Rejections are records, or texts such as 'k3.token:,0.01'.
    """
    rs, veto, mode = knobs.get("rs", ()), knobs.get("veto"), knobs.get("mode")
    weights: Any = knobs.get("is_")  # callers from Python may pass anything
    normalize = knobs.get("normalize")
    if weights is not None and not isinstance(weights, str):
        raise UsageError(f"--is should be text such as 'token:,2', not {kind_of(weights)}.", 'Write is_="token:,2".')
    rejections = [rs] if isinstance(rs, str | Rejection) else list(rs)
    turned = any(knob is not None for knob in (weights, normalize, veto))
    chosen = _resolved(plan, knobs.get("profile", CANONICAL), turned=bool(rejections) or turned)
    vetoes = [] if veto is None else [veto_rejection(veto)]
    changed = override(
        chosen.plan,
        weights=None if weights is None else parse_weights(weights),
        normalize=_choice("--normalize", normalize, Normalize),
        rejections=tuple(parse_rejection(each) if isinstance(each, str) else each for each in [*rejections, *vetoes]),
        mode=_choice("--mode", mode, Mode),
    )
    notes = chosen.notes if chosen.profile is None else chosen.notes + chosen.profile.notes(changed)
    options = {"--mode": mode, "--is": weights, "--normalize": normalize, "--veto": veto}
    named = _options(chosen.options, options, rejections)
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


ObjectiveLike = Objective | ObjectiveChoice | Callable[[ChosenPlan], Objective]
"""An objective, its name, or what chooses one for a plan."""
OBJECTIVE_LIKE = (
    "A policy objective whose loss and gradient coefficients are reported, too: what `choose_objective` made, a name "
    'such as "ppo", or a function that chooses one for a plan; takes advantages.'
)


class ObjectiveKnobs(TypedDict, total=False):
    """What is turned on an objective, a knob at a time."""

    clip_low: Annotated[
        float | None, Opt(help="How far below 1 a ratio may lie: 0.2, gspo 3e-4.", panel=OBJECTIVE, rare=True)
    ]
    clip_high: Annotated[float | None, Opt(help="How far above 1: 0.2, gspo 4e-4.", panel=OBJECTIVE, rare=True)]
    loss_agg: Annotated[
        Aggregation | None, Opt(help="How token losses become one; the last is Dr.GRPO's.", panel=OBJECTIVE, rare=True)
    ]


class AllObjectiveKnobs(ObjectiveKnobs, total=False):
    """Those, and what on a command line the `objective` block of a plan file says."""

    dual_clip: Annotated[float | None, PythonOnly("PPO's second clip, where A < 0; none unless named.")]
    loss_constant: Annotated[
        float | None, PythonOnly("What seq-mean-token-sum-norm divides a sequence's sum by, such as 8192.")
    ]
    denominator: Annotated[
        Denominator | None, PythonOnly("Divide by what the plan keeps (kept, the default), or by all that is valid.")
    ]


ObjectiveName = Annotated[
    ObjectiveChoice | None,
    Opt(
        help="Report its loss and gradient coefficients, too; takes advantages. auto: as the plan's loss.",
        panel=OBJECTIVE,
    ),
]


def typed_objective(
    objective: ObjectiveName = None, **knobs: Unpack[ObjectiveKnobs]
) -> Callable[[ChosenPlan], Objective] | None:
    """What chooses a plan's objective; None where no option asks for one.  A knob alone asks for the plan's own."""
    turned = any(value is not None for value in knobs.values())
    return partial(choose_objective, objective=objective, **knobs) if objective or turned else None


ObjectiveAsked = Annotated[ObjectiveLike | None, Via(make=typed_objective, help=OBJECTIVE_LIKE)]


def choose_objective(
    plan: Annotated[PlanLike | None, PythonOnly(PLAN_LIKE)] = None,
    objective: Annotated[
        ObjectiveChoice | None, PythonOnly("Its name; auto is PPO or reinforce, as the plan's loss is.")
    ] = None,
    **knobs: Unpack[AllObjectiveKnobs],
) -> Objective:
    """The policy objective of a plan, for `analyze`, with its knobs as by `--clip-low`, `--loss-agg` and the like.

    Knobs left out are those of the plan file's `objective` block, and then of the method's paper: clips 0.2 (3e-4 and
    4e-4 of GSPO), the token mean (GSPO: of each sequence's mean).
    """
    given: Mapping[str, Any] = knobs
    numbers = {name: given.get(name) for name in ("clip_low", "clip_high", "dual_clip", "loss_constant")}
    for name, value in numbers.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise UsageError(f"{name} should be a number, not {kind_of(value)}.", "Leave it out for the default.")
    _choice("--objective", objective, ObjectiveChoice)
    chosen = choose_plan(plan)
    turned = ObjectiveBlock(
        name=objective,
        clip_low=numbers["clip_low"],
        clip_high=numbers["clip_high"],
        dual_clip=numbers["dual_clip"],
        aggregation=_choice("--loss-agg", knobs.get("loss_agg"), Aggregation),
        loss_constant=numbers["loss_constant"],
        denominator=_choice("denominator", knobs.get("denominator"), Denominator),
    )
    return turned.over(chosen.objective).of(chosen.plan)


def objective_under(plan: ChosenPlan, objective: Any) -> Objective | None:
    """The objective that is asked for under a plan: one that was chosen, a name, what chooses, or the block of the
    plan's file."""
    if objective is None:
        return None if plan.objective is None else choose_objective(plan)
    if not isinstance(objective, Objective):
        return objective(plan) if callable(objective) else choose_objective(plan, objective)
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


def _source(plan: Any, profile: "Framework | None", *, is_preset: bool) -> ChosenPlan:
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
        return ChosenPlan(
            plan=file.plan,
            profile=profile,
            notes=file.notes,
            file=str(plan),
            options=options,
            objective=file.objective,
        )
    if isinstance(plan, Mapping):
        from rlcorr_cli.frameworks.read import plan_in

        read = plan_in(dict(plan), profile)
        return ChosenPlan(plan=read.plan, profile=profile, notes=read.notes, objective=read.objective)
    raise UsageError(
        f"plan should be a Plan, a preset's name, a file's path or a mapping, not {kind_of(plan)}.",
        'For example plan="token_is".',
    )


def _not_of(profile: "Framework") -> UsageError:
    return UsageError(
        f"--profile {profile.name} takes its plan from that framework's own config or presets, not from flags.",
        f"Write {profile.keys[0]} and the like to a YAML file and name it with --plan.",
    )
