"""The layers, held by walking imports, and what a light command may load, held by running it."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from limits import LIMIT_SECONDS

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "rlcorr_cli"
MODULES = sorted(PACKAGE.rglob("*.py"))

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "frozen": (),
    "errors": ("places",),
    "records": (),
    "places": (),
    "files": ("errors", "places"),
    "plans": ("errors", "places", "files", "records"),
    "totals": ("errors", "places", "plans"),
    "metrics": ("errors", "plans", "totals"),
    "frameworks": ("errors", "plans", "totals", "metrics"),
    "layouts": ("errors", "places", "files"),
    "reading": ("errors", "places", "files", "records", "plans", "totals", "layouts"),
    "measure": ("errors", "plans", "totals", "metrics", "reading"),
    "causes": ("places", "records", "plans", "totals", "metrics", "reading", "measure"),
    "engines": ("errors", "places", "files", "reading"),
    "results": ("errors", "files", "records", "plans", "totals", "metrics", "frameworks", "reading", "causes"),
    "show": ("errors", "files", "plans", "totals", "metrics", "frameworks", "reading", "causes", "results"),
}
"""A part of the package -> the parts that it may import, beside `frozen`, which makes dataclasses.  What is not here
may import all of these, and see below."""

FACE = ("runs", "commands", "api")
"""Each of these may also import those before it, and only the last two know how anything is shown."""

ROOT_MODULE = "__init__"
"""`rlcorr_cli` itself, which hands on what `api` has when it is asked for."""

HOMES: dict[str, tuple[str, ...]] = {
    "torch": ("measure",),
    "array_api_compat": ("measure",),
    "pyarrow": ("files", "layouts", "reading"),
    "obstore": ("files",),
    "polars": ("results", "runs"),
    "rich": ("show",),
    "matplotlib": ("show",),
    "jinja2": ("show",),
    "typer": ("commands",),
    "tensorboardX": (),
    "ray": ("engines",),
}
"""A third party's package -> the only parts of ours that import it."""

NAMED_BY_PLACE = {"document.Note", "plan.Plan", "plan.Rejection", "plan.Weighting", "rules.Rule"}
"""Records that users and tables write by the dozen: up to four fields say what each is, its settings are keywords."""

LIGHT = (("--help",), ("presets",), ("explain", "kl"), ("explain", "--schema"), ("explain", "--schema", "check"))
OTHERS = (
    *("commands.check", "commands.compare", "commands.filter"),
    *("commands.pictures", "engines.processes", "engines.ray_tasks", "frameworks.read"),
    *("results.saved", "plans.yaml_files", "layouts.canonical", "layouts.slime"),
    *("layouts.pickled", "layouts.torch_files", "plans.files"),
    *("plans.presets", "results.inspected", "show.forms.texts", "show.figures"),
)
"""What other commands, plans and dumps than those of `analyze dump.parquet` need: a quarter of its start."""
OTHER_LIBRARIES = ("msgspec", "numpy.ma")
"""What of third parties' such a run does without: it would take 20 of 300 ms."""
HEAVY = ("torch", "numpy", "pyarrow", "polars", "matplotlib", "obstore", "ray")


def part(module: Path) -> str:
    """'measure' for rlcorr_cli/measure/tokens.py, 'batch' for rlcorr_cli/batch.py."""
    return module.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def parsed(module: Path) -> ast.Module:
    return ast.parse(module.read_text(encoding="utf-8"))


@cache
def imports(module: Path) -> frozenset[str]:
    """Every dotted name a module imports, wherever in it, and `a.b` and `a.b.c` for `from a.b import c`."""
    return frozenset(_imports(parsed(module)))


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
    """Which parts of ours a module imports: core, plans, io."""
    names = {name.split(".")[1] for name in imports(module) if name.startswith("rlcorr_cli.")}
    return {name for name in names if not name.startswith("__")}


def breaches(package: str) -> list[str]:
    """Modules that import a third party's package outside its home."""
    return [str(m.relative_to(ROOT)) for m in MODULES if package in tops(m) and part(m) not in HOMES[package]]


def test_the_walk_finds_the_imports_that_are_there() -> None:
    assert len(MODULES) > 30
    for package in ("torch", "pyarrow", "rich", "typer"):
        assert {part(m) for m in MODULES if package in tops(m)} == set(HOMES[package])
    assert own(PACKAGE / "runs" / "reading.py") >= {"measure", "reading", "engines"}


@pytest.mark.parametrize("package", HOMES)
def test_a_package_is_imported_only_at_home(package: str) -> None:
    assert breaches(package) == []


def test_matplotlib_is_imported_where_it_is_under_our_settings_alone() -> None:
    modules = [module for module in MODULES if "matplotlib" in tops(module)]
    assert [str(module) for module in modules if module.parent.name != "figures"] == []


def allowed(of: str) -> set[str]:
    """The parts that a part may import."""
    if of in MAY_IMPORT:
        return {*MAY_IMPORT[of], "frozen"} - {of}
    if of in FACE:
        below = set(FACE[: FACE.index(of)])
        return below | set(MAY_IMPORT) - ({"show"} if of == "runs" else set())
    return {"__main__": {"commands"}, ROOT_MODULE: set()}[of]


def test_a_module_imports_only_what_its_part_may() -> None:
    others = {module: own(module) - {part(module)} - allowed(part(module)) for module in MODULES}
    assert {str(module): parts for module, parts in others.items() if parts} == {}


def test_the_folder_listing_is_the_architecture() -> None:
    listed = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert listed - {"manual"} <= {*MAY_IMPORT, *FACE, "__main__", ROOT_MODULE}
    assert len(list(PACKAGE.glob("*.py"))) <= 8


def test_parts_do_not_import_each_other_in_a_circle() -> None:
    TopologicalSorter({of: allowed(of) for of in (*MAY_IMPORT, *FACE)}).prepare()


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    names = {".".join(("rlcorr_cli", *m.relative_to(PACKAGE).with_suffix("").parts)): m for m in MODULES}
    graph = {name: set(at_start(module)) & set(names) - {name} for name, module in names.items()}
    TopologicalSorter(graph).prepare()
    assert sum(map(len, graph.values())) > 300


def at_start(module: Path) -> Iterator[str]:
    """What a module imports as it is imported itself: neither in a function nor for the type checker alone."""
    waiting: list[ast.stmt] = list(parsed(module).body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _imports(ast.Module([node], []))
        elif isinstance(node, ast.If) and ast.unparse(node.test) != "TYPE_CHECKING":
            waiting += node.body


def private_names(tree: ast.Module) -> set[str]:
    """Functions, methods, classes and constants of a module that begin with one underscore."""
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    defined |= {ast.unparse(target) for node in tree.body if isinstance(node, ast.Assign) for target in node.targets}
    return {name for name in defined if name.startswith("_") and not name.endswith("_")}


def test_no_private_name_is_left_unused() -> None:
    """A method may be used by the class that it is inherited from, in another module."""
    trees = [parsed(module) for module in MODULES]
    attributes = {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    unused, n_names = [], 0
    for module, tree in zip(MODULES, trees, strict=True):
        read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        n_names += len(names := private_names(tree))
        unused += [(module.name, name) for name in names - read - attributes]
    assert unused == []
    assert n_names > 1000


def records(module: Path) -> Iterator[tuple[ast.ClassDef, str]]:
    """Each dataclass of a module, and its decorator as written."""
    for node in ast.walk(parsed(module)):
        if isinstance(node, ast.ClassDef):
            decorators = (ast.unparse(decorator) for decorator in node.decorator_list)
            yield from ((node, text) for text in decorators if text.startswith(("dataclass", "frozen")))


def fields_of(record: ast.ClassDef) -> list[str]:
    """The names of a dataclass's own fields, and `_` where the rest are keyword-only."""
    declared = (node for node in record.body if isinstance(node, ast.AnnAssign))
    return [ast.unparse(node.target) for node in declared if "ClassVar" not in ast.unparse(node.annotation)]


def test_a_record_of_more_than_four_fields_is_keyword_only() -> None:
    every = [(f"{module.stem}.{record.name}", record, text) for module in MODULES for record, text in records(module)]
    large = {name: (record, text) for name, record, text in every if len(fields_of(record)) > 4}
    by_place = {name: record for name, (record, text) in large.items() if "kw_only=True" not in text}
    assert len(large) > 60
    assert set(by_place) == NAMED_BY_PLACE
    assert all("_" in fields_of(record)[:5] for record in by_place.values())


def loaded_by(*args: str) -> set[str]:
    """Modules that a command has loaded when it ends."""
    script = (
        "import sys, contextlib, io\n"
        "from rlcorr_cli.commands.main import run\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        f"    run({list(args)!r})\n"
        "print(' '.join(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=LIMIT_SECONDS
    )
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.parametrize("args", LIGHT, ids=" ".join)
def test_light_commands_load_nothing_heavy(args: tuple[str, ...]) -> None:
    found = loaded_by(*args)
    assert "rlcorr_cli" in found
    assert found & set(HEAVY) == set()


@pytest.fixture(scope="module")
def analyze_loaded() -> set[str]:
    """Modules that `analyze` of a Parquet file has loaded when it ends."""
    return loaded_by("analyze", str(ROOT / "sample_data" / "smollm2_bf16.parquet"), "--quiet")


@pytest.mark.xdist_group("loaded")
def test_the_check_of_light_commands_can_fail(analyze_loaded: set[str]) -> None:
    assert {"numpy", "pyarrow"} <= analyze_loaded


@pytest.mark.xdist_group("loaded")
def test_analyze_loads_nothing_of_other_commands_and_dumps(analyze_loaded: set[str]) -> None:
    assert {"rlcorr_cli.commands.analyze", "rlcorr_cli.layouts.table"} <= analyze_loaded
    assert analyze_loaded & {f"rlcorr_cli.{name}" for name in OTHERS} == set()
    assert analyze_loaded & {*OTHER_LIBRARIES} == set()
    paths = [PACKAGE / name.replace(".", "/") for name in OTHERS]
    assert all(path.with_suffix(".py").exists() or path.is_dir() for path in paths)
