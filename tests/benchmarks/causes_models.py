"""How often `diagnose` is right on other models, and how sure it is: sets of dumps with their truth.

    python tests/benchmarks/causes_models.py FOLDER... [--only]

A folder holds dumps and `_truth.json`: {"files": {name: {"accept": [verdicts], "parameters": {...}}}}.  Without --only
tests/diagnosis/causes is judged, too.  Printed: what is wrong, right verdicts by model and by cause, how many of each
certainty are right (95% binomial intervals), how many intervals of parameters hold the truth, and a hash of the rules.

A column of time that carries the gap (`policy_version`) is right as staleness that grows with the lag.  A verdict of
two causes (certainty `one of`) is right where its first is; the table by certainty takes either.
"""

import argparse
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "diagnosis"))  # a script sees its own folder alone

from known_causes import DUMPS, VERDICTS

import rlcorr_cli
from rlcorr_cli import diagnose
from rlcorr_cli.causes.diagnosis import CauseFinding, Diagnosis

OF_TRUTH = {"ratio": "temperature", "top_p": "top_p", "min_p": "min_p"}
"""A parameter of a truth -> the parameter of a finding whose interval must hold it."""
OF_TIME = ("lag", "policy_version", "step")


@dataclass(frozen=True)
class Known:
    """A dump of known cause, of a model."""

    model: str
    name: str
    path: Path
    accept: tuple[str, ...]
    parameters: dict[str, Any]


def known(folders: list[Path], *, only: bool) -> Iterator[Known]:
    """All of them."""
    for name, verdict in () if only else VERDICTS.items():
        yield Known("SmolLM2", name, DUMPS / f"{name}.parquet", (verdict,), {})
    for folder in folders:
        files = json.loads((folder / "_truth.json").read_text())["files"]
        for name, truth in files.items():
            model = truth.get("model", folder.name)
            yield Known(model, name, folder / f"{name}.parquet", tuple(truth["accept"]), truth.get("parameters", {}))


def is_right(dump: Known, verdict: str, found: Diagnosis) -> bool:
    """Whether the verdict is one of those that are true."""
    if verdict in dump.accept:
        return True
    grows = found.cause is not None and found.cause.parameters.get("column") == "lag"
    return "column" in dump.accept and dump.parameters.get("column") in OF_TIME and grows


def intervals(dump: Known, causes: tuple[CauseFinding, ...]) -> Iterator[tuple[str, bool]]:
    """Of each parameter whose truth is known and that is reported: whether its interval holds it."""
    for name, parameter in OF_TRUTH.items():
        for cause in causes:
            if name in dump.parameters and parameter in cause.intervals:
                low, high = cause.intervals[parameter]
                yield parameter, low <= dump.parameters[name] <= high


def binomial(right: int, n: int) -> tuple[float, float]:
    """Wilson's 95% interval of a share."""
    z = 1.96
    p, middle = right / n, (right + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * sqrt(n * p * (1 - p) + z * z / 4)
    return max(0.0, middle - half), min(1.0, middle + half)


def hash_of_rules() -> str:
    """Of the code that decides."""
    root, digest = Path(rlcorr_cli.__file__).parent, hashlib.sha256()
    for path in sorted((root / "causes").glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def main() -> None:
    """Judge and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--only", action="store_true")
    options = parser.parse_args()
    by_model: Counter[tuple[str, bool]] = Counter()
    by_cause: Counter[tuple[str, str]] = Counter()
    by_certainty: Counter[tuple[str, bool]] = Counter()
    held: Counter[tuple[str, bool]] = Counter()
    for dump in known(options.folders, only=options.only):
        result = diagnose(dump.path)
        found, verdict = result.whole.diagnosis, result.verdict
        right = is_right(dump, verdict, found)
        by_model[dump.model, right] += 1
        by_cause[dump.accept[0], "right" if right else verdict] += 1
        sure = found.certainty if verdict == found.verdict else "proven"  # a file that is wrong
        either = right or bool(found.cause and set(found.cause.alternatives) & set(dump.accept))
        by_certainty[sure, either if sure == "one of" else right] += 1
        held.update(intervals(dump, found.causes))
        if not right:
            print(f"{dump.model} {dump.name}: {' or '.join(dump.accept)}, said {verdict} ({sure})")
    for title, counts in (("model", by_model), ("certainty", by_certainty), ("interval", held)):
        print(f"\n| {title} | right | share |\n|---|---|---|")
        for name in dict.fromkeys(name for name, _ in counts):
            n, n_right = counts[name, True] + counts[name, False], counts[name, True]
            low, high = binomial(n_right, n)
            print(f"| {name} | {n_right} of {n} | {n_right / n:.0%} ({low:.0%} to {high:.0%}) |")
    print("\n| truth | right | said instead |\n|---|---|---|")
    for cause in sorted({cause for cause, _ in by_cause}):
        said = {name: count for (truth, name), count in by_cause.items() if truth == cause}
        instead = ", ".join(f"`{name}` {count}" for name, count in said.items() if name != "right")
        print(f"| `{cause}` | {said.get('right', 0)} of {sum(said.values())} | {instead} |")
    print(f"\nhash of the rules: {hash_of_rules()}")


if __name__ == "__main__":
    main()
