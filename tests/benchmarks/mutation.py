"""What the tests do not hold: `python tests/benchmarks/mutation.py rlcorr_cli/totals --sample 40`.

Applies one small change at a time to a copy of the package (a comparison flipped, + for -, a constant moved, a boolean
turned, a return value dropped), runs the tests that are mapped to its folder until the first failure, and lists the
changes that no test notices.  The sample is seeded; a run that takes too long counts as noticed.
"""

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = {
    "core": ("tests/core",),
    "totals": ("tests/core", "tests/present", "tests/cli/test_normalized_rows.py"),
    "metrics": ("tests/core", "tests/frameworks", "tests/cli/test_explain.py", "tests/cli/test_analyze.py"),
    "rules": ("tests/rules", "tests/cli/test_check.py", "tests/cli/test_check_saved.py"),
    "report": ("tests/cli/test_reports.py", "tests/cli/test_text.py", "tests/cli/test_inspect.py", "tests/rules"),
}
"""Folder of the package -> the tests that hold it, quick ones first."""
SECONDS = 300
COMPARISONS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}


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
    elif isinstance(node, ast.Return) and node.value is not None:
        yield ast.Return(ast.Constant(None))


def mutants(path: Path) -> Iterator[tuple[int, str, str]]:
    """Line, the change in words and the module's new text, for every change to a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for number, node in enumerate(ast.walk(tree)):
        for change in changes(node):
            mutant = copy.deepcopy(tree)
            old = list(ast.walk(mutant))[number]
            text = f"{ast.unparse(node)[:60]} -> {ast.unparse(ast.fix_missing_locations(change))[:60]}"
            _replace(mutant, old, change)
            yield getattr(node, "lineno", 0), text, ast.unparse(ast.fix_missing_locations(mutant))


def _replace(tree: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
            elif isinstance(value, list) and any(item is old for item in value):
                value[:] = [new if item is old else item for item in value]


def survives(copied: Path, tests: tuple[str, ...]) -> bool:
    """Whether the mapped tests pass on a copy."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(copied)}
    try:
        done = subprocess.run(command, cwd=copied, env=environment, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path, help="a folder or module of the package")
    parser.add_argument("--sample", type=int, default=20, help="how many changes; 0 for all")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    target = args.target.resolve().relative_to(ROOT)
    modules = sorted((ROOT / target).rglob("*.py")) if target.suffix != ".py" else [ROOT / target]
    found = [(module.relative_to(ROOT), *mutant) for module in modules for mutant in mutants(module)]
    chosen = random.Random(args.seed).sample(found, min(args.sample or len(found), len(found)))
    survivors = 0
    with tempfile.TemporaryDirectory() as temporary:
        copied = Path(temporary) / "rlcorr"
        shutil.copytree(ROOT, copied, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__"))
        tests = TESTS[target.parts[1]]
        if not survives(copied, tests):
            sys.exit("The tests fail, or take too long, without any change.")
        for module, line, text, source in chosen:
            plain = (copied / module).read_text(encoding="utf-8")
            (copied / module).write_text(source, encoding="utf-8")
            if survives(copied, tests):
                survivors += 1
                print(f"{module}:{line}  {text}", flush=True)
            (copied / module).write_text(plain, encoding="utf-8")
    print(f"{survivors} of {len(chosen)} changes survive, of {len(found)} that could be made.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
