"""What a command loads before its work begins, nothing that it can do without, and that it ends with its work."""

from pathlib import Path

import pytest
from few import few
from running import BF16, SAMPLE, Ran, refused, run, run_lean, run_python

PLAN = str(Path(__file__).parents[1] / "transcript" / "inputs" / "plan.toml")
INT8 = str(SAMPLE / "smollm2_int8.parquet")
IMPORTED = "import sys; from rlcorr_cli.commands.main import main, run; "
TELL = f"{IMPORTED}status = run(sys.argv[1:]); print(status, *sorted(sys.modules))"
ENDING = f"import atexit; atexit.register(print, 'taken down'); {IMPORTED}main(sys.argv[1:])"
NEVER = (
    *("polars", "pandas", "matplotlib", "jinja2", "pydantic", "yaml", "IPython", "scipy", "tensorboardX", "ray"),
    *("pyarrow.compute", "pyarrow.dataset", "torch", "array_api_compat", "obstore"),
    *("rlcorr_cli.engines.processes", "rlcorr_cli.engines.ray_tasks"),
)
"""What no command loads on a Parquet file where neither a plan, nor rules, nor a report is given or asked for."""
NUMBERS = ("numpy", "pyarrow", "torch")
FILES = {
    "analyze": (BF16,),
    "analyze under a preset by step": (BF16, "--preset", "token_is", "--group-by", "step", "--json", "--seed", " 1"),
    "filter": (BF16, "--preset", "geo_rs", "-o", "{out}.parquet", "--rejected-output", "{out}-rejected.parquet"),
    "check": (BF16, "--max", "kl=0.1"),
    "compare": (BF16,),
    "sweep": (BF16, "--vary", "ratio.seq_mean"),
    "diff": (BF16, INT8),
    "diagnose": (BF16,),
    "inspect": (BF16,),
    "convert": (BF16, "-o", "{out}.parquet"),
    "watch": (BF16, "--once", "--every", "0", "--state", "{out}.rlcorr"),
    "analyze saved totals": ("{totals}",),
}
"""Command, and more words to tell it from the others -> its arguments."""
OF_LINES = ("analyze", "filter")


def loaded(*args: str) -> set[str]:
    """Modules that a command, which succeeds, has loaded when it ends."""
    return told(run_lean(TELL, *args))


def told(ran: Ran) -> set[str]:
    """What TELL printed."""
    status, *modules = ran.out.splitlines()[-1].split()
    assert status == "0", ran.err
    return {*modules}


@pytest.fixture(scope="module")
def totals(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("totals") / "part.rlcorr"
    assert run("analyze", BF16, "-o", str(path)).status == 0
    return str(path)


@pytest.mark.parametrize("command", FILES)
def test_a_command_loads_nothing_that_it_does_not_use(command: str, tmp_path: Path, totals: str) -> None:
    args = [part.format(out=tmp_path / "out", totals=totals) for part in FILES[command]]
    more = ("numpy.ma", "msgspec") if command in ("analyze", "filter") else ()
    modules = loaded(command.split()[0], *args, "--quiet")
    assert {"numpy", "pyarrow", "rlcorr_cli.reading.parquet"} <= modules or command == "analyze saved totals"
    assert modules & {*NEVER, *more} == set()


@pytest.mark.parametrize("command", OF_LINES)
def test_json_lines_load_no_more(command: str, tmp_path: Path) -> None:
    lines = str(SAMPLE / "smollm2_bf16.jsonl")
    output = ("--preset", "geo_rs", "-o", str(tmp_path / "out.jsonl")) if command == "filter" else ()
    modules = loaded(command, lines, *output, "--quiet")
    assert "rlcorr_cli.reading.jsonl" in modules
    assert modules & {*NEVER} == set()


@pytest.mark.parametrize(
    ("args", "package"),
    [
        (("analyze", BF16, "--json"), "rlcorr_cli.records.forms"),
        (("analyze", BF16, "-o", "{out}.html"), "jinja2"),
        (("compare", BF16, "-o", "{out}.png"), "matplotlib"),
        (("analyze", BF16, "--engine", "processes"), "rlcorr_cli.engines.processes"),
    ],
)
def test_what_is_used_is_seen(args: tuple[str, ...], package: str, tmp_path: Path) -> None:
    assert package in loaded(*(part.format(out=tmp_path / "out") for part in args))


@pytest.mark.parametrize("args", [("--help",), ("presets",), ("explain", "kl"), ("help", "ci"), ("analyze", "--help")])
def test_what_shows_no_numbers_loads_no_library_for_them(args: tuple[str, ...]) -> None:
    assert told(run_python(TELL, *args)) & {*NEVER, *NUMBERS} == set()


def test_pandas_would_be_seen() -> None:
    ran = run_lean("import pyarrow as pa, sys; pa.array([1]).to_numpy(); print(*sys.modules)")
    assert "pandas" in ran.out.split()


@pytest.mark.parametrize(("last", "status"), [("--quiet", 0), ("--no-such-option", 2)])
def test_the_interpreter_is_not_taken_down(last: str, status: int) -> None:
    ran = run_lean(ENDING, "analyze", BF16, last)
    assert ran.status == status
    assert "taken down" not in ran.out + ran.err
    assert "k3_kl" in ran.out if status == 0 else ran.err.startswith("Error: No such option")


BLAS = """
import os, sys
from threadpoolctl import threadpool_info

end = os._exit
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):  # which tests/conftest.py sets
    os.environ.pop(name, None)

def tell(status):
    print([library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"], flush=True)
    end(status)

os._exit = tell
from rlcorr_cli.commands.main import main
main(sys.argv[1:])
"""


def test_matrices_take_one_thread() -> None:
    assert run_python(BLAS, "analyze", BF16, "--json").out.endswith("\n[1]\n")


def test_what_is_buffered_is_written_at_the_end() -> None:
    script = (
        "import sys; from rlcorr_cli.commands.main import main; sys.stdout.write('before'); main(['explain', 'no'])"
    )
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
@pytest.mark.parametrize("command", few(["analyze", "inspect", "plot"], ["analyze"]))
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
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {IMPORTED}main(sys.argv[1:])"
    ran = run_python(script, "inspect", BF16)
    assert ran.status == WITHOUT_MEMORY[error]
    assert ("This is a fault of rlcorr" in ran.err) is (ran.status == 70)
    assert ("Out of memory." in ran.err) is (ran.status == 3)


WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; from rlcorr_cli.commands.main import main; main(sys.argv[1:])"
CORRECT_WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from rlcorr_cli import correct
from rlcorr_cli.errors import UsageError
try:
    correct({"rollout_log_probs": [[-1.0]], "old_log_probs": [[-1.1]]}, preset="token_is", device="torch")
except UsageError as error:
    print(error.message)
"""


@pytest.mark.parametrize("device", few(["cuda", "cuda:1", "torch"], ["torch"]))
@pytest.mark.parametrize("command", [("analyze",), ("filter", "--preset", "token_is", "-o", "out.parquet")])
def test_a_missing_torch_is_named(command: tuple[str, ...], device: str) -> None:
    refused(run_python(WITHOUT_TORCH, *command, BF16, "--device", device), 2, "PyTorch", "pip install torch")


def test_a_missing_torch_is_named_in_python() -> None:
    assert run_python(CORRECT_WITHOUT_TORCH).out == (
        "The devices 'cuda' and 'torch' need PyTorch, which is not installed.\n"
    )


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_without_torch_a_cpu_computes(device: str) -> None:
    assert run_python(WITHOUT_TORCH, "analyze", BF16, "--device", device, "--quiet").status == 0
