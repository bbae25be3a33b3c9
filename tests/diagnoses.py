"""Diagnoses made by hand: the three of the sketches, and others for what forms show."""

from collections.abc import Mapping
from typing import Any

from rlcorr_cli.causes.diagnosis import (
    AnomalyFinding,
    CauseFinding,
    ColumnGap,
    Diagnosis,
    Gap,
    LevelGap,
    NotLookedFor,
    PlaceGap,
)
from rlcorr_cli.causes.gap import GapTotals
from rlcorr_cli.reading.batch import Input
from rlcorr_cli.results.diagnosed import DiagnosedDump, DiagnosedGroup

NOISE = CauseFinding(
    cause="noise",
    share=0.17,
    bound="at_most",
    parameters={"core": 0.12},
    is_minor=True,
    headline="rounding noise",
    evidence=(),
    advice="",
)
TOP_P = CauseFinding(
    cause="top_p",
    share=0.72,
    parameters={"top_p": 0.794},
    intervals={"top_p": (0.787, 0.808)},
    headline="rollout_log_probs was logged after top-p 0.8 (0.787 to 0.808), old_log_probs was not",
    evidence=(
        "rollout_log_probs is exactly 0 where old_log_probs is above log 0.794, and nowhere else: 1,605 tokens; 39 "
        "of 1,967 tokens contradict it.",
        "The mean ratio is 0.889 ± 0.014: training gives 11% of its probability to tokens that the rollout "
        "never samples.",
    ),
    advice="Return log-probs before truncation, or apply the same top-p in training.",
)
WORKER = CauseFinding(
    cause="column",
    share=0.61,
    token_share=0.23,
    parameters={"column": "worker", "levels": "w3"},
    headline="worker w3",
    evidence=(
        "Its tokens differ 5.2 times as much as the others' (z = 32).",
        "Inside it, the rollout used 0.9 times training's temperature (fit 0.897, R² 0.83).",
    ),
    advice="",
)
ALL_NOISE = CauseFinding(
    cause="noise",
    share=0.89,
    bound="at_most",
    headline="rounding noise",
    evidence=(
        "The log-odds differ by 0.072, equally at all levels of surprise (slope 0.0003 ± 0.0008); 0% of it depends "
        "on the token (changed weights: 3% or more); no rows gain or lose as a whole; the mean ratio is 0.9999 ± "
        "0.0012, so the tokens were drawn from rollout_log_probs.",
    ),
    advice="",
)


def level(name: Any, tokens: float, gap: float, expected: float, size: float | None, *, hot: bool = False) -> LevelGap:
    return LevelGap(
        level=name,
        rows=14,
        tokens=int(5620 * tokens),
        token_share=tokens,
        k3=gap,
        k3_interval=(gap - 0.05, gap + 0.05),
        gap=gap,
        gap_interval=(gap - 0.05, gap + 0.05),
        expected=expected,
        size=size,
        z=None if size is None else 32.0 if hot else 0.5,
        is_hot=hot,
    )


WORKERS = ColumnGap(
    column="worker",
    levels=(
        level("w0", 0.26, 0.10, 0.28, 0.6),
        level("w1", 0.25, 0.11, 0.29, 0.6),
        level("w2", 0.26, 0.10, 0.26, 0.5),
        level("w3", 0.23, 0.69, 0.17, 5.2, hot=True),
    ),
)
SOURCES = ColumnGap(
    column="data_source", levels=(level("chat", 0.5, 0.52, 0.5, 1.0), level("math", 0.5, 0.48, 0.5, 1.0))
)


def diagnosis(verdict: str, *causes: CauseFinding, **changes: Any) -> Diagnosis:
    values: dict[str, Any] = {
        "gap": Gap(sum_sq=105.4, k3_kl=0.0113, sd=0.156, core=0.12),
        "verdict": verdict,
        "conclusion": "",
        "causes": causes,
        "columns": (SOURCES,),
        "not_looked_for": (NotLookedFor("stale_policy", "advantages or rewards"),),
        "places": (PlaceGap(0, 48, 0.031), PlaceGap(1, 48, None), PlaceGap(2, 0, None)),
        "features": {"core": 0.12, "r2": None},
    }
    return Diagnosis(**values | changes)


def group(of: Diagnosis, key: Mapping[str, Any] | None = None, totals: GapTotals | None = None) -> DiagnosedGroup:
    counts = {"rows": 48, "sequences": 48, "empty_sequences": 0, "tokens": 4340, "masked_tokens": 0, "bad_rows": 0}
    return DiagnosedGroup(key=key or {}, counts=counts, diagnosis=of, totals=totals or GapTotals())


def dump(of: Diagnosis, *groups: DiagnosedGroup, path: str = "top_p08.parquet", **changes: Any) -> DiagnosedDump:
    columns = {"rollout_log_probs": "rollout_log_probs", "old_log_probs": "old_log_probs"}
    values: dict[str, Any] = {
        "inputs": (Input(path=path, format="parquet", rows=48, n_bytes=1000, columns=columns),),
        "columns": ("rollout_log_probs", "old_log_probs"),
        "whole": group(of),
        "groups": groups,
        "anomalies": (),
        "problems": {},
        "notes": (),
    }
    return DiagnosedDump(**values | changes)


TOP_P_DUMP = dump(diagnosis("top_p", TOP_P, NOISE))
WORKER_DUMP = dump(
    diagnosis("column", WORKER, gap=Gap(sum_sq=105.4, k3_kl=0.00459, sd=0.0912, core=0.12), columns=(WORKERS, SOURCES)),
    path="worker_temp09.parquet",
)
NOISE_DUMP = dump(
    diagnosis("noise", ALL_NOISE, gap=Gap(sum_sq=105.4, k3_kl=0.00118, sd=0.0486, core=0.12), not_looked_for=()),
    path="noise_bf16_fp32.parquet",
)
SHIFTED = AnomalyFinding(
    name="shifted_columns",
    path="a/top_p08.parquet",
    evidence="old_log_probs lies one token later than rollout_log_probs",
    fix="Shift one column by a token.",
    n_files=1,
)
