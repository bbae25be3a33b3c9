"""For notebooks and trainers: `analyze`, `filter_dump` and `check` with plain arguments, typed results, no terminal.

Everything that goes wrong with a dump or an argument is an `errors.RlcorrError`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.plans.presets import preset
from rlcorr_cli.quality.bad_rows import BadRowPolicy
from rlcorr_cli.report.checked import Checked, measurements_of
from rlcorr_cli.report.filtered import ROWS_PER_FILE, Filtered, Target
from rlcorr_cli.report.report import Report
from rlcorr_cli.requests import ReadRequest

if TYPE_CHECKING:
    from rlcorr_cli.frameworks.chosen import ChosenPlan

Paths = str | Path | Sequence[str | Path]


def analyze(
    dumps: Paths,
    plan: Plan | str = "disabled",
    *,
    group_by: str | Sequence[str] = (),
    batch_by: str | None = None,
    columns: Mapping[str, str] | None = None,
    limit: int | None = None,
    bad_rows: BadRowPolicy | None = None,
    device: str = "auto",
    threads: int | None = None,
    batch_tokens: int | None = None,
    seed: int = 0,
) -> Report:
    """Measure a dump under a plan.

    dumps: files, directories or globs.  plan: a Plan or a preset's name.  columns: canonical name -> the dump's column.
    bad_rows: what to do about them; the default stops at the first.
    The report's `whole` and `groups` hold counts and metrics by name, `intervals` 95 % intervals; `health`, `verdict`,
    `onset` and `trends` are its conclusions.
    """
    from rlcorr_cli.pipeline import analyze as analysis
    from rlcorr_cli.pipeline.scan import computing

    keys = (group_by,) if isinstance(group_by, str) else tuple(group_by)
    request = ReadRequest(
        paths=_paths(dumps),
        columns=dict(columns or {}),
        group_by=keys,
        batch_by=batch_by,
        limit=limit,
        bad_rows=bad_rows or BadRowPolicy(),
    )
    return analysis.analyze(request, _plan(plan), computing=computing(device, threads, batch_tokens), seed=seed)


def filter_dump(
    dumps: Paths,
    output: str | Path | None,
    plan: Plan | str,
    *,
    keep_rejected: bool = False,
    rejected_output: str | Path | None = None,
    overwrite: bool = False,
    rows_per_file: int = ROWS_PER_FILE,
    resample: int | None = None,
    seed: int = 0,
    write_unused_weights: bool = False,
    batch_by: str | None = None,
    columns: Mapping[str, str] | None = None,
    limit: int | None = None,
    bad_rows: BadRowPolicy | None = None,
    device: str = "auto",
    threads: int | None = None,
    batch_tokens: int | None = None,
) -> Filtered:
    """Write a dump's corrected rows to `output` (None: only say what would be kept); options as of `rlcorr filter`."""
    from rlcorr_cli.pipeline.filter import filter_dump as run
    from rlcorr_cli.pipeline.scan import computing

    apart = None if rejected_output is None else Path(rejected_output)
    target = Target(
        None if output is None else Path(output),
        keep_rejected,
        apart,
        overwrite,
        rows_per_file,
        resample,
        seed,
        write_unused_weights,
    )
    request = ReadRequest(
        paths=_paths(dumps),
        columns=dict(columns or {}),
        batch_by=batch_by,
        limit=limit,
        bad_rows=bad_rows or BadRowPolicy(),
    )
    return run(request, _plan(plan), target, computing=computing(device, threads, batch_tokens))


def check(
    report: Report | str | Path,
    *,
    rules: str | Path | None = None,
    at_most: Mapping[str, float] | None = None,
    at_least: Mapping[str, float] | None = None,
    baseline: Report | str | Path | None = None,
    max_increase: Mapping[str, float | str] | None = None,
    max_decrease: Mapping[str, float | str] | None = None,
) -> Checked:
    """Hold a report, or a saved one, to the rules it carries and one's own, and to a baseline.

    rules: a rules file.  at_most, at_least: metric -> bound.  max_increase, max_decrease: metric -> an amount, or a
    percentage as in '20%', that it may be above or below the baseline.
    """
    from rlcorr_cli.pipeline.check import check as run
    from rlcorr_cli.report.saved import read_report
    from rlcorr_cli.rules.files import read_rules
    from rlcorr_cli.rules.policy import Baseline, policy

    def loaded(source: Report | str | Path) -> Report:
        return source if isinstance(source, Report) else read_report(str(source))

    def pairs(amounts: Mapping[str, float | str] | None) -> list[str]:
        return [f"{metric}={amount}" for metric, amount in (amounts or {}).items()]

    name = "the baseline" if isinstance(baseline, Report) else str(baseline)
    subject = loaded(report)
    asked = policy(
        defaults=subject.rules,
        file=None if rules is None else read_rules(str(rules)),
        at_most=pairs(at_most),
        at_least=pairs(at_least),
        max_increase=pairs(max_increase),
        max_decrease=pairs(max_decrease),
        baseline=None if baseline is None else Baseline(name=name, sections=measurements_of(loaded(baseline)).sections),
    )
    return run(measurements_of(subject), asked)


def _plan(plan: Plan | str) -> "ChosenPlan":
    """The plan, with what its preset has to say."""
    from rlcorr_cli.frameworks.chosen import ChosenPlan

    if isinstance(plan, Plan):
        return ChosenPlan(plan)
    named = preset(plan)
    return ChosenPlan(named.plan, notes=named.notes)


def _paths(dumps: Paths) -> tuple[str, ...]:
    paths = (dumps,) if isinstance(dumps, str | Path) else dumps
    return tuple(str(path) for path in paths)
