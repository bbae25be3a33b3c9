"""What goes wrong ends with its own status and two lines: what is wrong and where, then what to type."""

import importlib.util
import json
import py_compile
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import BF16, STEPS, jsonl, parquet, row, run, run_installed, run_process

NAN = float("nan")


def empty(folder: Path) -> str:
    schema = pa.schema([(name, pa.list_(pa.float32())) for name in ("rollout_log_probs", "old_log_probs")])
    pq.write_table(schema.empty_table(), folder / "d.parquet")
    return str(folder / "d.parquet")


def rows(*given: dict[str, object]) -> Callable[[Path], str]:
    return lambda folder: parquet(folder / "d.parquet", given)


def cut_short(folder: Path) -> str:
    whole = Path(BF16).read_bytes()
    (folder / "d.parquet").write_bytes(whole[: len(whole) // 2])
    return str(folder / "d.parquet")


def scribbled(folder: Path) -> str:
    whole = bytearray(Path(BF16).read_bytes())
    whole[100 : len(whole) // 2] = b"\xff" * (len(whole) // 2 - 100)
    (folder / "d.parquet").write_bytes(whole)
    return str(folder / "d.parquet")


def truncated_line(folder: Path) -> str:
    path = Path(jsonl(folder / "d.jsonl", [row(), row(), row()]))
    path.write_text(path.read_text()[:-20])
    return str(path)


def no_dump(folder: Path) -> str:
    (folder / "notes.txt").write_text("nothing here")
    return str(folder)


def masked(mask: list[int]) -> dict[str, object]:
    return row(response_mask=mask)


DATA: dict[str, tuple[Callable[[Path], str], tuple[str, ...]]] = {
    "no rows": (empty, ("d.parquet", "no rows")),
    "all masked": (rows(masked([0, 0]), masked([0, 0])), ("d.parquet", "no valid token", "4 tokens of 2 rows")),
    "missing column": (
        rows({"rollout_log_probs": [-1.0], "old_logp": [-1.0], "step": 3}),
        ("old_log_probs", "rollout_log_probs, old_logp, step", "--map old_log_probs=", "nearest: "),
    ),
    "unequal lengths": (
        rows(row(), row([-1.0], [-1.0, -2.0])),
        ("d.parquet", "row 1", "old_log_probs has 2", "rollout_log_probs has 1"),
    ),
    "mask of another length": (rows(masked([1, 1]), masked([1])), ("row 1", "response_mask has 1")),
    "mask of 2": (rows(masked([1, 2])), ("row 0", "response_mask")),
    "null list": (
        rows(row(), {"rollout_log_probs": None, "old_log_probs": [-1.0]}),
        ("row 1", "rollout_log_probs is null"),
    ),
    "null inside a list": (rows(row(), row([-1.0, None])), ("row 1", "rollout_log_probs")),
    "NaN": (rows(row(), row(), row([-0.5, NAN])), ("d.parquet", "row 2", "rollout_log_probs")),
    "infinite": (rows(row(), row(old=[float("-inf"), -1.0])), ("row 1", "old_log_probs")),
    "above 0": (rows(row(), row(old=[0.5, -1.0])), ("d.parquet", "row 1", "old_log_probs", "0.5")),
    "Parquet cut short": (cut_short, ("d.parquet",)),
    "Parquet overwritten": (scribbled, ("d.parquet",)),
    "JSON line cut short": (truncated_line, ("d.jsonl", "line 3")),
    "directory without a dump": (no_dump, ("holds no dump",)),
    "no such file": (lambda folder: str(folder / "smolm.parquet"), ("no such file",)),
}


def assert_error(status: int, parts: tuple[str, ...], *args: str) -> None:
    """Two lines and this status; with --json one object that says the same."""
    ran = run(*args)
    assert ran.status == status, ran.err
    assert ran.out == ""
    assert "Traceback" not in ran.err
    lines = [line for line in ran.err.split("\n") if line.strip()]
    assert len(lines) == 2, ran.err
    assert lines[0].startswith("Error: ")
    for part in parts:
        assert part in ran.err
    as_json = run(*args, "--json")
    assert as_json.status == status
    assert as_json.out == ""
    (only,) = as_json.err.splitlines()
    error = json.loads(only)["error"]
    assert error["exit_status"] == status
    assert error["message"]
    assert error["hint"]


@pytest.mark.parametrize("case", DATA)
def test_data_that_cannot_be_used_is_status_3(case: str, tmp_path: Path) -> None:
    build, parts = DATA[case]
    assert_error(3, parts, "analyze", build(tmp_path))


@pytest.mark.parametrize("bad", [NAN, float("inf"), 0.5])
def test_bad_values_on_masked_tokens_are_no_error(bad: float, tmp_path: Path) -> None:
    path = parquet(tmp_path / "d.parquet", [row([-0.5, bad], [-0.25, bad], response_mask=[1, 0])])
    assert run("analyze", path).status == 0


USAGE: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "unknown preset": (("--preset", "tokn_is"), ("tokn_is", "token_is", "rlcorr presets")),
    "unknown profile": (("--profile", "verl-0.5"), ("verl-0.5", "verl-0.9")),
    "negative high": (("--is", "token:,-1"), ("-1", "positive")),
    "low above high": (("--is", "token:3,2"), ("3", "2")),
    "a mean without weights": (("--normalize", "batch"), ("no weighting", "--is token")),
    "unknown weight scope": (("--is", "tokens"), ("--is", "tokens", "token")),
    "unknown outside": (("--is", "token:,2:clip"), ("'clip' (--is token:,2:clip)", "clamp")),
    "weights of one bound": (("--is", "token:2"), ("The weights 'token:2' have one bound", "token:,2")),
    "unknown normalize": (("--is", "token", "--normalize", "step"), ("--normalize", "batch")),
    "unknown mode": (("--mode", "bypas"), ("--mode", "bypass")),
    "unknown option": (("--presset", "x"), ("--presset", "analyze --help")),
    "not a number": (("--is", "token:,two"), ("two", "not a number")),
    "rejection without bounds": (("--rs", "ratio.token"), ("ratio.token", "STATISTIC.SCOPE:LOW,HIGH")),
    "rejection of open bounds": (("--rs", "ratio.token:,"), ("bound",)),
    "rejection of a word": (("--rs", "ratio.token:low,2"), ("low",)),
    "unknown statistic": (("--rs", "k4.token:,1"), ("k4", "k3")),
    "unknown scope": (("--rs", "k3.seq_median:,1"), ("seq_median", "seq_mean")),
    "NaN bound": (("--rs", "k3.token:,nan"), ("nan",)),
    "veto above 1": (("--veto", "2"), ("2", "1e-4")),
    "preset and plan": (("--preset", "token_is", "--plan", "x.toml"), ("--preset", "--plan")),
    "missing plan": (("--plan", "none.toml"), ("none.toml",)),
    "unknown report form": (("-o", "report.xyz"), ("report.xyz", ".json")),
    "no workers": (("--workers", "0"), ("--workers",)),
    "unknown device": (("--device", "tpu"), ("tpu", "cpu")),
    "unknown format": (("--format", "csv"), ("csv", "parquet")),
    "map without a column": (("--map", "old_log_probs"), ("--map",)),
    "map to no column": (("--map", "old_log_probs=nothing"), ("nothing", "old_log_probs")),
    "extreme ratio below 1": (("--extreme-ratio", "0.5"), ("--extreme-ratio",)),
    "same file twice": ((BF16,), ("named twice",)),
}


@pytest.mark.parametrize("case", USAGE)
def test_wrong_usage_is_status_2(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    args, parts = USAGE[case]
    assert_error(2, parts, "analyze", BF16, *args)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("args", "part"), [(("analyze",), "DUMP"), (("analyse", "x"), "analyse"), (("explain", "k4_kl"), "k3_kl")]
)
def test_a_command_line_that_names_nothing_is_status_2(args: tuple[str, ...], part: str) -> None:
    ran = run(*args)
    assert ran.status == 2
    assert part in ran.err
    assert len(ran.err.strip().splitlines()) == 2


def test_an_unknown_group_column_names_the_nearest() -> None:
    ran = run("analyze", BF16, "--group-by", "stepp")
    assert ran.status == 3
    assert "stepp" in ran.err
    assert "step" in ran.err.splitlines()[1]


def test_output_into_a_missing_directory_is_status_4(tmp_path: Path) -> None:
    assert_error(4, ("there is no directory",), "analyze", BF16, "-o", str(tmp_path / "none" / "report.json"))


def test_output_that_cannot_be_written_is_status_4(tmp_path: Path) -> None:
    (tmp_path / "report.json").mkdir()
    ran = run("analyze", BF16, "-o", str(tmp_path / "report.json"))
    assert ran.status == 4
    assert "report.json" in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_options_are_checked_before_the_dump_is_read(tmp_path: Path) -> None:
    missing = str(tmp_path / "no such.parquet")
    assert run("analyze", missing).status == 3
    assert run("analyze", missing, "-o", str(tmp_path / "report.xyz")).status == 2


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    ran = run("analyze", empty(tmp_path), "--debug")
    assert ran.status == 3
    assert "Traceback" in ran.err
    assert "DataError" in ran.err


def test_the_installed_command_ends_with_the_same_status(tmp_path: Path) -> None:
    data = run_installed("analyze", parquet(tmp_path / "d.parquet", [row([NAN, -1.0])]))
    usage = run_installed("analyze", BF16, "--preset", "tokn_is", "--json")
    assert (data.status, usage.status) == (3, 2)
    assert len(data.err.strip().splitlines()) == 2
    assert json.loads(usage.err)["error"]["exit_status"] == 2
    assert data.out == usage.out == ""


def test_a_broken_line_on_standard_input_is_status_3() -> None:
    ran = run_process("analyze", "-", stdin=json.dumps(row()) + "\n{\n")
    assert ran.status == 3
    assert "standard input, line 2" in ran.err
    assert len(ran.err.strip().splitlines()) == 2


@pytest.mark.parametrize("more", [(), ("--debug",)])
def test_an_end_of_file_inside_is_a_fault_and_no_interrupt(
    more: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Python raises it of byte code that was cut short when the disk was full."""
    name = "rlcorr_cli.show.forms.tensorboard"
    source = importlib.util.find_spec(name).origin
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "cache"))
    compiled = Path(py_compile.compile(source))
    compiled.write_bytes(compiled.read_bytes()[:1_000])
    monkeypatch.delitem(sys.modules, name, raising=False)
    ran = run("analyze", STEPS, "--group-by", "step", "-o", str(tmp_path / "q.tb"), *more)
    assert ran.status == 70
    assert ran.err.splitlines()[-2:] == [
        "EOFError: marshal data too short",
        "This is a fault of rlcorr, not yours.  Please open an issue with the lines above.",
    ]
    assert not (tmp_path / "q.tb").exists()
