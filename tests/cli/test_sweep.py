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
    ("--rs", "ratio.seq_mean", "--target-keep", "0.95"),
    ("--rs", "ratio.seq_mean", "--side", "low", "--target-keep", "0.9"),
    ("--rs", "k3.seq_max", "--target-keep", "0.8"),
    ("--rs", "ratio.token", "--target-keep", "0.999"),
    ("--rs", "ratio.seq_sum", "--rs", "k3.token:,0.02", "--target-keep", "0.5"),
)


def swept(*args: str) -> dict[str, Any]:
    return run("sweep", *args, "--json").json


@pytest.mark.parametrize("dump", [BF16, STEPS], ids=["bf16", "steps"])
@pytest.mark.parametrize("options", TARGETS, ids=lambda options: " ".join(options[1::2]))
def test_filter_keeps_just_what_the_target_says(dump: str, options: tuple[str, ...]) -> None:
    report = swept(dump, *options)
    target = report["target"]
    filtered = run("filter", dump, "--dry-run", "--json", *target["option"].split()).json
    statistic, scope = options[1].split(".")
    lost_units = "masked_fraction" if report["units"] == "tokens" else "seq_masked_fraction"
    lost = filtered["metrics"][f"rollout_rs_{scope}_{statistic}_{lost_units}"]
    assert round((1 - lost) * report["n_units"]) == target["point"]["n_inside"]
    assert target["point"]["n_inside"] >= target["share"] * report["n_units"]


def test_the_terminal_shows_the_option_in_a_line_of_its_own() -> None:
    ran = run("sweep", BF16, "--rs", "ratio.seq_mean", "--target-keep", "0.95")
    assert ran.status == 0
    lines = ran.out.splitlines()
    assert "      --rs ratio.seq_mean:0.99,1.01" in lines
    assert "To keep 95.0 % of the sequences (61 of 64 sequences; 94.7 % of the batch):" in ran.out
    assert max(map(len, lines)) <= 80
    assert len([line for line in lines if "," in line and "%" in line and "tokens" not in line]) == 25


def test_a_cap_has_the_sample_size_that_analyze_reports() -> None:
    target = swept(BF16, "--is", "sequence", "--bound", "high", "--target-ess", "0.9")["target"]
    metrics = run("analyze", BF16, *target["option"].split(), "--json").json["metrics"]
    assert metrics["rollout_is_eff_sample_size"] == pytest.approx(target["point"]["ess"], rel=1e-9)
    assert 0.9 <= target["point"]["ess"] < 0.9001


def test_a_target_out_of_reach_is_no_error() -> None:
    target = swept(BF16, "--rs", "k3.seq_mean", "--target-ess", "0.99")["target"]
    assert target["threshold"] is None
    assert target["option"] is None
    assert target["point"]["ess"] < 0.99


def test_the_option_names_the_whole_plan() -> None:
    """Beside what the plan has already, in place of its own bound, as flags turn it."""
    names = {"--preset": "plan", "--is": "is_scope", "--is-high": "is_high", "--is-low": "is_low"}
    checked = 0
    for name, preset in PRESETS.items():
        plan = preset.plan
        if plan.budgets:
            continue
        free: list[tuple[dict[str, Any], Any]] = [({"rs": "prob_gap.token"}, None), ({"rs": "ratio.seq_mean"}, "low")]
        free += [({"rs": f"{rule.statistic}.{rule.scope}"}, None) for rule in plan.rejections]
        free += [({"bound": end}, None) for end in ("low", "high") if plan.weighting and plan.applies_weights]
        for asked, side in free:
            swept = _swept(name, rs=asked.get("rs", ()), is_scope=None, bound=asked.get("bound"), side=side, mode=None)
            words = swept.option(swept.bounds(0.0)).split()
            options = dict(zip(words[::2], words[1::2], strict=True))
            knobs: dict[str, Any] = {names[key]: value for key, value in options.items() if key in names}
            knobs |= {key: float(value) for key, value in knobs.items() if key in ("is_high", "is_low")}
            named = api.choose_plan(**knobs, rs=options.get("--rs", ())).plan
            assert replace(named, name="") == replace(swept.plan(swept.bounds(0.0)), name=""), (name, asked)
            checked += 1
    assert checked > 150


def test_the_option_keeps_what_stands_beside_it() -> None:
    knobs: dict[str, Any] = {"is_scope": "token", "is_high": 1.5, "is_outside": "zero", "veto": 1e-4}
    chosen = api.choose_plan("slime_tis", **knobs, rs="k3.token:,0.02")
    beside = "--preset slime_tis --is token --is-outside zero --veto 0.0001 --rs k3.token:,0.02"
    assert (
        _swept(chosen, rs=(), is_scope=None, bound="high", side=None, mode=None).option(Bounds(None, 1.25))
        == f"{beside} --is-high 1.25"
    )
    of_veto = _swept(chosen, rs="ratio.seq_min", is_scope=None, bound=None, side="low", mode=None).option(
        Bounds(0.5, None)
    )
    assert (
        of_veto
        == "--preset slime_tis --is token --is-high 1.5 --is-outside zero --rs k3.token:,0.02 --rs ratio.seq_min:0.5,"
    )
    assert (
        _swept(chosen.plan, rs=(), is_scope=None, bound="low", side=None, mode=None).option(Bounds(0.5, 1.5))
        == "--is token --is-low 0.5"
    )


def test_normalized_weights_are_swept_batch_by_batch() -> None:
    options = ("--is", "sequence", "--normalize", "batch", "--rs", "ratio.seq_mean:0.95,1.05")
    target = swept(STEPS, *options, "--bound", "high", "--target-ess", "0.9")["target"]
    metrics = run("analyze", STEPS, *target["option"].split(), "--json").json["metrics"]
    assert metrics["rollout_is_eff_sample_size"] == pytest.approx(target["point"]["ess"], rel=1e-9)
    one_batch = swept(STEPS, *options, "--bound", "high", "--target-ess", "0.9", "--batch-by", "none")["target"]
    assert one_batch["threshold"] != target["threshold"]


@pytest.mark.parametrize("suffix", ["json", "html", "md", "csv", "png", "svg", "pdf"])
def test_a_sweep_is_written_in_every_form(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"sweep.{suffix}"
    assert run("sweep", BF16, "--rs", "ratio.seq_mean", "--target-keep", "0.95", "-o", str(path)).status == 0
    data = path.read_bytes()
    if suffix == "json":
        assert json.loads(data)["target"]["option"] == "--rs ratio.seq_mean:0.99,1.01"
    elif suffix in ("html", "md", "csv"):
        assert b"0.947" in data or b"94.7" in data or b"kept_units" in data
    else:
        assert len(data) > 1000


REFUSED = (
    ((), "none is"),
    (("--rs", "ratio.seq_mean", "--bound", "high"), "more than one is"),
    (("--rs", "ratio.seq_mean", "--target-keep", "2"), "must lie in (0, 1]"),
    (("--rs", "ratio.seq_mean", "--target-ess", "0"), "must lie in (0, 1]"),
    (("--rs", "ratio.seq_mean", "--target-keep", "0.5", "--target-ess", "0.5"), "two targets"),
    (("--preset", "m2po", "--rs", "ratio.token"), "budget"),
    (
        ("--preset", "prime_dppo", "--is", "token", "--bound", "high", "--batch-by", "step"),
        "--batch-by changes nothing",
    ),
    (("--bound", "high"), "no weights"),
    (("--is", "token", "--bound", "high", "--side", "low"), "--side applies to a rejection"),
    (("--preset", "ppo_is_bypass", "--is", "token", "--bound", "high"), "bypass"),
    (("--rs", "nonsense"), "Cannot read what to sweep"),
    (("--rs", "k4.token"), "Statistics: k3, k2, k1."),
    (("--rs", "k3.sequence"), "Scopes: token, seq_sum, seq_mean, seq_max, seq_min."),
    (("--rs", "k3.token", "--side", "low"), "never negative"),
    (("--rs", "ratio.seq_mean", "--batch-by", "step"), "--batch-by"),
    (("--rs", "ratio.seq_mean", "-o", "sweep.xls"), "sweep.xls"),
)


@pytest.mark.parametrize(("options", "part"), REFUSED, ids=[part for _, part in REFUSED])
def test_what_cannot_be_swept_is_refused(options: tuple[str, ...], part: str) -> None:
    refused(run("sweep", BF16, *options), 2, part)


@pytest.mark.filterwarnings("error")
def test_advantages_beyond_every_square_say_nothing_of_numpy(tmp_path: Path) -> None:
    rows = [row(rollout=(-1.0, -0.5 - i / 50), old=(-1.01, -0.5), advantages=[1e308, 1e308]) for i in range(6)]
    dump = parquet(tmp_path / "d.parquet", rows)
    for command in (("sweep", dump, "--rs", "ratio.seq_mean"), ("sweep", dump, "--is", "token", "--bound", "high")):
        ran = run(*command, "-o", str(tmp_path / "s.json"))
        assert (ran.status, ran.err) == (0, "")
    assert (run("compare", dump).status, run("compare", dump).err) == (0, "")


def test_an_output_is_never_the_dump(tmp_path: Path) -> None:
    dump = tmp_path / "dump.json"
    dump.write_bytes(Path(BF16).read_bytes())
    ran = run("sweep", str(dump), "--format", "parquet", "--rs", "ratio.seq_mean", "-o", str(dump))
    assert ran.status in (2, 4), ran.err
    assert dump.read_bytes() == Path(BF16).read_bytes()
