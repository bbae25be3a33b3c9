"""What the tests do not hold: `python tests/benchmarks/mutation.py rlcorr_cli/totals rlcorr_cli/results --sample 40`.

Applies one small change at a time to a copy of the package (a comparison flipped, + for -, a constant moved, a boolean
turned, a return value dropped) and runs the test files that run the changed function, the quickest first, until the
first failure; lists the changes that no test notices.  The sample is seeded.

torch, pyarrow, polars and pytest are imported once; each change is looked at in a fork, which imports the package anew.
Which functions a test file runs is found out beforehand, of each in a fork of its own, so that what one file leaves in
a cache is not kept from the next.  Times are the processor's, so that a busy machine makes no test slow.
"""

import argparse
import ast
import json
import math
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import NoReturn

ROOT = Path(__file__).parents[2]
TESTS = {
    "measure": ("measure", "totals", "show/test_pictures.py", "cli/test_inspect.py", "cli/test_normalized_rows.py"),
    "totals": ("measure", "totals", "metrics", "reading/test_row_keys.py", "results", "show/test_pictures.py"),
    "metrics": ("metrics", "measure/test_against_oracle.py", "measure/test_edges.py", "results"),
    "results": (
        "results",
        "cli/test_check.py",
        "cli/test_check_saved.py",
        "cli/test_filter.py",
        "cli/test_inspect.py",
        "cli/test_schema.py",
        "show/test_pictures.py",
    ),
}
"""Folder of the package -> folders and files of tests/ that are to hold it."""
LARGE = (
    "arviz_stats.base.array",
    "matplotlib.pyplot",
    "polars",
    "pyarrow.parquet",
    "pytest",
    "torch",
    "typer._adapters",
)
"""What is imported to be in the forks."""
LONGEST_BASELINE, LONGEST_WAIT, PATIENCE = 600.0, 3600.0, 3.0
"""Seconds of the processor's time that a test file may take without a change; of the clock's, that any run may take;
how many times as long tests may take with a change."""
COMPARISONS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change to a module: `new` in the place of the old node, which is the number'th of its tree, in a function."""

    module: Path
    function: str
    number: int
    old: ast.AST
    new: ast.AST

    @property
    def text(self) -> str:
        """The module with the change."""
        tree = _parsed(self.module)
        _replace(tree, list(ast.walk(tree))[self.number], self.new)
        return ast.unparse(ast.fix_missing_locations(tree))

    def __str__(self) -> str:
        old, new = (ast.unparse(ast.fix_missing_locations(node))[:70] for node in (self.old, self.new))
        line = getattr(self.old, "lineno", 0)
        return f"{self.module}:{line}  {self.function}  {old} -> {new}".replace("\n", " ")


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """What could stand in a node's place."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        yield ast.Compare(node.left, [COMPARISONS[type(node.ops[0])](), *node.ops[1:]], node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        yield ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.Return) and ast.unparse(node) not in ("return", "return None"):
        yield ast.Return(ast.Constant(None))


def mutants(module: Path) -> Iterator[Mutant]:
    """Every change to a module but those to decorators and annotations, which no run looks at."""
    tree = _parsed(module)
    passed_over = {id(inner) for node in ast.walk(tree) for part in _never_run(node) for inner in ast.walk(part)}
    functions = dict(_functions(tree, "<module>"))
    for number, old in enumerate(ast.walk(tree)):
        for new in () if id(old) in passed_over else changes(old):
            yield Mutant(module=module, function=functions[id(old)], number=number, old=old, new=new)


def _parsed(module: Path) -> ast.Module:
    return ast.parse((ROOT / module).read_text(encoding="utf-8"))


def _functions(node: ast.AST, name: str) -> Iterator[tuple[int, str]]:
    """Every node below one with the code object that runs it, by its qualified name; a lambda runs as its function."""
    for child in ast.iter_child_nodes(node):
        inner = name
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            outer = (
                "" if name == "<module>" else f"{name}.<locals>." if isinstance(node, ast.FunctionDef) else f"{name}."
            )
            inner = outer + child.name
        yield id(child), inner
        yield from _functions(child, inner)


def _never_run(node: ast.AST) -> Iterator[ast.AST]:
    yield from getattr(node, "decorator_list", ())
    for name in ("annotation", "returns"):
        if (part := getattr(node, name, None)) is not None:
            yield part


def _replace(tree: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
            elif isinstance(value, list) and any(item is old for item in value):
                value[:] = [new if item is old else item for item in value]


def prepare(copied: Path) -> None:
    """What forks share: the large libraries, and an environment in which the copy is the package."""
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    os.environ["PYTHONPATH"] = str(copied)
    # Byte code of a change must not be taken for that of the next, made within the same second.
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.chdir(copied)
    sys.path[:0] = [str(copied)]
    for name in LARGE:
        import_module(name)


@dataclass(frozen=True)
class TestFile:
    """A file of tests: the processor's seconds it takes without a change, and the (module, function)s that it runs."""

    path: str
    seconds: float
    runs: frozenset[tuple[str, str]]


@cache
def measured(path: str, folder: Path) -> TestFile:
    """A file run once without a change; folder: for what it notes."""
    record = folder / "record.json"
    passed, seconds = passes([path], LONGEST_BASELINE, record)
    if not passed:
        sys.exit(f"{path} fails, or takes too long, without any change.")
    print(f"{seconds:5.0f} s  {path}", flush=True)
    runs = frozenset((module, function) for module, function in json.loads(record.read_text(encoding="utf-8")))
    return TestFile(path, seconds, runs)


def passes(paths: Sequence[str], seconds: float, record: Path | None = None) -> tuple[bool, float]:
    """Whether test files pass in a fork, within seconds of the processor's time; how many it took.

    record: where to note which functions they run.
    """
    pid = os.fork()
    if not pid:
        _test(paths, seconds, record)
    # What a fork leaves running goes with it, and one that waits for ever is ended.
    end = time.monotonic() + LONGEST_WAIT
    ended, status, usage = os.wait4(pid, os.WNOHANG)
    while not ended and time.monotonic() < end:
        time.sleep(0.05)
        ended, status, usage = os.wait4(pid, os.WNOHANG)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    if not ended:
        _, status, usage = os.wait4(pid, 0)
    return status == 0, usage.ru_utime + usage.ru_stime


def _test(paths: Sequence[str], seconds: float, record: Path | None) -> NoReturn:
    import pytest

    os.setpgid(0, 0)
    limit = math.ceil(time.process_time() + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    sys.dont_write_bytecode = True
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    status, seen = 1, set[tuple[str, str]]()

    def note(frame: FrameType, event: str, _: object) -> None:
        if "/rlcorr_cli/" in frame.f_code.co_filename:
            seen.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    if record:
        threading.settrace(note)
        sys.settrace(note)
    try:
        status = int(pytest.main(["-x", "-q", "-n", "0", "-p", "no:cacheprovider", *paths]))
        if record:
            record.write_text(json.dumps([(os.path.relpath(file), name) for file, name in seen]), encoding="utf-8")
    finally:
        os._exit(status)


def survives(mutant: Mutant, tests: Sequence[TestFile]) -> bool:
    """Whether tests pass in spite of a change to the copy, which is as before afterwards."""
    if not tests:
        return True
    mutant.module.write_text(mutant.text, encoding="utf-8")
    try:
        return passes([test.path for test in tests], PATIENCE * sum(test.seconds for test in tests))[0]
    finally:
        shutil.copy2(ROOT / mutant.module, mutant.module)


def sample(target: Path, size: int, seed: int) -> list[Mutant]:
    """Some of the changes to a folder or module, named from the root; size 0: all."""
    modules = (
        [target] if target.suffix == ".py" else sorted(path.relative_to(ROOT) for path in (ROOT / target).rglob("*.py"))
    )
    every = [mutant for module in modules for mutant in mutants(module)]
    return random.Random(seed).sample(every, min(size or len(every), len(every)))


def look_at(chosen: list[Mutant], tests: Sequence[TestFile]) -> list[Mutant]:
    """The survivors among some changes; a line for each as it is done with."""
    survivors: list[Mutant] = []
    for mutant in chosen:
        holding = [test for test in tests if (str(mutant.module), mutant.function) in test.runs]
        survived = survives(mutant, holding)
        survivors += [mutant] if survived else []
        outcome = "noticed " if not survived else "SURVIVES" if holding else "NOT RUN "
        print(f"{outcome}  {mutant}", flush=True)
    return survivors


def tests_of(folder: str, temporary: Path) -> list[TestFile]:
    """The test files that are to hold a folder, the quickest first."""
    paths = [Path("tests") / name for name in TESTS[folder]]
    files = sorted({file for path in paths for file in (path.rglob("test_*.py") if path.is_dir() else [path])})
    tests = sorted((measured(str(file), temporary) for file in files), key=lambda test: test.seconds)
    print(f"{folder}: {len(tests)} test files take {sum(test.seconds for test in tests):.0f} s", flush=True)
    return tests


def main() -> int:
    """Look at a sample of every target and list what survives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="+", type=Path, help="folders or modules of the package")
    parser.add_argument("--sample", type=int, default=25, help="how many changes to each; 0 for all")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    targets = [target.resolve().relative_to(ROOT) for target in args.targets]
    samples = {target: sample(target, args.sample, args.seed) for target in targets}
    survivors: list[Mutant] = []
    with tempfile.TemporaryDirectory() as temporary:
        copied = Path(temporary) / "rlcorr"
        shutil.copytree(ROOT, copied, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__"))
        prepare(copied)
        tests = {
            folder: tests_of(folder, Path(temporary)) for folder in sorted({target.parts[1] for target in samples})
        }
        for target, chosen in samples.items():
            survivors += look_at(chosen, tests[target.parts[1]])
        os.chdir(ROOT)
    print(f"\n{len(survivors)} of {sum(map(len, samples.values()))} changes survive:")
    print("\n".join(map(str, survivors)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
