"""Data are never code: nothing in the package unpickles, evaluates, or starts other programs."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "rlcorr_cli"
MODULES = sorted(PACKAGE.rglob("*.py"))

NO_IMPORT = (
    *("pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"),
    *("subprocess", "pty", "commands", "popen2", "ctypes", "cffi", "code", "codeop"),
)
"""Packages whose use is to run what a file or a string says."""
NO_CALL = (
    *("eval", "exec", "compile", "__import__", "execfile"),
    *("os.system", "os.popen", "os.startfile", "os.fork", "os.forkpty", "pty.spawn"),
    *("torch.load", "torch.jit.load", "torch.hub.load", "numpy.load", "np.load", "pandas.read_pickle"),
    *("yaml.load", "yaml.load_all", "yaml.full_load", "yaml.unsafe_load", "yaml.unsafe_load_all"),
    *("runpy.run_path", "runpy.run_module", "builtins.eval", "builtins.exec"),
    *("asyncio.create_subprocess_shell", "asyncio.create_subprocess_exec", "tempfile.mktemp"),
)
"""Functions by the name they are called by."""
NO_CALL_BELOW = ("os.exec", "os.spawn", "os.posix_spawn")
"""Families of functions, by how their names begin."""
EXCEPTIONS = {
    ("measure/arrays.py", "ctypes"): "asks CUDA's driver how many GPUs there are, and has libc give memory back",
    ("layouts/pickled.py", "pickle"): "decodes runs of numbers, which a pattern has matched, and nothing else",
    (
        "files/buckets.py",
        "subprocess",
    ): "asks the clouds' own commands, or that of a user's profile, for keys",
    ("engines/processes.py", "subprocess"): "starts workers: this interpreter with a line of ours",
    ("engines/ray_cluster.py", "ctypes"): "has the kernel end a run whose parent is gone",
    ("engines/ray_cluster.py", "os.fork"): "the run itself, so that its parent can say how it ended",
    ("reading/token_text.py", "subprocess"): "starts this interpreter with a line of ours, under limits",
    ("engines/ray_worker.py", "pickle"): "shards that this program's driver sends to its own tasks on a cluster",
    (
        "engines/processes.py",
        "pickle",
    ): "what goes between this program's own processes, over sockets only they have",
    ("commands/watch.py", "subprocess"): "runs the command that --exec names, which the user types",
    ("commands/watch.py", "exec"): "is the name of that argument",
    ("commands/watch.py", "shell=True"): "the user's own line; what a dump says goes to its standard input",
}
"""What one module may, and why."""
NO_KEYWORD = {"shell": True, "allow_pickle": True, "weights_only": False}
"""Arguments that no call has."""


def dotted(node: ast.expr) -> str:
    """'os.path.join' for the expression; '' where it is more than names."""
    if isinstance(node, ast.Name):
        return node.id
    below = dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{below}.{node.attr}" if below and isinstance(node, ast.Attribute) else ""


def breaches(source: str) -> list[str]:
    """What a module does that it must not."""
    return [what for _, what in sorted(_breaches(ast.parse(source)))]


def _breaches(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((node.lineno, name) for name in _imported(node) if _forbidden_import(name))
        elif isinstance(node, ast.Call):
            name = dotted(node.func)
            if name in NO_CALL or name.startswith(NO_CALL_BELOW):
                yield node.lineno, name
            for given in node.keywords:
                value = given.value.value if isinstance(given.value, ast.Constant) else None
                if given.arg in NO_KEYWORD and value is NO_KEYWORD[given.arg]:
                    yield node.lineno, f"{given.arg}={value}"
        elif isinstance(node, ast.Attribute | ast.Name) and dotted(node) in ("eval", "exec", "os.system"):
            yield node.lineno, dotted(node)  # handed on rather than called


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Dotted names, and `a.b` for `from a import b`."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    else:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _forbidden_import(name: str) -> bool:
    return name.split(".")[0] in NO_IMPORT or name in NO_CALL or name.startswith(NO_CALL_BELOW)


def test_no_module_runs_what_data_say_and_every_exception_is_made_use_of() -> None:
    found = {
        (module.relative_to(PACKAGE).as_posix(), what)
        for module in MODULES
        for what in breaches(module.read_text(encoding="utf-8"))
    }
    assert found == {*EXCEPTIONS}


def test_plans_in_yaml_are_read_by_a_safe_loader() -> None:
    (loader,) = [
        node
        for node in ast.walk(ast.parse((PACKAGE / "plans/yaml_files.py").read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and node.name == "Loader"
    ]
    assert [dotted(base) for base in loader.bases] == ["yaml.SafeLoader"]


def test_the_walk_sees_the_package() -> None:
    assert len(MODULES) > 50
    assert any(module.parts[-2:] == ("reading", "parquet.py") for module in MODULES)


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "import torch.multiprocessing, dill.source",
        "def f(text):\n    return eval(text)",
        "exec(open('x').read())",
        "run = map(eval, texts)",
        "import os\nos.system('ls')",
        "from os import system",
        "from os import execvp as go",
        "import os\nos.spawnl(0, 'x')",
        "import subprocess",
        "torch.load(path)",
        "from torch import load",
        "torch.load(path, weights_only=False)",
        "np.load(path, allow_pickle=True)",
        "yaml.load(text)",
        "popen(text, shell=True)",
        "__import__(name)",
    ],
)
def test_the_walk_finds_what_is_forbidden(source: str) -> None:
    assert breaches(source)


@pytest.mark.parametrize(
    "source", ["import re\nre.compile('a')", "yaml.safe_load(text)", "json.load(file)", "self.load(path)", "x.eval()"]
)
def test_the_walk_leaves_alone_what_is_allowed(source: str) -> None:
    assert breaches(source) == []
