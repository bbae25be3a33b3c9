"""`sweep` as a command: the target's bounds kept to the row by `filter`, every form, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from running import BF16, STEPS, parquet, refused, row, run

from rlcorr_cli import api
from rlcorr_cli.commands.compare import _swept
from rlcorr_cli.plans.plan import Bounds
from rlcorr_cli.plans.presets import PRESETS

TARGETS = (
    ("--vary", "ratio.seq_mean", "--target-keep", "0.95"),
    ("--vary", "ratio.seq_mean.low", "--target-keep", "0.9"),
    ("--vary", "k3.seq_max", "--target-keep", "0.8"),
    ("--vary", "ratio.token", "--target-keep", "0.999"),
    ("--vary", "ratio.seq_sum", "--rs", "k3.token:,0.02", "--target-keep", "0.5"),
)


def swept(*args: str) -> dict[str, Any]:
    return run("sweep", *args, "--json").json


@pytest.mark.parametrize("dump", [BF16, STEPS], ids=["bf16", "steps"])
@pytest.mark.parametrize("options", TARGETS, ids=lambda options: " ".join(options[1::2]))
def test_filter_keeps_just_what_the_target_says(dump: str, options: tuple[str, ...]) -> None:
    report = swept(dump, *options)
    target = report["target"]
    filtered = run("filter", dump, "--dry-run", "--json", *target["option"].split()).json
    statistic, scope = options[1].split(".")[:2]
    lost_units = "masked_fraction" if report["units"] == "tokens" else "seq_masked_fraction"
    lost = filtered["metrics"][f"rollout_rs_{scope}_{statistic}_{lost_units}"]
    assert round((1 - lost) * report["n_units"]) == target["point"]["n_inside"]
    assert target["point"]["n_inside"] >= target["share"] * report["n_units"]


def test_the_terminal_shows_the_option_in_a_line_of_its_own() -> None:
    ran = run("sweep", BF16, "--vary", "ratio.seq_mean", "--target-keep", "0.95")
    assert ran.status == 0
    lines = ran.out.splitlines()
    assert "      --rs ratio.seq_mean:0.99,1.01" in lines
    assert "To keep 95.0% of the sequences (61 of 64 sequences; 94.7% of the batch):" in ran.out
    assert max(map(len, lines)) <= 80
    assert len([line for line in lines if "," in line and "%" in line and "tokens" not in line]) == 25


def test_a_cap_has_the_sample_size_that_analyze_reports() -> None:
    target = swept(BF16, "--is", "sequence", "--vary", "is.high", "--target-ess", "0.9")["target"]
    metrics = run("analyze", BF16, *target["option"].split(), "--json").json["metrics"]
    assert metrics["rollout_is_eff_sample_size"] == pytest.approx(target["point"]["ess"], rel=1e-9)
    assert 0.9 <= target["point"]["ess"] < 0.9001


def test_a_target_out_of_reach_is_no_error() -> None:
    target = swept(BF16, "--vary", "k3.seq_mean", "--target-ess", "0.99")["target"]
    assert target["threshold"] is None
    assert target["option"] is None
    assert target["point"]["ess"] < 0.99


def test_the_option_names_the_whole_plan() -> None:
    """Beside what the plan has already, in place of its own bound, as flags turn it."""
    names = {"--preset": "preset", "--is": "is_"}
    checked = 0
    for name, preset in PRESETS.items():
        plan = preset.plan
        if plan.budgets:
            continue
        free = ["prob_gap.token", "ratio.seq_mean.low", *(f"{rule.statistic}.{rule.scope}" for rule in plan.rejections)]
        free += ["is.low", "is.high"] if plan.weighting and plan.applies_weights else []
        for vary in free:
            if vary == "is.low" and plan.weighting and plan.weighting.outside == "cap":
                continue
            swept = _swept(vary, api.choose_plan(preset=name))
            words = swept.option(swept.bounds(0.0)).split()
            options = dict(zip(words[::2], words[1::2], strict=True))
            knobs: dict[str, Any] = {names[key]: value for key, value in options.items() if key in names}
            named = api.choose_plan(**knobs, rs=options.get("--rs", ())).plan
            assert replace(named, name="") == replace(swept.plan(swept.bounds(0.0)), name=""), (name, vary)
            checked += 1
    assert checked > 150


def test_the_option_keeps_what_stands_beside_it() -> None:
    chosen = api.choose_plan(preset="slime_tis", is_="token:,1.5:zero", veto=1e-4, rs="k3.token:,0.02")
    beside = "--preset slime_tis --veto 0.0001 --rs k3.token:,0.02"
    assert _swept("is.high", chosen).option(Bounds(None, 1.25)) == f"{beside} --is token:,1.25:zero"
    of_veto = _swept("ratio.seq_min.low", chosen).option(Bounds(0.5, None))
    assert of_veto == "--preset slime_tis --is token:,1.5:zero --rs k3.token:,0.02 --rs ratio.seq_min:0.5,"
    assert _swept("is.low", api.choose_plan(plan=chosen.plan)).option(Bounds(0.5, 1.5)) == "--is token:0.5,1.5:zero"


def test_normalized_weights_are_swept_batch_by_batch() -> None:
    options = ("--is", "sequence", "--normalize", "batch", "--rs", "ratio.seq_mean:0.95,1.05")
    target = swept(STEPS, *options, "--vary", "is.high", "--target-ess", "0.9")["target"]
    metrics = run("analyze", STEPS, *target["option"].split(), "--json").json["metrics"]
    assert metrics["rollout_is_eff_sample_size"] == pytest.approx(target["point"]["ess"], rel=1e-9)
    one_batch = swept(STEPS, *options, "--vary", "is.high", "--target-ess", "0.9", "--batch-by", "none")["target"]
    assert one_batch["threshold"] != target["threshold"]


@pytest.mark.parametrize("suffix", ["json", "html", "md", "csv", "png", "svg", "pdf"])
def test_a_sweep_is_written_in_every_form(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"sweep.{suffix}"
    assert run("sweep", BF16, "--vary", "ratio.seq_mean", "--target-keep", "0.95", "-o", str(path)).status == 0
    data = path.read_bytes()
    if suffix == "json":
        assert json.loads(data)["target"]["option"] == "--rs ratio.seq_mean:0.99,1.01"
    elif suffix in ("html", "md", "csv"):
        assert b"0.947" in data or b"94.7" in data or b"kept_units" in data
    else:
        assert len(data) > 1000


REFUSED = (
    ((), "sweep varies one bound: name it with --vary"),
    (("--vary", "ratio.seq_mean", "--target-keep", "2"), "must lie in (0, 1]"),
    (("--vary", "ratio.seq_mean", "--target-ess", "0"), "must lie in (0, 1]"),
    (("--vary", "ratio.seq_mean", "--target-keep", "0.5", "--target-ess", "0.5"), "two targets"),
    (("--preset", "m2po", "--vary", "ratio.token"), "budget"),
    (
        ("--preset", "prime_dppo", "--is", "token", "--vary", "is.high", "--batch-by", "step"),
        "--batch-by has no effect",
    ),
    (("--vary", "is.high"), "no weights"),
    (("--is", "token", "--vary", "is"), "Cannot read what to vary, 'is'"),
    (("--preset", "ppo_is_bypass", "--is", "token", "--vary", "is.high"), "bypass"),
    (("--vary", "nonsense"), "Cannot read what to vary"),
    (("--vary", "k4.token"), "Nearest: k3, k2, k1."),
    (("--vary", "k3.sequence"), "Scopes: token, seq_sum, seq_mean, seq_max, seq_min."),
    (("--vary", "k3.token.low"), "never negative"),
    (("--vary", "ratio.seq_mean", "--batch-by", "step"), "--batch-by"),
    (("--vary", "ratio.seq_mean", "-o", "sweep.xls"), "sweep.xls"),
)


@pytest.mark.parametrize(("options", "part"), REFUSED, ids=[part for _, part in REFUSED])
def test_what_cannot_be_swept_is_refused(options: tuple[str, ...], part: str) -> None:
    refused(run("sweep", BF16, *options), 2, part)


@pytest.mark.filterwarnings("error")
def test_advantages_beyond_every_square_say_nothing_of_numpy(tmp_path: Path) -> None:
    rows = [row(rollout=(-1.0, -0.5 - i / 50), old=(-1.01, -0.5), advantages=[1e308, 1e308]) for i in range(6)]
    dump = parquet(tmp_path / "d.parquet", rows)
    for command in (("sweep", dump, "--vary", "ratio.seq_mean"), ("sweep", dump, "--is", "token", "--vary", "is.high")):
        ran = run(*command, "-o", str(tmp_path / "s.json"), "--overwrite", "-q")
        assert (ran.status, ran.err) == (0, "")
    assert (run("compare", dump).status, run("compare", dump).err) == (0, "")


def test_an_output_is_never_the_dump(tmp_path: Path) -> None:
    dump = tmp_path / "dump.json"
    dump.write_bytes(Path(BF16).read_bytes())
    ran = run("sweep", str(dump), "--format", "parquet", "--vary", "ratio.seq_mean", "-o", str(dump))
    assert ran.status in (2, 4), ran.err
    assert dump.read_bytes() == Path(BF16).read_bytes()


@pytest.mark.parametrize(("weights", "vary"), [("token:,2", "is.high"), ("token:0.5,2", "is.low")])
def test_caps_of_weights_begin_at_1(weights: str, vary: str) -> None:
    points = run("sweep", BF16, "--is", weights, "--vary", vary, "--json").json["points"]
    assert len(points) == 25
    assert all(point["high"] >= 1 for point in points)
    assert all(point["low"] is None or point["low"] <= 1 for point in points)
    assert points[-1]["kept_units"] == 1
