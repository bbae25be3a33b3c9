"""What a command loads before its work begins, nothing that it can do without, and that it ends with its work."""

from pathlib import Path

import pytest
from running import BF16, SAMPLE, Ran, refused, run_lean, run_python

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


def limited(kilobytes: int, *args: str) -> Ran:
    """A command under `ulimit -v`."""
    return run_python(
        "import os, resource, sys; resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]) << 10,) * 2); "
        "os.execv(sys.executable, [sys.executable, '-m', 'rlcorr_cli', *sys.argv[2:]])",
        str(kilobytes),
        *args,
    )


@pytest.mark.parametrize("kilobytes", [300_000, 325_000, 500_000, 670_000])
@pytest.mark.parametrize("command", ["analyze", "inspect", "plot"])
def test_too_little_memory_to_start_is_said(command: str, kilobytes: int, tmp_path: Path) -> None:
    output = ("-o", str(tmp_path / "p.png")) if command == "plot" else ()
    ran = limited(kilobytes, command, BF16, *output)
    refused(ran, 3, "Out of memory.", f"{kilobytes * 1024 / 1e9:.2g} GB of address space")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("args", [("presets",), ("explain", "kl"), ("help", "ci"), ("analyze", "--help")])
def test_what_needs_no_numbers_starts_in_little_memory(args: tuple[str, ...]) -> None:
    ran = limited(300_000, *args)
    assert ran.status == 0, ran.err


WITHOUT_MEMORY = {
    "ImportError('libarrow.so: failed to map segment from shared object')": 3,
    "OSError(12, 'Cannot allocate memory')": 3,
    "RuntimeError('can\\'t start new thread')": 3,
    "ImportError('libarrow.so: undefined symbol: arrow')": 70,
    "RuntimeError('stopped')": 70,
}


@pytest.mark.parametrize("error", WITHOUT_MEMORY)
def test_a_library_without_memory_to_be_loaded_is_no_fault_of_ours(error: str, tmp_path: Path) -> None:
    (tmp_path / "pyarrow.py").write_text(f"raise {error}")
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from rlcorr_cli.cli.main import main; main(sys.argv[1:])"
    )
    ran = run_python(script, "inspect", BF16)
    assert ran.status == WITHOUT_MEMORY[error]
    assert ("This is a fault of rlcorr" in ran.err) is (ran.status == 70)
    assert ("Out of memory." in ran.err) is (ran.status == 3)
