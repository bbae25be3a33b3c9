"""What the tests do not hold: `python tests/benchmarks/mutation.py rlcorr_cli/totals rlcorr_cli/rules --sample 40`.

Applies one small change at a time to a copy of the package (a comparison flipped, + for -, a constant moved, a boolean
turned, a return value dropped), runs the tests that are mapped to its folder until the first failure, and lists the
changes that no test notices.  The sample is seeded.  What takes three times as long as the unchanged tests counts as
noticed.  MUTANTS.md says what is left, and why.

torch, pyarrow and pytest are imported once; each change is looked at in a fork, which imports the package anew.
"""

import argparse
import ast
import copy
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).parents[2]
CORE = tuple(f"tests/core/test_{name}.py" for name in ("statistics", "correct", "edges", "against_oracle"))
TESTS = {
    "core": (*CORE, "tests/core/test_tail.py", "tests/core/test_bootstrap.py", "tests/core/test_laws.py"),
    "totals": ("tests/core/test_tail.py", "tests/core/test_edges.py", "tests/core/test_laws.py", CORE[-1]),
    "metrics": ("tests/metrics", "tests/core/test_against_oracle.py", "tests/report/test_verdict.py"),
    "rules": ("tests/rules", "tests/cli/test_check.py", "tests/cli/test_check_saved.py"),
    "report": ("tests/report", "tests/cli/test_schema.py", "tests/cli/test_check_saved.py"),
}
"""Folder of the package -> the tests that hold it, quick ones first."""
LONGEST_BASELINE, PATIENCE = 600.0, 3.0
"""Seconds that the tests may take without a change; how many times as long with one."""
COMPARISONS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change to a module: what it is in words, and the module's text with it."""

    module: Path
    line: int
    change: str
    text: str


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
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
    passed_over = {id(inner) for node in ast.walk(tree) for part in _never_run(node) for inner in ast.walk(part)}
    for number, node in enumerate(ast.walk(tree)):
        for change in () if id(node) in passed_over else changes(node):
            mutant = copy.deepcopy(tree)
            old = list(ast.walk(mutant))[number]
            words = f"{ast.unparse(node)[:70]} -> {ast.unparse(ast.fix_missing_locations(change))[:70]}"
            _replace(mutant, old, change)
            text = ast.unparse(ast.fix_missing_locations(mutant))
            yield Mutant(module=module, line=getattr(node, "lineno", 0), change=words.replace("\n", " "), text=text)


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
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.chdir(copied)
    sys.path[:0] = [str(copied)]
    import pyarrow.parquet  # noqa: F401
    import pytest  # noqa: F401
    import torch  # noqa: F401
    import typer._adapters  # noqa: F401


def passes(tests: tuple[str, ...], seconds: float, keep_byte_code: bool = False) -> bool:
    """Whether tests pass in a fork, in time."""
    pid = os.fork()
    if not pid:
        _test(tests, keep_byte_code)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status == 0
        time.sleep(0.05)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return False


def _test(tests: tuple[str, ...], keep_byte_code: bool) -> NoReturn:
    import pytest

    os.setpgid(0, 0)
    # Byte code of a change must not be taken for that of the next, made within the same second.
    sys.dont_write_bytecode = not keep_byte_code
    if not keep_byte_code:
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    status = 1
    try:
        status = int(pytest.main(["-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]))
    finally:
        os._exit(status)


def survives(mutant: Mutant, tests: tuple[str, ...], seconds: float) -> bool:
    """Whether tests pass in spite of a change to the copy, which is as before afterwards."""
    mutant.module.write_text(mutant.text, encoding="utf-8")
    try:
        return passes(tests, seconds)
    finally:
        shutil.copy2(ROOT / mutant.module, mutant.module)


def sample(target: Path, size: int, seed: int) -> list[Mutant]:
    """Some of the changes to a folder or module; size 0: all."""
    relative = target.resolve().relative_to(ROOT)
    modules = sorted((ROOT / relative).rglob("*.py")) if relative.suffix != ".py" else [ROOT / relative]
    every = [mutant for module in modules for mutant in mutants(module.relative_to(ROOT))]
    return random.Random(seed).sample(every, min(size or len(every), len(every)))


def look_at(chosen: list[Mutant], folder: str) -> list[Mutant]:
    """The survivors of one folder's sample; a line for each change as it is done with."""
    tests = tuple(TESTS[folder])
    started = time.monotonic()
    if not passes(tests, LONGEST_BASELINE, keep_byte_code=True):
        sys.exit(f"{folder}: the tests fail, or take too long, without any change.")
    baseline = time.monotonic() - started
    print(f"{folder}: {len(chosen)} changes; the tests take {baseline:.0f} s without one", flush=True)
    survivors: list[Mutant] = []
    for mutant in chosen:
        survived = survives(mutant, tests, PATIENCE * baseline)
        survivors += [mutant] if survived else []
        print(f"{'SURVIVES' if survived else 'noticed '}  {_line(mutant)}", flush=True)
    return survivors


def _line(mutant: Mutant) -> str:
    return f"{mutant.module}:{mutant.line}  {mutant.change}"


def main() -> int:
    """Look at a sample of every target and list what survives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="+", type=Path, help="folders or modules of the package")
    parser.add_argument("--sample", type=int, default=25, help="how many changes to each; 0 for all")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    samples = {target: sample(target, args.sample, args.seed) for target in args.targets}
    survivors: list[Mutant] = []
    with tempfile.TemporaryDirectory() as temporary:
        copied = Path(temporary) / "rlcorr"
        shutil.copytree(ROOT, copied, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__"))
        prepare(copied)
        for chosen in samples.values():
            if chosen:
                survivors += look_at(chosen, chosen[0].module.parts[1])
        os.chdir(ROOT)
    print(f"\n{len(survivors)} of {sum(map(len, samples.values()))} changes survive:")
    print("\n".join(map(_line, survivors)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
