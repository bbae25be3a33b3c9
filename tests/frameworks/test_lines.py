"""`rlcorr presets --for`: lines of a framework's config that are read back as the plan, or that there are none."""

import contextlib
import io
import json
import math
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rlcorr_cli.commands import main
from rlcorr_cli.frameworks.profiles import profile_called
from rlcorr_cli.frameworks.read import read_plan
from rlcorr_cli.frameworks.write import lines_of, names
from rlcorr_cli.plans.plan import Bounds, Plan, Rejection
from rlcorr_cli.plans.presets import COMPARED, PRESETS
from rlcorr_cli.plans.yaml_files import parse_yaml

CONFIGS = {name: row.config for name, row in PRESETS.items() if row.config is not None}

GOLDEN = Path(__file__).parent.parent / "golden"

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
    path = folder / ("config.toml" if " for prime-rl." in text else "config.yaml")
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
    if weighting is not None and not weighting.bounds.low:
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
    check_rejections(wanted, found)


def check_rejections(wanted: Plan, found: Plan) -> None:
    """The same rejections, in the same order, with bounds that differ by rounding alone."""
    for ours, theirs in zip(wanted.rejections, found.rejections, strict=True):
        assert replace(ours, bounds=Bounds(0, 1)) == replace(theirs, bounds=Bounds(0, 1))
        # A bound of 0 is none to what is never negative.
        for own, other in ((ours.bounds.low, theirs.bounds.low), (ours.bounds.high, theirs.bounds.high)):
            assert (own or 0.0) == pytest.approx(other or 0.0, rel=1e-8)


def paths(value: Any, at: tuple[str, ...] = ()) -> Iterator[str]:
    """The dotted names of a config's options; those of a list's blocks without a place."""
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from paths(each, (*at, key))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for each in value:
            yield from paths(each, at)
    else:
        yield ".".join(at)


@cache
def known_options() -> frozenset[str]:
    """The options of users' configs: those of the goldens, of releases, and in presets' frameworks' own words."""
    methods = json.loads((GOLDEN / "methods3" / "expected.json").read_text())
    # Of verl, releases are known, and no older names that its config takes no more.
    own = [config.text for config in CONFIGS.values() if not config.reader.startswith("verl")]
    texts = [case["config"] for case in methods.values()] + own
    found = {path for text in texts for path in paths(parse_yaml(text).data if isinstance(text, str) else text)}
    released = json.loads((GOLDEN / "option_names.json").read_text())
    slime = [case["config"] for name, case in json.loads((GOLDEN / "expected_metrics.json").read_text()).items()]
    return frozenset(found.union(*released.values(), *slime) | OF_DOCUMENTS)


OF_DOCUMENTS = {
    # NeMo-RL's loss and SkyRL's 0.4 configuration, AReaL's RejectionSamplingConfig, prime-rl's loss of before 2026-03.
    "loss_fn.force_on_policy_ratio",
    "trainer.algorithm.off_policy_correction.token_mask_is_threshold_low",
    "trainer.algorithm.off_policy_correction.token_mask_is_threshold_high",
    "actor.rejection_sampling.lower",
    "trainer.loss.sequence_mask_low",
    "trainer.loss.sequence_mask_high",
}


@pytest.mark.parametrize("framework", names())
def test_what_is_written_of_any_preset_has_the_frameworks_options_and_is_read_back(
    framework: str, tmp_path: Path
) -> None:
    written = 0
    for name, row in PRESETS.items():
        if lines_of(row.plan, framework) is None:
            continue
        text = lines(name, framework)
        data = tomllib.loads(text) if framework == "prime_rl" else parse_yaml(text).data
        assert set(paths(data)) <= known_options(), name
        found, wanted = alike(read_back(text, tmp_path)), alike(row.plan)
        order = [(each.statistic, each.scope, each.gate) for each in wanted.rejections]
        same = sorted(found.rejections, key=lambda each: order.index((each.statistic, each.scope, each.gate)))
        found = alike(replace(found, rejections=tuple(same)))
        assert replace(found, rejections=()) == replace(wanted, rejections=()), name
        check_rejections(wanted, found)
        written += 1
    assert 3 < written < len(PRESETS)


@pytest.mark.parametrize("framework", names())
def test_a_plan_that_drops_every_sequence_has_lines_of_skyrl_alone(framework: str) -> None:
    ends = Rejection("ratio", "seq_min", Bounds(2.0, None)), Rejection("ratio", "seq_max", Bounds(None, 1.0))
    assert (lines_of(Plan("none", rejections=ends), framework) is not None) == (framework == "skyrl")


def test_flags_say_what_the_lines_do(tmp_path: Path) -> None:
    text = lines("openrlhf_icepop", "openrlhf")
    (flags,) = [line for line in text.splitlines() if line.startswith("# as flags: ")]
    said = dict(each.split(" ", 1) for each in flags.removeprefix("# as flags: --").split(" --"))
    block = "algo.advantage.is_correction_"
    assert said == {f"{block}level": "token", f"{block}mode": "mask", f"{block}threshold": "0.5 5.0"}
    assert "as flags" not in lines("trl_token_mask", "trl")


GATINGS: dict[str, dict[str, Any]] = json.loads((GOLDEN / "openrlhf_gating.json").read_text())


@pytest.mark.parametrize("case", GATINGS)
def test_openrlhfs_gating_by_divergence_is_its_own_functions(case: str, tmp_path: Path) -> None:
    rows = pq.read_table(GOLDEN / "methods3" / "input.parquet").to_pylist()
    dump, out, config = (tmp_path / name for name in ("dump.jsonl", "out.parquet", "config.json"))
    columns = ("sample_id", "rollout_log_probs", "old_log_probs", "response_mask")
    dump.write_text("\n".join(json.dumps({name: row[name] for name in columns}) for row in rows))
    config.write_text(json.dumps(GATINGS[case]["config"]))
    argv = ["filter", str(dump), "--plan", str(config), "--rejected", "keep", "-o", str(out)]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert main.run(argv) == 0
    n_dropped = n_kept = 0
    for row in pq.read_table(out).to_pylist():
        theirs = GATINGS[case]["weights"].get(row["sample_id"], [])
        for mask, ours, weight in zip(row["response_mask"], row["rollout_is_weights"], theirs, strict=bool(theirs)):
            if weight:
                assert ours * mask == pytest.approx(weight, rel=5e-6)
            else:
                assert not mask
            n_kept, n_dropped = n_kept + bool(weight), n_dropped + (weight == 0)
    assert n_kept > 10
    assert n_dropped > 100


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
    said = " ".join(text.replace("\n# ", " ").split())
    assert "keeps ratio seq_mean [0.999, 1.001]" in said
    assert "It has disabled, decoupled_token_is," in said


def test_a_limit_that_the_framework_has_not_is_noted() -> None:
    assert "It has no limit on log-ratios; the plan has +-20." in lines("token_is", "trl").replace("\n# ", " ")
    assert "limit" not in lines("trl_token_truncate", "trl")


def test_an_option_that_no_release_has_is_noted() -> None:
    assert "binary_kl is of verl's pull request 6800" in lines("kpop", "verl").replace("\n# ", " ")
    assert "6800" not in lines("trm", "verl")


def test_without_a_name_the_plans_of_compare_are_written() -> None:
    status, out, _ = run("--for", "prime-rl")
    assert status == 0
    *written, rest = out.split("\n\n")
    assert [block.split()[1] for block in written] == ["prime_ipo"]
    unwritten = " ".join(rest.replace("\n# ", " ").split()).removeprefix("# ").split(": ")[0].split(", ")
    assert sorted([*unwritten, "prime_ipo"]) == sorted(row.name for row in COMPARED)


def test_an_unknown_framework_and_json_are_refused() -> None:
    status, _, err = run("token_is", "--for", "trll")
    assert status == 2
    assert "Unknown framework 'trll'" in err
    assert "trl" in err.split("Try one of")[1]
    assert run("token_is", "--for", "trl", "--json")[0] == 2


def test_what_verl_must_have_on_stands_above_its_lines() -> None:
    comment = [line.removeprefix("# ") for line in lines("token_is", "verl").splitlines() if line.startswith("#")]
    assert "actor_rollout_ref.rollout.calculate_log_probs: true." in " ".join(comment)
    assert "calculate_log_probs" not in lines("token_is", "trl")
