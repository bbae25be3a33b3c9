"""The rooms of the package, drawn from the imports of its modules: `python tests/rooms.py` prints the picture that
manual/development.md has.  Each row stands on those below it: a room imports from lower rows alone."""

import ast
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "rlcorr_cli"
BAR = 44
"""Characters of the longest room."""


def imports() -> dict[str, set[str]]:
    """Room -> the rooms that its modules import, at the top or where they need them, but not for types alone."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        tree = ast.parse(path.read_text(encoding="utf-8"))
        typed = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.ImportFrom)
                and id(node) not in typed
                and (node.module or "").startswith("rlcorr_cli.")
            ):
                found[room].add(str(node.module).split(".")[1])
        found[room] -= {room}
    return {room: found[room] for room in sorted(found) if not room.startswith("__")}


def levels() -> list[list[str]]:
    """The rooms from the top down: each in the lowest row that stands above all that it imports."""
    below = imports()
    height: dict[str, int] = {}
    for room in TopologicalSorter(below).static_order():
        height[room] = 1 + max((height[each] for each in below.get(room, ()) if each in height), default=-1)
    rows: dict[int, list[str]] = defaultdict(list)
    for room, row in height.items():
        if room in below:
            rows[row].append(room)
    return [sorted(rows[row]) for row in sorted(rows, reverse=True)]


def lines_of(room: str) -> int:
    """Lines of its modules."""
    paths = [PACKAGE / f"{room}.py"] if (PACKAGE / f"{room}.py").exists() else [*(PACKAGE / room).rglob("*.py")]
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def drawn() -> str:
    """A line a room: its bar is as long as its modules are; a blank line parts what imports from what it imports."""
    size = {room: lines_of(room) for rows in levels() for room in rows}
    most = max(size.values())
    rows = [
        "\n".join(f"{room:<11} {'#' * max(1, round(BAR * size[room] / most))} {size[room] / 1000:.1f}k" for room in row)
        for row in levels()
    ]
    return "\n\n".join(rows) + "\n"


if __name__ == "__main__":
    print(drawn(), end="")
