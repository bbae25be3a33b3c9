"""What a command loads before its work begins, nothing that it can do without, and that it ends with its work."""

from pathlib import Path

import pytest
from running import BF16, SAMPLE, run_lean, run_python

TELL = (
    "import sys; from rlcorr_cli.cli.main import run; status = run(sys.argv[1:]); print(status, *sorted(sys.modules))"
)
ENDING = (
    "import atexit, sys; atexit.register(print, 'taken down'); from rlcorr_cli.cli.main import main; main(sys.argv[1:])"
)
HEAVY = ("pandas", "polars", "matplotlib", "scipy", "torch._dynamo", "pyarrow.dataset", "jinja2", "tensorboardX")


@pytest.mark.parametrize("name", ["smollm2_bf16.parquet", "smollm2_bf16.jsonl"])
@pytest.mark.parametrize("args", [("--quiet",), ("--json", "--group-by", "step", "--preset", "token_is")])
def test_analyze_loads_no_pandas(name: str, args: tuple[str, ...]) -> None:
    ran = run_lean(TELL, "analyze", str(SAMPLE / name), *args)
    status, *modules = ran.out.splitlines()[-1].split()
    assert status == "0", ran.err
    assert "rlcorr_cli.core.observe" in modules
    assert [name for name in HEAVY if name in modules] == []


@pytest.mark.parametrize(("name", "output"), [("smollm2_bf16.parquet", "o.parquet"), ("smollm2_bf16.jsonl", "o.jsonl")])
def test_filter_loads_no_pandas(tmp_path: Path, name: str, output: str) -> None:
    outputs = ("-o", str(tmp_path / output), "--rejected-output", str(tmp_path / f"rejected-{output}"))
    ran = run_lean(TELL, "filter", str(SAMPLE / name), *outputs, "--preset", "geo_rs", "--quiet")
    status, *modules = ran.out.splitlines()[-1].split()
    assert status == "0", ran.err
    assert "rlcorr_cli.core.observe" in modules
    assert [name for name in HEAVY if name in modules] == []


def test_pandas_would_be_seen() -> None:
    ran = run_lean("import pyarrow as pa, sys; pa.array([1]).to_numpy(); print(*sys.modules)")
    assert "pandas" in ran.out.split()


@pytest.mark.parametrize(("last", "status"), [("--quiet", 0), ("--no-such-option", 2)])
def test_the_interpreter_is_not_taken_down(last: str, status: int) -> None:
    ran = run_lean(ENDING, "analyze", BF16, last)
    assert ran.status == status
    assert "taken down" not in ran.out + ran.err
    assert "k3_kl" in ran.out if status == 0 else ran.err.startswith("Error: No such option")


def test_what_is_buffered_is_written_at_the_end() -> None:
    script = "import sys; from rlcorr_cli.cli.main import main; sys.stdout.write('before'); main(['explain', 'no'])"
    ran = run_python(script)
    assert (ran.status, ran.out) == (2, "before")
