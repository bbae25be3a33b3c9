"""`compare`, `sweep` and `diff`: plans on one dump, one bound of a plan at every threshold, dumps with each other."""

from collections.abc import Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rlcorr_cli.commands import answers, arguments, choose, completion
from rlcorr_cli.commands.declared import Opt, several, takes
from rlcorr_cli.errors import RlcorrError, UsageError
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.frozen import frozen
from rlcorr_cli.plans.flags import VARY, Swept, swept
from rlcorr_cli.plans.objective import Objective
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.show.forms import sheet_destinations

if TYPE_CHECKING:
    from rlcorr_cli.reading.request import PlanColumns, ReadRequest
    from rlcorr_cli.results.compared import Comparison, NamedPlan
    from rlcorr_cli.results.diffed import Diff
    from rlcorr_cli.results.swept import Sweep
    from rlcorr_cli.runs.reading import OpenDump


@frozen(kw_only=True, eq=False)
class CompareOptions(choose.ObjectiveOptions, arguments.How):
    """What `compare` takes."""

    dumps: arguments.Dumps = field(kw_only=False)
    preset: Annotated[
        arguments.Names,
        Opt(
            help="A named plan to compare; `rlcorr presets` lists all. Repeatable. Default: verl's, and one of every "
            "other framework.",
            panel=arguments.PLAN,
            metavar="NAME",
            offers=completion.presets,
        ),
    ] = ()
    plan: Annotated[
        choose.PlanLike | Sequence[choose.PlanLike],
        Opt(
            help="A plan to compare (TOML, YAML, JSON). Repeatable.",
            python="Or a Plan, or a mapping of what a file would hold.",
            panel=arguments.PLAN,
            metavar="FILE",
            should="be a Plan, a file's path or a mapping, or a list of them",
            such_as="mine.toml",
        ),
    ] = ()
    all: Annotated[bool, Opt(help="Compare every preset.", panel=arguments.PLAN)] = False
    group_by: arguments.GroupBy = ()
    cluster_by: arguments.ClusterBy = None
    seed: arguments.Seed = 0
    allow_overlap: answers.AllowOverlap = False
    sort: Annotated[
        Literal["worth", "info", "kept", "name"], Opt(help="Order of the plans.", panel=arguments.OUTPUT)
    ] = "worth"
    output: arguments.TotalledOutputs = ()
    overwrite: arguments.Overwrite = False


@takes(CompareOptions)
def compare(options: CompareOptions) -> "Comparison":
    """Compare corrections side by side, and recommend one.

    Plans whose columns the dump lacks are skipped, and `skipped` of the result says why.  Its `recommendation` names
    the plan to take with its reasons, or says why none can be named; `whole.plans` hold every plan's columns by name,
    `groups` those of each group.  An objective is one of each plan's mode.  The dump is read once.
    Files of its own totals (.rlcorr) stand in the place of a dump, and are added.
    """
    from rlcorr_cli.plans.presets import PRESETS
    from rlcorr_cli.results.compared import ComparisonRun, comparison_of
    from rlcorr_cli.runs.compare import comparison_columns, comparison_totals

    asked = [
        choose.choose_plan(preset=name)
        for name in (*arguments.names("preset", options.preset), *(PRESETS if options.all else ()))
    ]
    asked += [choose.choose_plan(plan=each) for each in several(options.plan)]
    compared = asked or default_plans()
    objectives = _objectives(compared, options)

    def conflicts(run: ComparisonRun) -> dict[str, tuple[Any, Any]]:
        wanted, held = (dict.fromkeys(each.name for each in every) for every in (objectives.values(), run.objectives))
        return {
            "The plans": (_other_plans(asked, run.plans), _names(run.plans)),
            "⟦objective⟧": (", ".join(wanted) or None, ", ".join(held)),
        }

    return answers.answered(
        options,
        ComparisonRun,
        columns=lambda reading: comparison_columns(reading, [each.plan for each in compared], bool(objectives)),
        measured=lambda read: comparison_totals(
            read, compared, named=bool(asked), objectives=objectives, seed=options.seed
        ),
        answer=lambda run, *_: replace(comparison_of(run), sort=options.sort),
        conflicts=conflicts,
    )


def _objectives(plans: Sequence[ChosenPlan], how: CompareOptions) -> dict[Plan, Objective]:
    """The objective of each plan, one of its mode; none where no option asks for one."""
    if not choose.asks_for_objective(how):
        return {}
    of_plans: dict[Plan, Objective] = {}
    for each in plans:
        asked = how.objective
        of_mode = replace(asked, mode=each.plan.mode) if isinstance(asked, Objective) else asked
        chosen = choose.objective_under(each, replace(how, objective=of_mode))
        assert chosen is not None
        of_plans[each.plan] = chosen
    return of_plans


def _names(plans: "Sequence[ChosenPlan | NamedPlan]") -> str:
    """The names of plans, in the order of the alphabet."""
    return ", ".join(sorted({each.plan.name for each in plans}))


def _other_plans(asked: Sequence[ChosenPlan], held: "Sequence[NamedPlan]") -> str | None:
    """What to call the plans that are asked for; None where none are, or these are the ones that are held."""
    if not asked or {each.plan.id for each in asked} == {each.plan.id for each in held}:
        return None
    return _names(asked) if _names(asked) != _names(held) else f"others called {_names(asked)}"


def default_plans() -> list[ChosenPlan]:
    """The plans that are compared where none is asked for."""
    from rlcorr_cli.plans.presets import COMPARED

    return [ChosenPlan(plan=row.plan, notes=row.notes) for row in COMPARED]


@frozen(kw_only=True, eq=False)
class SweepOptions(choose.HowPlanned):
    """What `sweep` takes."""

    dumps: arguments.Dumps = field(kw_only=False)
    vary: Annotated[
        str | None,
        Opt(
            help="Bound to vary: is.high or is.low (weights), or STATISTIC.SCOPE (a rejection, such as "
            "ratio.seq_mean; add .low or .high for one side).",
            panel=arguments.PLAN,
            metavar="BOUND",
            offers=completion.varied,
        ),
    ] = None
    target_keep: Annotated[
        float | None,
        Opt(
            help="Find the tightest bounds that keep this share of the sequences or tokens.",
            panel=arguments.PLAN,
            metavar="SHARE",
        ),
    ] = None
    target_ess: Annotated[
        float | None,
        Opt(help="Find the loosest bounds with this effective sample size.", panel=arguments.PLAN, metavar="SHARE"),
    ] = None
    allow_overlap: answers.AllowOverlap = False
    output: arguments.TotalledOutputs = ()
    overwrite: arguments.Overwrite = False


@takes(SweepOptions)
def sweep(options: SweepOptions) -> "Sweep":
    """Try a range of limits for one bound of a correction.

    `vary` names it. Every other part of the plan stays as it is.  The share that is
    kept is of tokens for token statistics.  The effective sample size is of capped weights, of those that are swept; of
    a rejection, of the true weights e^S of what it keeps.  `batch_by` is of plans that divide weights by their batch's
    mean.  Files of its own totals (.rlcorr) stand in the place of a dump, and are added; the plan is then theirs, and
    no target can be named, because that reads the dump again.
    """
    from rlcorr_cli.results.swept import Sweep, SweepRun, Targets, sweep_of
    from rlcorr_cli.runs.reading import check_rereadable
    from rlcorr_cli.runs.sweep import sweep_columns, sweep_totals, units_at_targets
    from rlcorr_cli.totals.comparison import divides_by_mean

    targets = Targets(options.target_keep, options.target_ess)
    if targets.wanted and (parts := answers.saved_parts(options.dumps, allow_overlap=options.allow_overlap)):
        raise UsageError(
            f"To find a target the dump is read again, and {parts[0]} holds saved totals.",
            "Leave ⟦target_keep⟧ and ⟦target_ess⟧ out, or name the dump.",
        )
    is_named = choose.asks_for_plan(options) or options.vary is not None
    asked = _swept(options.vary, choose.chosen_plan(options)) if is_named else None

    def columns(reading: "ReadRequest") -> "PlanColumns":
        if asked is None:
            raise UsageError(*UNNAMED)
        if options.batch_by is not None and not divides_by_mean(asked.base):
            raise UsageError("⟦batch_by⟧ has no effect here: the plan does not use batches.", "Leave it out.")
        return sweep_columns(reading, asked.plan(asked.bounds(0.0)))

    def measured(read: "OpenDump") -> SweepRun:
        assert asked is not None
        if targets.wanted:
            check_rereadable(read.dump)
        return sweep_totals(read, asked)

    def conflicts(run: SweepRun) -> dict[str, tuple[Any, Any]]:
        return {
            "The free bound": (asked and asked.name, run.swept.name),
            "The rest of the plan": (asked and asked.base.id, run.swept.base.id),
        }

    def answer(run: SweepRun, read: "OpenDump | None", _: object) -> Sweep:
        units = {} if read is None else units_at_targets(read, run, targets)
        return sweep_of(run, targets=targets, candidates=units)

    return answers.answered(options, SweepRun, columns=columns, measured=measured, answer=answer, conflicts=conflicts)


UNNAMED = "sweep varies one bound: name it with ⟦vary⟧.", VARY


def _swept(vary: Any, chosen: ChosenPlan) -> Swept:
    """What moves, and the rest of the plan."""
    if not isinstance(vary, str):
        raise UsageError(*UNNAMED)
    base = chosen.plan
    if base.budgets:
        raise UsageError(
            f"{base.name} keeps a budget, whose bound each batch sets by itself.",
            "`rlcorr analyze` with this plan says what it comes to; sweep another plan.",
        )
    return swept(base, vary, chosen.options)


DiffFailOn = Literal["moved"]


def diff(
    *dumps: Annotated[
        arguments.Paths,
        Opt(
            help="Dumps, each as for analyze, or one part.rlcorr; each is compared with A.",
            typed=list[str],
            metavar="A B...",
        ),
    ],
    pair_by: Annotated[
        str | None,
        Opt(
            help="Columns that match rows (default: sample_id and step).", panel=arguments.COMPARING, metavar="A,B,..."
        ),
    ] = None,
    all: Annotated[bool, Opt(help="Also show the other metrics, untested.", panel=arguments.COMPARING)] = False,
    min_effect: Annotated[
        float,
        Opt(
            help="Smallest relative change that counts as moved.",
            panel=arguments.COMPARING,
            metavar="SHARE",
            least=0,
            most=1000,
        ),
    ] = 0.1,
    seed: arguments.Seed = 0,
    fail_on: Annotated[
        DiffFailOn | Sequence[DiffFailOn],
        Opt(help="moved: exit with status 1 if a metric moved.", panel=arguments.COMPARING, metavar="NAME"),
    ] = (),
    mode: arguments.ModeName = None,
    group_by: arguments.GroupBy = (),
    cluster_by: arguments.ClusterBy = None,
    format: arguments.FormatName = arguments.Read.format,
    map: arguments.Map = None,
    limit: arguments.Limit = None,
    on_bad_row: arguments.OnBadRow = arguments.Read.on_bad_row,
    device: arguments.Device = arguments.Computed.device,
    batch_tokens: arguments.BatchTokens = None,
    engine: arguments.Engine = arguments.Computed.engine,
    workers: arguments.Workers = None,
    ray_address: arguments.RayAddress = None,
    junit: arguments.Junit = None,
    output: arguments.SheetOutputs = (),
    overwrite: arguments.Overwrite = False,
    watch: arguments.Watching = None,
) -> "Diff":
    """Compare dumps: what moved, by how much, and which side.

    Two or more, each compared with the first; a file of saved totals, a .rlcorr, stands for its dump.  Where nothing
    tells rows apart, what rollout says of a row does.  `fail_on` makes a failure in `junit` of each metric that moved.
    """
    from rlcorr_cli.results.diffed import checked
    from rlcorr_cli.results.saved import is_report
    from rlcorr_cli.runs.diff import DiffSettings, diff as run

    if len(dumps) < 2:
        raise UsageError("diff compares two dumps or more, and one is named.", "Name another.")
    arguments.refuse_stdin_twice(*(arguments.paths(dump) for dump in dumps))
    files, report_file = answers.sheet_files(output), () if junit is None else (answers.junit_file(junit),)
    read = arguments.Read(format=format, map=_paired_by(pair_by, map), limit=limit, on_bad_row=on_bad_row)
    grouped = {"group_by": arguments.names("group_by", group_by), "cluster_by": cluster_by}
    grouped["ids_beside"] = tuple(pair_by.split(",")[1:]) if pair_by else ()
    asked = [replace(arguments.request(dump, read), **grouped) for dump in dumps]
    asked = [reading if is_report(reading.paths) else answers.with_found(reading) for reading in asked]
    places = sheet_destinations(files, overwrite)
    notes = answers.check_touched((*places, *report_file), [path for reading in asked for path in reading.files])
    how = arguments.Computed(
        device=device, batch_tokens=batch_tokens, engine=engine, workers=workers, ray_address=ray_address
    )
    with Outputs() as staging, arguments.computing(how) as compute:
        settings = DiffSettings(seed=seed, min_effect=float(min_effect), everything=all)
        try:
            difference = run(asked, settings, computing=compute, mode=mode, watch=watch)
        except RlcorrError as error:
            if pair_by is None:
                raise
            raise type(error)(_paired(error.what, pair_by), _paired(error.do, pair_by)) from error
        for place in report_file:
            from rlcorr_cli.show.check import junit as document

            staging.write(place, document(checked(difference, fails=bool(fail_on))))
        return answers.finished(difference, notes, files, staging)


def _paired(text: str, pair_by: str) -> str:
    """A message of the reading, which names another option for the rows' own column than this command does."""
    return text.replace(f"⟦map sample_id={pair_by}⟧", f"⟦pair_by {pair_by}⟧").replace(
        "⟦map sample_id=COLUMN⟧", "⟦pair_by COLUMN⟧"
    )


def _paired_by(pair_by: str | None, map: Any) -> Any:
    """What `map` says, with the first column of `pair_by` as the rows' own."""
    if pair_by is None:
        return map
    columns = arguments.mapping(map)
    if "sample_id" in columns:
        raise UsageError("⟦pair_by⟧ and ⟦map⟧ sample_id both name the rows' own column.", "Use one of the two.")
    return {**columns, "sample_id": pair_by.split(",")[0]}
