"""The rooms of the package (its folders and single modules), drawn from their imports.

`python tests/rooms.py` prints the picture that manual/development.md has.  Each group of lines stands on those below
it: a room imports from lower ones alone.
"""

import ast
from collections import defaultdict
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "rlcorr_cli"


@cache
def imports() -> dict[str, set[str]]:
    """Room -> the rooms that its modules import, at the top or where they need them, but not for types alone."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        tree = ast.parse(path.read_text(encoding="utf-8"))
        type_only = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.ImportFrom)
                and id(node) not in type_only
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
        height[room] = 1 + max((height[each] for each in below.get(room, ())), default=-1)
    rows: dict[int, list[str]] = defaultdict(list)
    for room, row in height.items():
        if room in below:
            rows[row].append(room)
    return [sorted(rows[row]) for row in sorted(rows, reverse=True)]


def reached(room: str, below: dict[str, set[str]]) -> set[str]:
    """All that a room stands on: what it imports, what that imports, and so on."""
    return below[room].union(*(reached(each, below) for each in below[room] if each in below))


def drawn() -> str:
    """A line a room, and behind it those that it imports, without what it reaches through another of these."""
    below = {room: others & imports().keys() for room, others in imports().items()}
    direct = {room: others - set().union(*(reached(each, below) for each in others)) for room, others in below.items()}
    rows = ["\n".join(f"{room:<11} {', '.join(sorted(direct[room]))}".rstrip() for room in row) for row in levels()]
    return "\n\n".join(rows) + "\n"


if __name__ == "__main__":
    print(drawn(), end="")
