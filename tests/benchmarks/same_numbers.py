"""Whether every number that commands give of odd dumps is as it was, or the same on two devices.

    python tests/benchmarks/same_numbers.py --record FILE [--dumps 300] [--first 0]
    python tests/benchmarks/same_numbers.py --against FILE
    python tests/benchmarks/same_numbers.py --devices cpu,torch

The dumps are those of odd_dumps.py, and each is put through `analyze` under presets, rejections, profiles and
objectives, by groups and normalized, `compare`, `sweep`, `diff`, `diagnose`, `inspect`, `filter` with the columns that
it writes, and some through `plot`; which, its number alone says.

`--record` writes what they print, as gzipped JSON lines; run it with PYTHONPATH at another checkout to compare this one
with that.  Words must be the same letter for letter, numbers to 1e-9 of themselves; but standard deviations as
IN_SQUARES says, a shift of advantages to 1e-12 deviations, a change in `diff` to 1e-14 of its two values, and an
interval without width may be there or not.  A warning counts as a difference.  Exits with 1 where anything differs.
"""

import argparse
import contextlib
import gzip
import io
import json
import math
import re
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from odd_dumps import Dump, odd_dump

from rlcorr_cli.commands import main as command_line
from rlcorr_cli.plans.plan import STATISTICS, Plan
from rlcorr_cli.plans.presets import PRESETS

ALIKE = 1e-9
FAULT = 70
"""The exit status of a command that has failed by a fault of ours."""
SCOPES = ("token", "seq_sum", "seq_mean", "seq_max", "seq_min")
CONFIG = "mismatch.yaml"
PROFILES = {
    "verl-mismatch": (),
    "verl-0.6": ("token_is", "seq_is", "seq_is_rs", "seq_mis", "geo_rs"),
    **dict.fromkeys(("verl-0.7", "verl-0.8"), ("token_is", "seq_is", "decoupled_geo_rs_seq_tis")),
    "verl-0.9": ("token_is", "seq_is", "decoupled_token_icepop", "decoupled_geo_rs_seq_tis"),
    "slime": ("slime_mis", "slime_cis"),
}
"""Frameworks' own numbers -> presets that they have; the first takes CONFIG."""


def needs(plan: Plan) -> tuple[str, ...]:
    """The columns that a plan takes beside the rollout's; a decoupled one takes any trained policy."""
    bypassed = plan.mode == "bypass" or "current_log_probs" in plan.needs
    return (*plan.needs, *(("current_log_probs",) if bypassed else ()), *(("old_log_probs",) if plan.needs else ()))


def command_lines(number: int, dump: Dump, others: tuple[Dump, Dump]) -> Iterator[list[str]]:
    """What a dump is put through.  others: the same rollouts once more, and another dump."""
    draw = np.random.default_rng([number, 7])
    presets = [name for name, row in PRESETS.items() if set(needs(row.plan)) <= dump.columns]

    def chosen(values: Any) -> str:
        return str(draw.choice(list(values)))

    def sometimes(share: float, *options: str) -> list[str]:
        return list(options) if draw.random() < share else []

    def grouped() -> list[str]:
        there = [name for name in ("step", "group_id", "worker", "policy_version") if name in dump.columns]
        return sometimes(0.3, "--group-by", chosen(there)) if there else []

    def objective() -> list[str]:
        if "advantages" not in dump.columns:
            return []
        options = ["--objective", chosen(("auto", "ppo", "reinforce", "gspo", "cispo"))]
        options += sometimes(0.5, "--loss-agg", chosen(("token-mean", "seq-mean-token-sum", "seq-mean-token-mean")))
        return options if draw.random() < 0.4 else []

    def bounds(statistic: str) -> str:
        if statistic in ("ratio", "exp_abs_log_ratio"):
            return chosen(("0.9,1.1", "0.5,2", "0.999,1.001", ",1.25"))
        low = "" if STATISTICS[statistic].nonnegative else chosen(("-0.5", "-0.01", ""))
        return f"{low},{chosen(('0.5', '0.01', '0.0001'))}"

    def plan() -> list[str]:
        """A preset, or rules of one's own."""
        if draw.random() < 0.75:
            name = chosen(presets)
            weighs = PRESETS[name].plan.weighting is not None
            return ["--preset", name, *(sometimes(0.2, "--normalize", "batch") if weighs else [])]
        statistics = [str(name) for name in draw.choice(list(STATISTICS), draw.integers(1, 4), replace=False)]
        rules = [f"{name}.{chosen(SCOPES)}:{bounds(name)}" for name in statistics]
        limits = chosen(("", ":,1.5", ":0.5,:zero", ":0.5,1.5:zero"))
        weights = sometimes(0.5, "--is", chosen(("token", "sequence", "geometric")) + limits)
        weights += sometimes(0.3, "--normalize", "batch") if weights else []
        return [*(word for rule in rules for word in ("--rs", rule)), *weights, *sometimes(0.2, "--veto", "1e-4")]

    def read() -> list[str]:
        batches = "1000" if dump.n_tokens < 10_000 else "20000"
        return [dump.name, *dump.reading, *sometimes(0.2, "--batch-tokens", batches)]

    for _ in range(6):
        yield ["analyze", *read(), *plan(), *grouped(), *objective()]
    profile = chosen(PROFILES)
    config = ["--preset", chosen(PROFILES[profile])] if PROFILES[profile] else ["--plan", CONFIG]
    yield ["analyze", *read(), "--profile", profile, *config]
    yield ["compare", *read(), *grouped(), *objective(), *sometimes(0.15, "--all")]
    for _ in range(2):
        statistic = chosen(STATISTICS)
        target = ("--target-keep", chosen((0.5, 0.9, 0.99))) if draw.random() < 0.5 else ("--target-ess", "0.5")
        weights = [
            "--is",
            chosen(("token", "sequence", "geometric")),
            "--vary",
            chosen(("is.high", "is.high", "is.low")),
        ]
        swept = weights if draw.random() < 0.3 else ["--vary", f"{statistic}.{chosen(SCOPES)}"]
        yield ["sweep", *read(), *swept, *sometimes(0.6, *target)]
    diffed = [others[0].name, *grouped()] if draw.random() < 0.6 else [others[1].name]
    yield ["diff", dump.name, *diffed, "--on-bad-row", "skip", "--all", *sometimes(0.3, "--min-effect", "0")]
    yield ["diagnose", *read(), *grouped()]
    yield ["inspect", *read(), *plan(), "--worst", "3"]
    suffix = dump.name.partition(".")[2]
    coefficients = sometimes(0.6, "--coef", chosen(("raw", "normalized")), "--objective", "ppo")
    coefficients = coefficients if "advantages" in dump.columns else []
    written = ["--rejected", chosen(("drop", "keep", "keep"))]
    written = written if coefficients or draw.random() < 0.9 else ["--resample", "20"]
    yield ["filter", *read(), *plan(), *coefficients, *written, "-o", f"written.{suffix}"]
    if draw.random() < 0.15:
        yield ["plot", *read(), *plan(), "-o", "written.svg"]


def play(line: list[str], device: str, folder: Path) -> dict[str, Any]:
    """Exit status, JSON, standard error, warnings and, of what is written, columns and numbers."""
    out, err = io.StringIO(), io.StringIO()
    with (
        warnings.catch_warnings(record=True) as warned,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        warnings.simplefilter("always")
        status = command_line.run(
            [*line, "--device", device, "--engine", "threads", "--workers", "1", "--quiet", "--json"]
        )
    found: dict[str, Any] = {"status": status, "json": json.loads(out.getvalue() or "null"), "err": err.getvalue()}
    found["warnings"] = sorted({f"{each.filename}:{each.lineno}: {each.message}" for each in warned})
    if line[0] == "filter" and status == 0:
        found["json"].get("output", {}).pop("written", None)  # its bytes, which the last digit of a weight may change
    for path in folder.glob("written.*"):
        if status == 0:
            found["picture" if path.suffix == ".svg" else "written"] = contents(path)
        path.unlink()
    return found


def contents(path: Path) -> Any:
    """A data set by columns, or the words and numbers of a picture."""
    if path.suffix == ".svg":
        text = re.sub(r"\b[a-z][0-9a-f]{10}\b", "", path.read_text())  # names made of a hash of numbers
        return [as_number(word) for word in re.split(r"[\s\",();:]+", text)]
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pydict()
    return [json.loads(line) for line in path.read_text().splitlines()]


def as_number(word: str) -> str | float:
    try:
        return float(word)
    except ValueError:
        return word


IN_SQUARES = 1e-14
"""A standard deviation is the root of a mean square less a squared mean, and most standard errors are made alike.

Where weights differ from 1 by 1e-8, float64 holds no digit of their variance.  So these numbers may differ as far as
their squares differ by this share of the squared mean, and of 1, in which `advantage_shift` and `shift` are told.
"""
NUMBER = re.compile(r"\d+\.\d+(?:e[-+]?\d+)?")
PIXELS = 2e-6
"""Pictures have six decimals."""


@dataclass
class Counts:
    """What was compared.

    no_intervals: those that one result alone has, and whose ends only rounding tells apart.  spreads: standard
    deviations and errors that are not the same to 1e-9 of themselves.
    """

    commands: Counter[str] = field(default_factory=Counter)
    presets: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    numbers: int = 0
    words: int = 0
    furthest: float = 0.0
    different: int = 0
    no_intervals: int = 0
    spreads: int = 0

    def add(self, line: list[str], result: Any) -> None:
        """One command was played."""
        self.commands[line[0]] += 1
        self.refused += result["status"] not in (0, 1)
        if "--preset" in line:
            self.presets[line[line.index("--preset") + 1]] += 1


def differences(whole: tuple[Any, Any], counts: Counts) -> Iterator[str]:
    """Each place where two results differ."""

    def among(a: Any, b: Any, path: str, rounding: float = 0.0) -> Iterator[str]:
        if isinstance(a, dict) and isinstance(b, dict):
            if "smallest" in a:  # a change in `diff`
                rounding = 1e-14 * max(abs(a["a"] or 0.0), abs(a["b"] or 0.0))
            for name in a | b:
                if name in a and name in b:
                    yield from among(a[name], b[name], f"{path}/{name}", rounding)
                elif path.endswith("/intervals") and is_rounding(a.get(name) or b[name]):
                    counts.no_intervals += 1
                else:
                    yield f"{path}/{name} only in {'the first' if name in a else 'the second'}"
        elif isinstance(a, list) and isinstance(b, list):
            if len(a) != len(b):
                yield f"{path} has {len(a)} and {len(b)} values"
            for i, (one, other) in enumerate(zip(a, b, strict=False)):
                yield from among(one, other, f"{path}/{i}")
        elif is_number(a) and is_number(b):
            counts.numbers += 1
            if a == b or (math.isnan(a) and math.isnan(b)):
                return
            apart, size = abs(a - b), max(abs(a), abs(b))
            if apart <= ALIKE * size < math.inf:
                counts.furthest = max(counts.furthest, apart / size)
            elif spread := next((name for name in path.split("/") if name.endswith(("_std", "_se"))), None):
                counts.spreads += 1
                mean = 1.0 if spread.endswith("_se") else largest(whole, spread.removesuffix("_std") + "_mean")
                if not abs(a * a - b * b) <= IN_SQUARES * mean**2:
                    yield f"{path}: {a!r} and {b!r}, {apart / size:.2g} of it"
            else:
                allowed = 1e-12 if path.endswith("shift") else rounding
                if not apart <= (PIXELS if path.startswith("/picture") else allowed):  # which NaN is not
                    yield f"{path}: {a!r} and {b!r}, {apart / size:.2g} of it"
        elif isinstance(a, str) and isinstance(b, str):
            counts.words += 1
            pairs = [NUMBER.findall(a), NUMBER.findall(b)]
            alike = len(pairs[0]) == len(pairs[1]) and all(
                math.isclose(float(x), float(y), rel_tol=ALIKE) for x, y in zip(*pairs, strict=True)
            )
            if not alike or NUMBER.sub("", a) != NUMBER.sub("", b):
                yield f"{path}: {a!r} and {b!r}"
        elif a is not b:
            yield f"{path}: {a!r} and {b!r}"

    yield from among(*whole, "")


def largest(value: Any, name: str, *, inside: bool = False) -> float:
    """The largest absolute number anywhere under a name."""
    if isinstance(value, dict):
        return max((largest(each, name, inside=inside or key == name) for key, each in value.items()), default=0.0)
    if isinstance(value, list | tuple):
        return max((largest(each, name, inside=inside) for each in value), default=0.0)
    return abs(value) if inside and is_number(value) else 0.0


def is_rounding(ends: Any) -> bool:
    """Whether the ends of an interval are the same to 1e-12 of themselves."""
    return abs(ends[1] - ends[0]) <= 1e-12 * max(map(abs, ends))


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def played(numbers: range, devices: list[str], only: str | None) -> Iterator[tuple[list[str], list[Any]]]:
    """Each command with what it gives on each device."""
    for number in numbers:
        with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
            folder = Path(name)
            (folder / CONFIG).write_text("rollout_is_threshold: 2.0\n")
            dump, again = odd_dump(number, folder), odd_dump(number, folder, again=True)
            for line in command_lines(number, dump, (again, odd_dump(number + 1, folder))):
                if only in (None, line[0]):
                    yield line, [play(line, device, folder) for device in devices]


def main() -> int:
    """Play all of it; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path, help="write here what this checkout gives")
    parser.add_argument("--against", type=Path, help="compare with what was recorded")
    parser.add_argument("--devices", default="cpu", help="one, or two that are compared")
    parser.add_argument("--dumps", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", help="this command alone")
    args = parser.parse_args()
    counts, began = Counts(), time.monotonic()
    with contextlib.ExitStack() as files:
        recorded = files.enter_context(gzip.open(args.against, "rt")) if args.against else None
        record = files.enter_context(gzip.open(args.record, "wt", 3)) if args.record else None
        for line, results in played(range(args.first, args.first + args.dumps), args.devices.split(","), args.only):
            counts.add(line, results[0])
            found = [warning for result in results for warning in result.pop("warnings")]
            found += ["\n".join(result["err"].splitlines()[-5:]) for result in results if result["status"] == FAULT]
            if record:
                record.write(json.dumps([line, results[0]]) + "\n")
            if recorded:
                before = next(result for of, result in map(json.loads, recorded) if of == line)
                results = [before, json.loads(json.dumps(results[0]))]
            found += differences((results[0], results[-1]), counts)
            if found:
                counts.different += 1
                print(" ".join(line), *found[:8], f"{len(found)} in all", sep="\n    ", flush=True)
    print(
        f"{args.dumps} dumps, {counts.commands.total()} commands {dict(counts.commands)}, {counts.refused} refused, "
        f"{len(counts.presets)} presets at least {min(counts.presets.values(), default=0)} times alone; "
        f"{counts.numbers} numbers and {counts.words} words compared, {counts.different} commands differ; "
        f"numbers taken for the same are up to {counts.furthest:.2g} apart, {counts.spreads} spreads further; "
        f"{counts.no_intervals} intervals of no width in one of two alone; {time.monotonic() - began:.0f} s"
    )
    return min(counts.different, 1)


if __name__ == "__main__":
    sys.exit(main())
