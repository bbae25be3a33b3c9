"""What reads a dump: `analyze`, `filter_dump`, `inspect` and `inspect_row`."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rlcorr_cli.api.arguments import Files, Names, Paths, computing, names, one_of, refuse_outside, request
from rlcorr_cli.api.choosing import ObjectiveLike, PlanLike, choose_plan, objective_under
from rlcorr_cli.api.touched import check_touched, quarantines, report_files, written
from rlcorr_cli.api.words import speaks_of_arguments
from rlcorr_cli.errors import UsageError
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.frameworks.chosen import CANONICAL, ChosenPlan
from rlcorr_cli.metrics.settings import DiagnosticSettings
from rlcorr_cli.plans.plan import Mode
from rlcorr_cli.reading.bad_rows import BadRowPolicy
from rlcorr_cli.reading.request import MOST_ROWS, MOST_SEED, NO_BATCH, EngineName
from rlcorr_cli.results.report import Report
from rlcorr_cli.results.written import ROWS_PER_FILE, Filtered, Target
from rlcorr_cli.show import forms

if TYPE_CHECKING:
    from rlcorr_cli.reading.tables import Table
    from rlcorr_cli.results.inspected import Inspected, OneRow
    from rlcorr_cli.runs.reading import Watch


@speaks_of_arguments
def analyze(
    dumps: Paths,
    plan: PlanLike | None = None,
    *,
    profile: str = CANONICAL,
    mode: Mode | None = None,
    group_by: Names = (),
    cluster_by: str | None = None,
    extreme_ratio: float = 2.0,
    ppo_clip: float = 0.2,
    seed: int = 0,
    output: Files = (),
    pictures: bool = False,
    by_step: bool = False,
    totals: bool = False,
    objective: ObjectiveLike | None = None,
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
) -> Report:
    """Measure a dump under a plan.

    dumps: files, directories or globs.  plan, profile, mode: see `choose_plan`.  columns: canonical name -> the dump's
    column.  cluster_by: the column whose rows of one value intervals draw together, or "none"; the default is the
    column of prompts, where there is one.  bad_rows: what to do about them; the default stops at the first.  output:
    files that the report is written to, as by `save`.  pictures: count also what `plot`, `to_html` and `to_markdown`
    draw and `trends` are told from, as some of these files have it counted; it takes a third longer.  by_step: with
    curves of each group.  totals: keep what `merge` adds, which `save` writes as .rlcorr.  objective: a policy
    objective whose loss and gradient coefficients are reported, too: what `choose_objective` made, or a name such as
    "ppo"; takes advantages.  engine, workers: what works on the dump's parts ("threads", "processes", "ray", "auto":
    the faster of the first two), and how many; threads: how many of that engine; ray_address: which cluster.  watch:
    called with the bytes to come, a context around the reading.
    The report's `whole` and `groups` hold counts and metrics by name, `intervals` 95 % intervals; `health`, `verdict`,
    `onset` and `trends` are its conclusions, `suggestions` looser bounds for rejections that take too much.
    """
    refuse_outside(0, MOST_SEED, seed=seed)
    chosen = choose_plan(plan, profile=profile, mode=mode)
    objective = objective_under(chosen, objective)
    if by_step and not names("group_by", group_by):
        raise UsageError("--by-step draws a curve for each group, and there are none.", "Add --group-by step.")
    outputs = report_files(output, n_group_columns=len(names("group_by", group_by)))
    reading = request(
        dumps,
        group_by=group_by,
        cluster_by=cluster_by,
        format=format,
        columns=columns,
        batch_by=batch_by,
        limit=limit,
        bad_rows=bad_rows,
    )
    places = [place for path in outputs for place in forms.destinations(path)]
    notes = check_touched((*places, *quarantines(bad_rows)), reading.paths, plan=chosen)
    from rlcorr_cli.runs import analyze as analysis

    with (
        Outputs() as staging,
        computing(
            device, batch_tokens, engine=engine, workers=workers, threads=threads, ray_address=ray_address
        ) as compute,
    ):
        report = analysis.analyze(
            reading,
            chosen,
            settings=DiagnosticSettings(extreme_ratio, ppo_clip),
            computing=compute,
            seed=seed,
            watch=watch,
            pictures=by_step or pictures or any(path.suffix.lower() in forms.PICTURED for path in outputs),
            by_step=by_step,
            totals=totals or any(path.suffix.lower() in forms.TOTALLED for path in outputs),
            staging=staging,
            objective=objective,
        )
        report = replace(report, notes=report.notes + notes)
        for path in outputs:
            forms.write(report, path, staging)
        staging.publish()
    return report


@speaks_of_arguments
def filter_dump(
    dumps: Paths,
    output: str | Path | None,
    plan: PlanLike | None,
    *,
    profile: str = CANONICAL,
    mode: Mode | None = None,
    keep_rejected: bool = False,
    rejected_output: str | Path | None = None,
    overwrite: bool = False,
    rows_per_file: int = ROWS_PER_FILE,
    resample: int | None = None,
    seed: int = 0,
    write_unused_weights: bool = False,
    objective: ObjectiveLike | None = None,
    coef_normalized: bool = False,
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
) -> Filtered:
    """Write a dump's corrected rows: weights, the modified mask, rejected sequences dropped.

    output: a file, or a directory of parts; None only counts what would be kept.  rejected_output: where rejected rows
    go.  resample: how many rows to draw in proportion to their weights.  objective: as of `analyze`, whose coefficient
    of every token is written, too; coef_normalized: divided by its batch's divisor.  The rest as of `analyze`.
    """
    from rlcorr_cli.runs import filter as filtering

    refuse_outside(0, MOST_SEED, seed=seed)
    refuse_outside(1, MOST_ROWS, rows_per_file=rows_per_file, resample=resample)
    chosen = choose_plan(plan, profile=profile, mode=mode)
    if coef_normalized and objective is None:
        raise UsageError("--coef-normalized needs an objective.", "Add --objective auto.")
    wanted = objective_under(chosen, objective)
    if wanted is None:
        _refuse_idle(chosen)
    target = Target(
        path=None if output is None else written("-o", output),
        keep_rejected=keep_rejected,
        rejected=None if rejected_output is None else written("--rejected-output", rejected_output),
        overwrite=overwrite,
        rows_per_file=rows_per_file,
        resample=resample,
        seed=seed,
        unused_weights=write_unused_weights,
        objective=wanted,
        divides_coefs=coef_normalized,
    )
    reading = request(dumps, format=format, columns=columns, batch_by=batch_by, limit=limit, bad_rows=bad_rows)
    notes = check_touched(filtering.destinations(reading, target), reading.paths, plan=chosen)
    with computing(
        device, batch_tokens, engine=engine, workers=workers, threads=threads, ray_address=ray_address
    ) as compute:
        filtered = filtering.filter_dump(reading, chosen, target, computing=compute, watch=watch)
    return replace(filtered, report=replace(filtered.report, notes=filtered.report.notes + notes))


@speaks_of_arguments
def correct(
    table: Paths,
    plan: PlanLike | None,
    *,
    profile: str = CANONICAL,
    mode: Mode | None = None,
    columns: Mapping[str, str] | None = None,
    batch_by: str | None = None,
    bad_rows: BadRowPolicy | None = None,
    device: str = "auto",
    batch_tokens: int | None = None,
) -> "Table":
    """The corrected rows of one table, as `filter_dump` would write them with every rejected row kept.

    table: anything with `__arrow_c_stream__` (pyarrow, polars, pandas, duckdb, datasets), or a mapping of padded
    tensors or arrays [B, T].  A plan that looks at whole training batches (normalize, budgets) takes the table as one,
    unless `batch_by` names a column.  bad_rows: as of `analyze`, but no row can be left out.  The rest as of `analyze`.
    A function of its arguments alone, for `map_batches`
    and training loops; one thread computes.
    """
    from rlcorr_cli.runs import correct as correcting

    chosen = choose_plan(plan, profile=profile, mode=mode)
    _refuse_idle(chosen)
    reading = request(table, columns=columns, batch_by=NO_BATCH if batch_by is None else batch_by, bad_rows=bad_rows)
    if not reading.bad_rows.stops:
        raise UsageError(
            "correct gives every row back: it leaves out none.", 'Write BadRowPolicy(nonfinite="keep"), or "mask".'
        )
    with computing(device, batch_tokens, engine="threads", workers=1) as compute:
        return correcting.correct(reading, chosen, compute)


@speaks_of_arguments
def inspect(
    dumps: Paths,
    plan: PlanLike | None = None,
    *,
    worst: int = 0,
    by: str = "k3",
    mode: Mode | None = None,
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
) -> "Inspected":
    """See how a dump is read, what is wrong with it, and its worst rows; bad rows are counted, never an end.

    worst: how many sequences and tokens to name, by k3, abs_log_ratio or seq_log_ratio.
    """
    from rlcorr_cli.measure.worst import MEASURES
    from rlcorr_cli.runs import inspect as inspection

    refuse_outside(0, MOST_ROWS, worst=worst)
    one_of("--by", by, tuple(MEASURES))
    chosen = choose_plan(plan, mode=mode)
    reading = request(dumps, format=format, columns=columns, batch_by=batch_by, limit=limit, bad_rows=bad_rows)
    notes = check_touched(quarantines(bad_rows), reading.paths, plan=chosen)
    with computing(
        device, batch_tokens, engine=engine, workers=workers, threads=threads, ray_address=ray_address
    ) as compute:
        inspected = inspection.inspect(reading, chosen, compute, n_worst=worst, by=by)
    return replace(inspected, notes=inspected.notes + notes)


@speaks_of_arguments
def inspect_row(
    dumps: Paths,
    row: str | int,
    plan: PlanLike | None = None,
    *,
    mode: Mode | None = None,
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
) -> "OneRow":
    """One sequence token by token, and what a plan says about it.

    row: its sample_id, or its number as errors give it.
    """
    from rlcorr_cli.runs import inspect as inspection

    chosen = choose_plan(plan, mode=mode)
    reading = request(dumps, format=format, columns=columns, batch_by=batch_by, limit=limit, bad_rows=bad_rows)
    with computing(
        device, batch_tokens, engine=engine, workers=workers, threads=threads, ray_address=ray_address
    ) as compute:
        return inspection.one_row(reading, chosen, compute, str(row))


def _refuse_idle(chosen: ChosenPlan) -> None:
    """Refuse a plan by which nothing would be corrected."""
    if chosen.plan.weighting is None and not chosen.plan.rules:
        hint = " ".join((*chosen.notes, "Name one, such as --preset geo_rs."))
        raise UsageError(f"The plan {chosen.plan.name} corrects nothing.", hint)
