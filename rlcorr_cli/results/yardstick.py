"""A clean dump's numbers as the yardstick of another dump of the same model, read from whatever was saved of it."""

import os
from collections.abc import Mapping
from typing import Any

from rlcorr_cli.causes.diagnosis import CLEAN, UNCLEAR, Diagnosis
from rlcorr_cli.causes.features import Yardstick
from rlcorr_cli.causes.search import search
from rlcorr_cli.causes.table import ALL_CAUSES
from rlcorr_cli.errors import DataError
from rlcorr_cli.results.diagnosed import DiagnosisRun
from rlcorr_cli.results.saved import load
from rlcorr_cli.results.saved_totals import command_of, holds_totals, read_saved, read_totals

NAME_CLEAN = "Name a dump of the same model, sampled at the same temperature, in which nothing is wrong."
SAVE_CLEAN = "Name the clean dump itself, or write `⟦diagnose(CLEAN)⟧ ⟦output clean.json⟧`."


def yardstick_in(path: str) -> Yardstick:
    """Of a saved report (.json of `diagnose` or `analyze`) or saved totals (.rlcorr of either); a DataError of a dump
    that is not clean, or of a report that does not tell."""
    if holds_totals(path):
        if command_of(path) == DiagnosisRun.command:
            sample = read_saved(path, DiagnosisRun).sample
        else:
            sample = read_totals(path).measured.sample
        return _told(path, None, None) if sample is None else yardstick_of(path, search(sample).diagnosis)
    _, data = load(path)
    cause, gap, story = (data.get(key) for key in ("cause", "gap", "story"))
    parameters = cause.get("parameters") if isinstance(cause, Mapping) else None
    cores: list[Any] = [each.get("core") for each in (gap, parameters) if isinstance(each, Mapping)]
    core = next((value for value in cores if isinstance(value, float)), None)
    return _told(path, story.get("first") if isinstance(story, Mapping) else None, core)


def yardstick_of(path: str, diagnosis: Diagnosis, verdict: str | None = None) -> Yardstick:
    """Of a dump that was diagnosed; a DataError of one that is not clean.  verdict: where files have one of theirs."""
    return _told(path, verdict or diagnosis.verdict, diagnosis.gap.core)


def _told(path: str, verdict: str | None, core: float | None) -> Yardstick:
    name = os.path.basename(path.rstrip("/")) or path
    if verdict is not None and verdict not in (CLEAN, UNCLEAR):
        cause = ALL_CAUSES.get(verdict)
        if cause is None or cause.effect != "none":
            what = "it has too little data" if cause is None else f"its cause is {verdict}"
            raise DataError(f"{path} is no clean dump: {what}.", NAME_CLEAN)
    if not core:
        raise DataError(f"{path} does not tell how far apart its two policies are in log-odds.", SAVE_CLEAN)
    return Yardstick(core, name)
