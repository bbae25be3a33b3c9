"""Text reports: inside the width, plain when piped, and never a way for a dump to write to the terminal."""

import re
from pathlib import Path

import pytest
from running import BF16, STEPS, analyzed, on_a_terminal, parquet, row, run, run_installed

from rlcorr_cli.metrics.diagnostics import QUANTILES
from rlcorr_cli.show.numbers import number, signed
from rlcorr_cli.show.report import FIRST_SCREEN

FP32 = BF16.replace("bf16", "fp32")
REPORTS = {
    "diagnostics": (BF16,),
    "weights and groups": (STEPS, "--preset", "token_is", "--group-by", "step"),
    "normalised": (STEPS, "--is", "sequence:,2", "--normalize", "batch"),
    "rejections": (
        STEPS,
        "--preset",
        "seq_is_rs",
        "--rs",
        "exp_abs_log_ratio.seq_mean:1.000001,1.0999999",
        "--veto",
        "0.5",
    ),
    "many groups": (STEPS, "--group-by", "sample_id", "--group-by", "step"),
    "profile": (STEPS, "--profile", "verl-0.9", "--plan", "verl.yaml", "--group-by", "group_id"),
}
ESCAPE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
HOSTILE = "\x1b[31mred\x1b[0m\x07 \x1b]0;title\x07\r\n\x9b1m"


@pytest.fixture(autouse=True)
def _in_a_folder_with_a_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "verl.yaml").write_text(
        "{rollout_is: token, rollout_rs: 'token_k1,seq_max_k2', rollout_rs_threshold: '2,1'}"
    )
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("report", REPORTS)
def test_no_line_is_wider_than_the_terminal(report: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for more in ((), ("--all",)):
        ran = run("analyze", *REPORTS[report], *more)
        assert ran.status == 0
        lines = ran.out.split("\n")
        assert len(lines) > 10
        assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_number_is_broken_over_two_lines(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    out, values = run("analyze", FP32, "--all").out, analyzed(FP32)["metrics"]
    for name in QUANTILES:
        assert signed(values[f"log_ratio_{name}"]) in out.split()
    first, values = run("analyze", STEPS).out.split(), analyzed(STEPS)["metrics"]
    for name in FIRST_SCREEN:
        assert number(values[name]) in first


def test_the_ends_of_an_interval_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    (line,) = (
        line
        for line in run("analyze", FP32, "--cluster-by", "none", "--all").out.splitlines()
        if "prob_pearson" in line
    )
    assert re.search(r"1 - (\S+) to 1 - (?!\1)\S+$", line)


@pytest.mark.parametrize("report", REPORTS)
def test_piped_text_is_plain(report: str) -> None:
    for more in ((), ("--all",)):
        ran = run("analyze", *REPORTS[report], *more)
        assert ran.status == 0
        assert not ESCAPE.search(ran.out)


def test_the_first_sentence_says_what_is_usable() -> None:
    text = " ".join(run("analyze", STEPS).out.split())
    usable = "Token-level importance weights are usable, sequence-level ones are not (seq_ess 0.00313"
    assert f"On average over all 5 steps: close (k3_kl below 0.01). {usable}" in text
    text = " ".join(run("analyze", STEPS, "--all").out.split())
    assert "! seq_ess 0.00313 should be >= 0.3. Use token weights (`--preset token_is`), or drop far sequences" in text
    assert "! pareto_k_seq 3.885 should be <= 0.601. Same remedy as seq_ess." in text


def test_ascii_terminals_get_ascii() -> None:
    given, ascii_only = ("analyze", *REPORTS["many groups"], "--preset", "geo_rs"), {"PYTHONIOENCODING": "ascii"}
    for more in ((), ("--all",)):
        ran = run_installed(*given, *more, env=ascii_only)
        assert ran.status == 0
        assert ran.out.isascii()
    assert "log counts" in ran.out


def test_a_pipe_has_colour_where_force_color_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b" not in run("analyze", BF16).out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[1m" in run("analyze", BF16).out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in run("analyze", BF16).out


def test_no_color_is_respected_on_a_terminal_that_has_colour() -> None:
    assert "\x1b[" in on_a_terminal()
    assert "\x1b" not in on_a_terminal(NO_COLOR="1")


def test_shades_tell_small_gaps_of_tokens_from_large_ones_also_in_16_and_256_colours() -> None:
    """Token 0 of the row is at -0.19 nats, token 2 at -1.06."""
    args = ("inspect", STEPS, "--row", "s4-s005", "--tokenizer", str(Path(BF16).with_name("tokenizer.json")))
    few = on_a_terminal(*args, COLORTERM="")
    assert "\x1b[1;94m1\x1b[0m" in few
    assert "\x1b[1;30;104m *\x1b[0m" in few
    assert "as background from 0.5 nats on" in " ".join(few.split())
    many = on_a_terminal(*args, COLORTERM="", TERM="xterm-256color")
    assert "48;5;153m1\x1b" in many
    assert "48;5;39m *\x1b" in many


def test_hostile_group_values_are_shown_and_not_sent(tmp_path: Path) -> None:
    rows = [row(source=HOSTILE), row(source="plain"), row(source=None)]
    ran = run("analyze", parquet(tmp_path / "hostile.parquet", rows), "--group-by", "source")
    assert ran.status == 0
    assert not ESCAPE.search(ran.out)
    assert r"\x1b[31mred" in ran.out


def test_many_hostile_group_values_are_shown_and_not_sent(tmp_path: Path) -> None:
    rows = [row(**{"step\x1b[1m": f"{i:02d}{HOSTILE}"}) for i in range(40)]
    ran = run("analyze", parquet(tmp_path / "hostile.parquet", rows), "--group-by", "step\x1b[1m")
    assert ran.status == 0
    assert not ESCAPE.search(ran.out)


def test_hostile_names_of_files_and_columns_are_shown_and_not_sent(tmp_path: Path) -> None:
    rows = [{"roll\x1b[31m": [-1.0, -2.0], "old_log_probs": [-1.0, -2.5]}]
    path = parquet(tmp_path / "du\x1b[31mmp.parquet", rows)
    good = run("analyze", path, "--map", "rollout_log_probs=roll\x1b[31m")
    assert good.status == 0
    assert not ESCAPE.search(good.out)
    bad = run("analyze", path)
    assert bad.status == 3
    assert not ESCAPE.search(bad.err)


@pytest.mark.parametrize("width", ["30", "80"])
def test_no_line_is_a_command_to_githubs_runner(width: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", width)
    forged = "::error::forged ::stop-commands::x"
    rows = [row(**{forged: forged, "sample_id": f"{forged} {i}", "text": f"{'w' * 24} {forged}"}) for i in range(3)]
    path, out = parquet(tmp_path / f"{forged}.parquet", rows), str(tmp_path / f"{forged}.out.parquet")
    for args in (
        ("analyze", path, "--group-by", forged),
        ("filter", path, "--is", "token", "-o", out),
        ("inspect", path, "--worst", "2"),
        ("inspect", path, "--row", f"{forged} 1"),
        ("check", path, "--group-by", forged, "--min", "kl=9"),
        ("inspect", str(tmp_path / "none" / forged)),
    ):
        ran = run(*args)
        assert ":stop" in ran.out + ran.err
        assert not [line for line in (ran.out + ran.err).splitlines() if line.lstrip().startswith("::")], args


def test_hostile_group_values_stay_whole_in_json(tmp_path: Path) -> None:
    path = parquet(tmp_path / "hostile.parquet", [row(source=HOSTILE)])
    ran = run("analyze", path, "--group-by", "source", "--json")
    assert ran.json["groups"][0]["key"] == {"source": HOSTILE}
    assert "\x1b" not in ran.out


@pytest.mark.parametrize(
    "args", [("presets",), ("explain", "kl"), ("explain", "geo_rs"), ("--help",), ("analyze", "--help")]
)
def test_listings_fit_eighty_columns(args: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ran = run(*args)
    assert ran.status == 0
    assert ran.err == ""
    assert 0 < max(map(len, ran.out.split("\n"))) <= 80


def test_presets_show_prints_a_plan_file_that_reads_back(tmp_path: Path) -> None:
    out = run("presets", "show", "nemo-seq-mask-tis").out
    (tmp_path / "plan.toml").write_text(out[out.index("name =") :])
    plan = analyzed(BF16, "--plan", str(tmp_path / "plan.toml"))["plan"]
    assert plan == analyzed(BF16, "--preset", "nemo-seq-mask-tis")["plan"]
    assert "Source: NeMo-RL" in out


def test_presets_show_wants_a_name() -> None:
    assert run("presets", "show").status == run("presets", "geo_rs", "seq_is").status == 2
    assert "Nearest: slime_mis" in run("presets", "show", "slime-miss").err


def test_a_preset_says_where_its_peer_departs_from_its_documents() -> None:
    assert any("verl tests -l" in note for note in analyzed(BF16, "--preset", "decoupled_geo_rs_seq_tis")["notes"])
    assert not any("verl tests" in note for note in analyzed(BF16, "--preset", "geo_rs")["notes"])
