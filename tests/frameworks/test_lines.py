"""`rlcorr presets --for`: lines of a framework's config that are read back as the plan, or that there are none."""

import contextlib
import io
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from rlcorr_cli.commands import main
from rlcorr_cli.frameworks.chosen import profile_called
from rlcorr_cli.frameworks.read import read_plan
from rlcorr_cli.frameworks.write import names
from rlcorr_cli.plans.plan import Bounds, Plan, Rejection
from rlcorr_cli.plans.preset_configs import CONFIGS
from rlcorr_cli.plans.presets import COMPARED, PRESETS

OWN = {
    name: framework for name in CONFIGS for framework in names() if name.startswith(f"{framework.removesuffix('_rl')}_")
}
"""Presets that are a framework's own, and the framework."""
OF_VERL = [name for name, config in CONFIGS.items() if config.reader.startswith("verl")]


def run(*argv: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main.run(["presets", *argv])
    return status, out.getvalue(), err.getvalue()


def lines(name: str, framework: str) -> str:
    status, out, err = run(name, "--for", framework)
    assert status == 0, err
    return out


def read_back(text: str, folder: Path) -> Plan:
    path = folder / "config.yaml"
    path.write_text(text)
    release = text.split(" for ")[1].split(".\n")[0].split(". ")[0]
    return read_plan(str(path), profile_called(release) if release.startswith("verl-") else None).plan


def ratios(rejection: Rejection) -> Rejection:
    """A bound on -l, as verl's k1 is, as the ratio's that it is."""
    if rejection.statistic != "k1" or rejection.gate != "any":
        return rejection
    low, high = (None if end is None else math.exp(-end) for end in (rejection.bounds.high, rejection.bounds.low))
    return replace(rejection, statistic="ratio", bounds=Bounds(low, high))


def alike(plan: Plan) -> Plan:
    """A plan without names and limits of log-ratios, and with one way to write no low bound."""
    rules = tuple(replace(ratios(each), name=f"r{place}") for place, each in enumerate(plan.rejections))
    weighting = plan.weighting
    if weighting is not None and weighting.outside == "clamp" and not weighting.bounds.low:
        weighting = replace(weighting, bounds=Bounds(None, weighting.bounds.high))
    budgets = tuple(replace(each, name="b") for each in plan.budgets)
    return replace(
        plan,
        name="",
        weighting=None if weighting is None else replace(weighting, infinite="clamp"),
        rejections=rules,
        budgets=budgets,
        log_ratio_limit=None,
        limit_on="reduced",
    )


@pytest.mark.parametrize(("name", "framework"), [*OWN.items(), *((name, "verl") for name in OF_VERL)])
def test_a_frameworks_own_presets_are_written_and_read_back(name: str, framework: str, tmp_path: Path) -> None:
    text = lines(name, framework)
    assert "cannot express" not in text
    found, wanted = alike(read_back(text, tmp_path)), alike(PRESETS[name].plan)
    assert replace(found, rejections=()) == replace(wanted, rejections=())
    for ours, theirs in zip(wanted.rejections, found.rejections, strict=True):
        assert replace(ours, bounds=Bounds(0, 1)) == replace(theirs, bounds=Bounds(0, 1))
        # A bound of 0 is none to what is never negative.
        for own, other in ((ours.bounds.low, theirs.bounds.low), (ours.bounds.high, theirs.bounds.high)):
            assert (own or 0.0) == pytest.approx(other or 0.0, rel=1e-8)


def test_of_every_framework_some_plan_is_written_and_none_is_made_up() -> None:
    for framework in names():
        written = [name for name in PRESETS if "cannot express" not in lines(name, framework)]
        assert 3 < len(written) < len(PRESETS)


def test_a_geometric_ratio_is_a_k1_of_verls_newest_and_a_veto_an_option_of_its_older_releases(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps({"rejections": [{"statistic": "ratio", "scope": "seq_mean", "low": 0.998, "high": 1.001}]})
    )
    text = lines(str(plan), "verl")
    assert "custom for verl-0.9" in text
    # verl's k1 acts on -l: ratios of 0.998 to 1.001 are 1/1.001 to 1/0.998 there.
    assert 'rollout_rs_threshold: "0.999000999_1.002004008"' in text
    assert "geo_rs for verl-0.6" in lines("geo_rs", "verl").replace("decoupled_geo_rs", "geo_rs")


def test_what_a_framework_cannot_express_is_said_with_the_plan() -> None:
    text = lines("geo_rs", "trl")
    assert text.startswith("# decoupled_geo_rs: trl's config cannot express it")
    assert "keeps ratio seq_mean [0.999, 1.001]" in " ".join(text.replace("\n# ", " ").split())


def test_a_limit_that_the_framework_has_not_is_noted() -> None:
    assert "It has no limit on log-ratios; the plan has +-20." in lines("token_is", "trl").replace("\n# ", " ")
    assert "limit" not in lines("trl_token_truncate", "trl")


def test_an_option_that_no_release_has_is_noted() -> None:
    assert "binary_kl is of verl's pull request 6800" in lines("kpop", "verl").replace("\n# ", " ")
    assert "6800" not in lines("trm", "verl")


def test_without_a_name_the_plans_of_compare_are_written() -> None:
    status, out, _ = run("--for", "prime-rl")
    assert status == 0
    assert [block.split()[1].rstrip(":") for block in out.split("\n\n")] == [row.name for row in COMPARED]


def test_an_unknown_framework_and_json_are_refused() -> None:
    status, _, err = run("token_is", "--for", "trll")
    assert status == 2
    assert "Unknown framework 'trll'" in err
    assert "trl" in err.split("Try one of")[1]
    assert run("token_is", "--for", "trl", "--json")[0] == 2
