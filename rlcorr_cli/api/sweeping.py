"""`sweep`: one bound of a plan at every threshold, and the one that a target comes to."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from rlcorr_cli.api.arguments import Files, Paths, computing, one_of, refuse_outside, request
from rlcorr_cli.api.choosing import PlanLike, choose_plan
from rlcorr_cli.api.touched import check_touched, quarantines, sheet_files
from rlcorr_cli.api.words import speaks_of_arguments
from rlcorr_cli.errors import UsageError
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.plans.plan import Mode, Rejection, WeightScope
from rlcorr_cli.plans.swept import Side, Swept, swept_rejection, swept_weighting
from rlcorr_cli.reading.bad_rows import BadRowPolicy
from rlcorr_cli.reading.request import EngineName
from rlcorr_cli.results.swept import MOST_POINTS, Sweep, Targets
from rlcorr_cli.show import forms
from rlcorr_cli.totals.comparison import divides_by_mean

if TYPE_CHECKING:
    from rlcorr_cli.runs.analyze import Watch


@speaks_of_arguments
def sweep(
    dumps: Paths,
    plan: PlanLike | None = None,
    *,
    rs: str | Rejection | Sequence[str | Rejection] = (),
    is_scope: WeightScope | None = None,
    bound: Literal["low", "high"] | None = None,
    side: Side | None = None,
    target_keep: float | None = None,
    target_ess: float | None = None,
    points: int = 25,
    mode: Mode | None = None,
    output: Files = (),
    format: str = "auto",
    columns: Mapping[str, str] | None = None,
    batch_by: str | None = None,
    limit: int | None = None,
    bad_rows: BadRowPolicy | None = None,
    device: str = "auto",
    batch_tokens: int | None = None,
    threads: int | None = None,
    engine: EngineName = "auto",
    workers: int | None = None,
    ray_address: str | None = None,
    watch: "Watch | None" = None,
) -> Sweep:
    """See what one bound does at every threshold, and which one a target comes to.

    plan: what else is done to the dump.  rs: one rejection without bounds, 'ratio.seq_mean', whose bounds move, and any
    number with bounds, which stay.  bound: the bound of the plan's weights, or those of `is_scope`, that moves instead.
    side: of a ratio or log-ratio, both ("both"), or one.  target_keep: the share of sequences (of tokens, for token
    statistics) to keep.  target_ess: the effective sample size to have: of capped weights, of those that are swept; of
    a rejection, of the true weights e^S of what it keeps.  points: of the curve.  batch_by: of plans that divide
    weights by their batch's mean.  The rest as of `analyze`.
    """
    from rlcorr_cli.runs import sweep as sweeping

    refuse_outside(2, MOST_POINTS, points=points)
    targets = Targets(target_keep, target_ess)
    swept = _swept(plan, rs=rs, is_scope=is_scope, bound=bound, side=side, mode=mode)
    outputs = sheet_files(output)
    if batch_by is not None and not divides_by_mean(swept.base):
        raise UsageError("--batch-by changes nothing here: the plan looks at no batches.", "Leave it out.")
    reading = request(dumps, format=format, columns=columns, batch_by=batch_by, limit=limit, bad_rows=bad_rows)
    places = [place for path in outputs for place in forms.sheet_destinations(path)]
    notes = check_touched((*places, *quarantines(bad_rows)), reading.paths, plan=plan)
    with (
        Outputs() as staging,
        computing(
            device, batch_tokens, engine=engine, workers=workers, threads=threads, ray_address=ray_address
        ) as compute,
    ):
        result = sweeping.sweep(
            reading,
            swept,
            targets,
            n_points=points,
            computing=compute,
            watch=watch,
            staging=staging,
        )
        result = replace(result, notes=result.notes + notes)
        for path in outputs:
            forms.write(result, path, staging)
        staging.publish()
    return result


def _swept(
    plan: Any,
    *,
    rs: str | Rejection | Sequence[str | Rejection],
    is_scope: WeightScope | None,
    bound: Any,
    side: Any,
    mode: Mode | None,
) -> Swept:
    """The one free bound among what is asked for."""
    listed = [rs] if isinstance(rs, str | Rejection) else list(rs)
    free = [each for each in listed if isinstance(each, str) and ":" not in each]
    fixed = [each for each in listed if each not in free]
    if len(free) + (bound is not None) != 1:
        raise UsageError(
            "One bound should be free, and " + ("none is." if not free and bound is None else "more than one is."),
            "Write --rs STATISTIC.SCOPE without bounds, such as --rs ratio.seq_mean, or --is token --bound high.",
        )
    chosen = plan if isinstance(plan, ChosenPlan) and not (fixed or is_scope or mode) else None
    chosen = chosen or choose_plan(plan, mode=mode, is_scope=is_scope, rs=fixed)
    base = chosen.plan
    if base.budgets:
        raise UsageError(
            f"{base.name} keeps a budget, whose bound each batch sets by itself.",
            "`rlcorr analyze` with this plan says what it comes to; sweep another plan.",
        )
    if free:
        one_of("--side", side or "both", Side)
        return swept_rejection(base, free[0], side, chosen.options)
    one_of("--bound", bound, Literal["low", "high"])
    if side is not None:
        raise UsageError("--side applies to a rejection.", "--bound says which bound of the weights moves.")
    if base.weighting is None:
        raise UsageError("There are no weights whose bound could move.", "Add --is token, or a --preset with weights.")
    if not base.applies_weights:
        raise UsageError("PPO in bypass mode takes no weights.", "Leave out --mode bypass.")
    if base.weighting.outside == "cap" and bound == "low":
        raise UsageError("These weights are capped from above alone.", "Write --bound high.")
    return swept_weighting(base, bound, chosen.options)
