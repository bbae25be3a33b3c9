"""The layers, held by walking imports, and what a light command may load, held by running it."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "rlcorr_cli"
MODULES = sorted(PACKAGE.rglob("*.py"))

LAYERS = ("core", "io", "present")
ABOVE = (*LAYERS, "cli", "api", "pipeline")
ROOT_MODULE = "__init__"
"""`rlcorr_cli` itself, which hands on what `api` has when it is asked for."""

HOMES: dict[str, tuple[str, ...]] = {
    "torch": ("core",),
    "pyarrow": ("io",),
    "polars": ("report",),
    "rich": ("present",),
    "matplotlib": ("present",),
    "jinja2": ("present",),
    "typer": ("cli",),
    "tensorboardX": ("present",),
    "ray": (),
}
"""A third party's package -> the only parts of ours that import it."""

LIGHT = (("--help",), ("presets",), ("explain", "kl"), ("explain", "--schema"), ("explain", "--schema", "check"))
HEAVY = ("torch", "numpy", "pyarrow", "polars", "matplotlib", "ray")


def part(module: Path) -> str:
    """'core' for rlcorr_cli/core/ragged.py, 'plan' for rlcorr_cli/plan.py."""
    return module.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def imports(module: Path) -> frozenset[str]:
    """Every dotted name a module imports, wherever in it, and `a.b` and `a.b.c` for `from a.b import c`."""
    return frozenset(_imports(ast.parse(module.read_text(encoding="utf-8"))))


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where they lead"
            assert node.module
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def tops(module: Path) -> set[str]:
    """The first part of each import: torch, numpy, rlcorr_cli."""
    return {name.split(".")[0] for name in imports(module)}


def own(module: Path) -> set[str]:
    """Which parts of ours a module imports: core, plan, io."""
    return {name.split(".")[1] for name in imports(module) if name.startswith("rlcorr_cli.")}


def breaches(package: str) -> list[str]:
    """Modules that import a third party's package outside its home."""
    return [str(m.relative_to(ROOT)) for m in MODULES if package in tops(m) and part(m) not in HOMES[package]]


def test_the_walk_finds_the_imports_that_are_there() -> None:
    assert len(MODULES) > 30
    for package in ("torch", "pyarrow", "rich", "typer"):
        assert {part(m) for m in MODULES if package in tops(m)} == set(HOMES[package])
    assert own(PACKAGE / "pipeline" / "scan.py") >= {"core", "io", "batch"}


@pytest.mark.parametrize("package", HOMES)
def test_a_package_is_imported_only_at_home(package: str) -> None:
    assert breaches(package) == []


@pytest.mark.parametrize("layer", LAYERS)
def test_core_io_and_present_do_not_know_each_other(layer: str) -> None:
    forbidden = set(ABOVE) - {layer}
    assert {str(m): own(m) & forbidden for m in MODULES if part(m) == layer and own(m) & forbidden} == {}


def test_all_that_is_no_layer_is_vocabulary_and_rests_on_nothing_above_it() -> None:
    vocabulary = [m for m in MODULES if part(m) not in (*ABOVE, "__main__", ROOT_MODULE)]
    assert {"errors", "batch", "plans", "totals"} <= {part(m) for m in vocabulary}
    for module in vocabulary:
        assert not tops(module) & {"torch", "pyarrow", "rich", "typer"}, module
        assert not own(module) & set(ABOVE), module


def test_only_the_pipeline_and_the_command_line_see_both_core_and_io() -> None:
    both = {part(m) for m in MODULES if {"core", "io"} <= own(m)}
    assert both <= {"pipeline", "cli"}


def test_nothing_rests_on_the_python_interface() -> None:
    assert {part(m) for m in MODULES if "api" in own(m)} == {ROOT_MODULE}


def test_nothing_but_the_command_line_imports_the_command_line() -> None:
    assert {part(m) for m in MODULES if "cli" in own(m)} <= {"cli", "__main__"}


@pytest.mark.parametrize("module", MODULES, ids=lambda m: str(m.relative_to(PACKAGE)))
def test_a_module_has_at_most_400_lines(module: Path) -> None:
    assert len(module.read_text(encoding="utf-8").splitlines()) <= 400


def loaded_by(*args: str) -> set[str]:
    """Top-level modules that a command has loaded when it ends."""
    script = (
        "import sys, contextlib, io\n"
        "from rlcorr_cli.cli.main import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        f"    main({list(args)!r})\n"
        "print(' '.join({name.split('.')[0] for name in sys.modules}))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.parametrize("args", LIGHT, ids=" ".join)
def test_light_commands_load_nothing_heavy(args: tuple[str, ...]) -> None:
    found = loaded_by(*args)
    assert "rlcorr_cli" in found
    assert found & set(HEAVY) == set()


def test_the_check_of_light_commands_can_fail() -> None:
    found = loaded_by("analyze", str(ROOT / "sample_data" / "smollm2_bf16.parquet"), "--quiet")
    assert {"torch", "numpy", "pyarrow"} <= found
