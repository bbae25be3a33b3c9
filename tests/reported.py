"""Reports and diagnoses of a request, as commands make them of a dump."""

from dataclasses import replace
from typing import Any

from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.reading.dump import open_dump
from rlcorr_cli.reading.request import ReadRequest
from rlcorr_cli.results.build import report_of
from rlcorr_cli.results.diagnosed import DiagnosedDump, diagnosis_of
from rlcorr_cli.results.report import Report
from rlcorr_cli.runs.analyze import analysis_totals, opened
from rlcorr_cli.runs.computing import Computing
from rlcorr_cli.runs.diagnose import DIAGNOSIS_COLUMNS, diagnosis_totals
from rlcorr_cli.runs.reading import OpenDump


def analyze(
    request: ReadRequest, chosen: ChosenPlan, *, computing: Computing | None = None, totals: bool = False, **how: Any
) -> Report:
    read = OpenDump(dump=opened(request, chosen, clusters=True), computing=computing or Computing(), saved=totals)
    run = analysis_totals(read, chosen, **how)
    return replace(report_of(run), totals=run if totals else None)


def diagnose(request: ReadRequest, *, computing: Computing | None = None, totals: bool = False) -> DiagnosedDump:
    run = diagnosis_totals(
        OpenDump(dump=open_dump(request, DIAGNOSIS_COLUMNS), computing=computing or Computing(), saved=totals)
    )
    return replace(diagnosis_of(run), totals=run if totals else None)
