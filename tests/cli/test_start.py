"""What a command loads before its work begins: nothing that it can do without."""

import pytest
from running import SAMPLE, run_python

TELL = (
    "import sys; from rlcorr_cli.cli.main import run; status = run(sys.argv[1:]); print(status, *sorted(sys.modules))"
)
HEAVY = ("pandas", "polars", "matplotlib", "scipy", "torch._dynamo", "pyarrow.dataset", "jinja2", "tensorboardX")


@pytest.mark.parametrize("name", ["smollm2_bf16.parquet", "smollm2_bf16.jsonl"])
@pytest.mark.parametrize("args", [("--quiet",), ("--json", "--group-by", "step", "--preset", "token_is")])
def test_analyze_loads_no_pandas(name: str, args: tuple[str, ...]) -> None:
    ran = run_python(TELL, "analyze", str(SAMPLE / name), *args)
    status, *modules = ran.out.splitlines()[-1].split()
    assert status == "0", ran.err
    assert "torch" in modules
    assert [name for name in HEAVY if name in modules] == []


def test_pandas_would_be_seen() -> None:
    ran = run_python("import pyarrow as pa, sys; pa.array([1]).to_numpy(); print(*sys.modules)")
    assert "pandas" in ran.out.split()
