"""Every name that a report or an error can show is defined by `rlcorr explain`, from the tables the code uses."""

import pytest
from running import STEPS, analyzed, run

from rlcorr_cli.metrics.corrections import FACTOR, OOB, REJECTIONS, WEIGHTS
from rlcorr_cli.metrics.diagnostics import DRIFT, METRICS
from rlcorr_cli.metrics.origins import ORIGINS
from rlcorr_cli.plans.presets import PRESETS
from rlcorr_cli.plans.statistics import STATISTICS
from rlcorr_cli.present.terminal.explain import DEFINED, UNITS
from rlcorr_cli.quality.anomalies import SUSPICIONS, Suspicion
from rlcorr_cli.quality.bad_rows import PROBLEMS, Problem
from rlcorr_cli.rules.defaults import RULES


def explained(name: str) -> str:
    ran = run("explain", name)
    assert ran.status == 0, ran.err
    return " ".join(ran.out.split())


def test_every_metric_has_formula_unit_shape_and_source() -> None:
    weights = [f"rollout_is_{row.name}" for row in (*WEIGHTS, OOB, FACTOR)]
    names = [metric.name for metric in (*METRICS, *DRIFT)] + weights + list(REJECTIONS)
    assert len(names) > 60
    for name in names:
        text = explained(name)
        assert " ".join(DEFINED[name].split()) in text
        assert f"Unit: {UNITS[name]}. Shape: " in text
        assert "Source: " in text


def test_every_metric_of_a_report_is_explained() -> None:
    for name in analyzed(STEPS, "--preset", "token_is", "--veto", "1e-4")["metrics"]:
        if not name.startswith("rollout_rs_veto"):
            explained(name)


def test_sources_are_of_metrics_that_there_are() -> None:
    assert set(ORIGINS) <= set(DEFINED)


def test_every_rule_is_told_with_its_cure() -> None:
    for rule in RULES:
        text = explained(rule.metric)
        assert f"Rule ({rule.severity}): {rule}. {rule.remedy}" in text


@pytest.mark.parametrize("name", [*STATISTICS, *PRESETS])
def test_every_statistic_and_preset_is_explained(name: str) -> None:
    assert explained(name)


@pytest.mark.parametrize("one", [*PROBLEMS, *SUSPICIONS], ids=lambda one: one.name)
def test_every_class_of_problems_is_told_with_its_cure(one: Problem | Suspicion) -> None:
    text = explained(one.name)
    assert " ".join(one.means.split()) in text
    assert f"Cure: {one.cure}" in text


def test_an_unknown_name_gets_the_nearest() -> None:
    ran = run("explain", "sentinell")
    assert ran.status == 2
    assert "sentinel" in ran.err
