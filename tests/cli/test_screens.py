"""What a screen says first, and that what it names can be typed."""

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import BF16, STEPS, refused, run

import rlcorr_cli
from rlcorr_cli.causes.table import ALL_CAUSES
from rlcorr_cli.commands import app
from rlcorr_cli.commands.declared import options
from rlcorr_cli.metrics.catalog import DEFINITIONS
from rlcorr_cli.metrics.metric import symbols_in
from rlcorr_cli.plans.plan import STATISTICS
from rlcorr_cli.results.rules import RULES

PRINTING = ("analyze", "check", "compare", "filter", "watch")
"""Commands that print causes and remedies."""


@pytest.fixture(scope="module")
def drifting(tmp_path_factory: pytest.TempPathFactory) -> str:
    """12 steps of 64 rows, 8 of a prompt: from step 8 on the gap grows, and responses become longer."""
    rng, rows = np.random.default_rng(1), []
    for step in range(12):
        bad = max(0, step - 7)
        for row in range(64):
            n = int(np.clip(rng.lognormal(4.5 + 0.2 * bad, 0.5), 30, 900))
            b = -rng.exponential(1.0, n) * (rng.random(n) < 0.3) - 1e-3
            size = 0.02 * 2.2**bad * (1 - np.exp(b)) ** 0.5
            a = np.minimum(b + size * rng.normal(0, 1, n) - size**2 / 2, -1e-8)
            rows.append({"step": step, "uid": f"{step}-{row // 8}", "rollout_log_probs": b, "old_log_probs": a})
    path = tmp_path_factory.mktemp("drifting") / "run.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    return str(path)


@pytest.mark.full
def test_the_last_step_is_told_before_the_whole_in_every_form(drifting: str, tmp_path: Path) -> None:
    report = rlcorr_cli.analyze(drifting)
    assert report.verdict.level == "close"
    assert report.last_step is not None
    assert (report.last_step.step, report.last_step.verdict.level) == (11, "apart")
    run("analyze", drifting, "-o", f"{tmp_path}/r.html", "-o", f"{tmp_path}/r.md")
    texts = [run("analyze", drifting).out, *((tmp_path / name).read_text() for name in ("r.html", "r.md"))]
    for text in texts:
        words = re.sub(r"\s+", " ", text)
        told = ("Step 11, the last: apart", " rises ", "On average over all 12 steps: close")
        places = [words.index(part) for part in told]
        assert places == sorted(places)
    keys = list(json.loads(run("analyze", drifting, "--json").out))
    assert keys.index("last_step") < keys.index("verdict")
    assert run("check", drifting).out.lstrip().startswith("The last, step 11: apart")


def test_the_last_of_small_steps_are_told_together(drifting: str, tmp_path: Path) -> None:
    rows = pq.read_table(drifting).to_pylist()
    pq.write_table(pa.Table.from_pylist([row for i, row in enumerate(rows) if i % 64 < 16]), tmp_path / "small.parquet")
    words = re.sub(r"\s+", " ", run("analyze", str(tmp_path / "small.parquet")).out)
    assert " The last steps, 9 to 11 together: close; " in words


def test_weights_are_not_usable_where_a_step_refuses_them(drifting: str) -> None:
    report = rlcorr_cli.analyze(drifting)
    assert report.whole.values["seq_ess"] is not None
    refusing = [step for broken in report.broken_in_groups if broken.metric == "seq_ess" for step in broken.groups]
    assert refusing
    assert report.verdict.usable.sequence == "no"
    assert report.last_step is not None
    assert report.last_step.since == refusing[0]["step"]


def test_a_caption_of_positions_says_the_spread_of_the_positions_that_it_names(drifting: str, tmp_path: Path) -> None:
    caption = re.sub(r"\s+", " ", run("plot", drifting, "--kind", "position", "-o", f"{tmp_path}/p.png").out)
    told = re.search(r"std ([\d.]+) nats up to position (\d+), ([\d.]+) from (\d+) on\.", caption)
    assert told is not None, caption
    early, early_end, late, late_start = map(float, told.groups())
    rows = pq.read_table(drifting).to_pylist()
    gaps = [np.float32(row["old_log_probs"]).astype(float) - np.float32(row["rollout_log_probs"]) for row in rows]
    gap, place = np.concatenate(gaps), np.concatenate([np.arange(1, len(each) + 1) for each in gaps])
    assert early == pytest.approx(gap[place <= early_end].std(), rel=0.01)
    assert late == pytest.approx(gap[place >= late_start].std(), rel=0.01)
    assert "widens" in caption
    assert "long responses are of late steps" in caption


def test_a_caption_names_a_peak_between_the_ends(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [
        {"step": step, "rollout_log_probs": b, "old_log_probs": b - 0.01 * (30 if step == 2 else 1) * rng.random(40)}
        for step in range(5)
        for _ in range(40)
        for b in (-1 - rng.random(40),)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "peak.parquet")
    out = run("plot", f"{tmp_path}/peak.parquet", "--kind", "metrics", "-o", f"{tmp_path}/p.png").out
    assert re.search(r"k3_kl goes from \S+ to \S+; it is largest, \S+, at step 2\.", re.sub(r"\s+", " ", out))


def test_every_option_in_a_remedy_is_one_of_the_command_it_is_printed_by() -> None:
    remedies = {rule.remedy for rule in RULES} | {cause.advice for cause in ALL_CAUSES.values()}
    assert not [text for text in remedies if re.search(r"\((?:by|rs|is|preset|batch-by) ", text)]
    flags = {name: {f for o in options(app.function(name)) for f in o.flags} for name in app.COMMANDS}
    for text in remedies:
        for command, rest in re.findall(r"`rlcorr ([a-z]+) ([^`]*)`", text):
            assert set(re.findall(r"--[a-z-]+", rest)) <= flags[command], text
        for flag in re.findall(r"--[a-z-]+", re.sub(r"`rlcorr [^`]*`", "", text)):
            assert flag in set[str]().union(*flags.values()), text
            takers = [name for name in PRINTING if flag in flags[name] or flag in ("--is", "--rs", "--preset")]
            assert takers == list(PRINTING), text


def test_the_geometric_rejection_of_a_remedy_can_be_typed() -> None:
    out = re.sub(r"\s+", " ", run("analyze", STEPS, "--all").out)
    (bounds,) = set(re.findall(r"\(`(--rs ratio\.seq_mean:[\d.,]+)` keeps 90%\)", out))
    assert run("filter", STEPS, *bounds.split(), "--dry-run").status == 0


@pytest.mark.full
def test_check_fails_on_the_causes_that_diagnose_fails_on(drifting: str) -> None:
    first = rlcorr_cli.diagnose(drifting).story.first
    assert run("diagnose", drifting, "--fail-on", first).status == 1
    assert run("check", drifting, "--fail-on", first).status == 1
    assert run("check", drifting, "--fail-on", "some_rows,shifted_columns").status == 0
    refused(
        run("check", BF16, "--fail-on", "stale"),
        2,
        "--fail-on does not know 'stale'.",
        "Try stale_cache, stale_policy.",
    )
    refused(
        run("diagnose", BF16, "--fail-on", "stale"),
        2,
        "--fail-on does not know 'stale'.",
        "Try stale_cache, stale_policy.",
    )
    refused(run("diagnose", BF16, "--fail-on", "far"), 2, "of numbers", "`rlcorr check DUMP --fail-on far`")


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ((BF16,), f"did you mean `rlcorr analyze {BF16}`?"),
        (("analyze", BF16, "--map", "logprobs=old_log_probs"), "Write --map old_log_probs=logprobs."),
        (("analyze", BF16, "--is", "2"), "Write --is token:,2"),
        (("analyze", BF16, "--is", "token:2"), "Write --is token:,2"),
        (("analyze", BF16, "--is", "0.5,2"), "Write --is token:0.5,2"),
    ],
)
def test_a_likely_slip_gets_what_to_type(typed: tuple[str, ...], hint: str) -> None:
    ran = run(*typed)
    assert ran.status == 2
    assert hint in ran.err


@pytest.mark.parametrize("more", [(), ("--dry-run",), ("--engine", "processes", "--workers", "2")])
def test_filter_counts_the_prompts_that_it_leaves_incomplete(
    drifting: str, more: tuple[str, ...], tmp_path: Path
) -> None:
    out = tmp_path / "kept"
    given = ("filter", drifting, "--rs", "ratio.seq_mean:0.99,1.01", "-o", str(out), *more)
    counts = run(*given, "--json").json["output"]["prompts"]
    assert counts["before"] == 96
    assert 0 < counts["incomplete"] < counts["after"] < 96
    if not more:
        words = re.sub(r"\s+", " ", run(*given, "--overwrite").out)
        told = f"Prompts: 96 -> {counts['after']}, of which {counts['incomplete']} are incomplete."
        assert told in words
        left = pq.read_table(out)["uid"].to_pylist()
        whole = [uid for uid in set(left) if left.count(uid) == 8]
        assert (len(set(left)), len(set(left)) - len(whole)) == (counts["after"], counts["incomplete"])
    kept = run("filter", drifting, "--rs", "ratio.seq_mean:0.99,1.01", "--dry-run", "--rejected", "keep").out
    assert "All 96 prompts keep all their rows." in kept


def test_inspect_says_what_columns_are_used_for(tmp_path: Path) -> None:
    table = pq.read_table(BF16)
    n = len(table)
    beside = {
        "uid": [f"p{i // 8}" for i in range(n)],
        "policy_version": [i % 2 for i in range(n)],
        "finish_reason": ["stop", "length"] * (n // 2),
        "worker": [f"w{i % 4}" for i in range(n)],
        "data_source": ["math"] * n,
        "responses": table["response_token_ids"],
        "rollout_log_probs": table["rollout_log_probs"],
        "old_log_probs": table["old_log_probs"],
    }
    pq.write_table(pa.table(beside), tmp_path / "verl.parquet")
    uses = run("inspect", f"{tmp_path}/verl.parquet", "--json").json["uses"]
    assert uses == {
        "uid": "prompt",
        "policy_version": "policy version, for lag",
        **dict.fromkeys(("finish_reason", "worker", "data_source"), "compared"),
        "responses": "token ids",
    }


def test_letters_of_a_formula_have_the_meaning_of_that_formula() -> None:
    formulas = [row.formula for row in (*DEFINITIONS.values(), *STATISTICS.values())]
    for formula in formulas:
        own = set(re.findall(r"\b([A-Za-z]) (?:=|the) ", formula)) - {"w"}
        articles = {"a"} if re.search(r"(?<!\^)\ba (?!and |with )[a-z]{2,}", formula) else set[str]()
        assert own.isdisjoint(symbols_in(formula)), formula
        assert articles.isdisjoint(symbols_in(formula)), formula
