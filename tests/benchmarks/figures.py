"""The figures: how each is measured.

Every figure is a ratio of things timed in one run, in rounds that interleave them, so that a busy machine slows all
of them.  It is taken twice, from the medians of the rounds and from the least of each: on a shared machine the least
says more about the code.
"""

import json
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from child import ChildFailed, Cost, answer, cost, script

RLCORR = Path(sys.executable).with_name("rlcorr")
PRESET = "decoupled_token_is"
PEER = "verl==0.9.1"
PEER_PROFILE = "verl-0.9"
PEER_METRICS = ("kl", "k3_kl", "training_ppl", "chi2_token", "rollout_is_mean", "rollout_is_std", "rollout_is_seq_mean")
DUMPS = {"tiny": 10, "check": 128, "W1": 20_000, "W2": 200_000, "groups": 100_000}
"""Name -> sequences."""
SHORTER = {"groups": "5.0"}
"""Name -> the mean log of their lengths: as many tokens as W1 has."""
WITHOUT_CAUSE = """
import sys
from rlcorr_cli.commands import main
from rlcorr_cli.runs import analyze
analyze.sampling_of = lambda *_: None
sys.exit(main.run(sys.argv[1:]))
"""
"""rlcorr, but for the sample of rows in which analyze looks for a cause."""
BARE_APP = "import typer\ndef main(name: str): pass\ntyper.run(main)"
"""What no typer command with a parameter can undercut."""

T = TypeVar("T")
Samples = dict[str, list[float]]
Picked = dict[str, float]


class NotHere(Exception):
    """A figure that this machine cannot give, and why."""


@dataclass(frozen=True)
class Figure:
    """value: from the medians.  least: from the least of each, where there are rounds.  details: lines below."""

    value: float
    least: float | None
    details: tuple[str, ...]


@dataclass(frozen=True)
class Bench:
    """Where dumps and peers are kept, how often to repeat, and P11's device and tokens."""

    directory: Path
    rounds: int
    device: str
    tokens: int

    def dump(self, name: str) -> Path:
        """Made once, then kept."""
        path = self.directory / f"{name}.parquet"
        if not path.exists():
            say(f"writing {path} ({DUMPS[name]:,} sequences)")
            shorter = ("--mean-log-length", SHORTER[name]) if name in SHORTER else ()
            cost(script("make_dump.py", str(DUMPS[name]), path, *shorter))
        return path

    def analyze(self, name: str) -> Cost:
        """One run of the command the figures are about."""
        return cost([RLCORR, "analyze", self.dump(name), "--preset", PRESET, "--json"])

    def wall(self, name: str) -> Callable[[], float]:
        """A sampler of analyze's wall time."""
        return lambda: self.analyze(name).wall

    @cached_property
    def columns(self) -> list[str]:
        """The columns that analyze says it reads."""
        report = json.loads(self.analyze("tiny").printed)
        return list(report["inputs"][0]["columns"].values())

    @cached_property
    def growth(self) -> dict[str, list[Cost]]:
        """Costs of tiny, W1 and W2, shared by P3 and P9."""
        return interleave({name: partial(self.analyze, name) for name in ("tiny", "W1", "W2")}, self.rounds)

    @cached_property
    def peer_site(self) -> Path:
        """The directory verl is installed in, without what it depends on."""
        site = self.directory / PEER.replace("==", "-")
        if not (site / "verl").is_dir():
            say(f"installing {PEER} into {site}")
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, PEER]
            try:
                cost(pip)
            except ChildFailed as error:
                raise NotHere(f"{PEER} cannot be installed ({str(error).splitlines()[-1]})") from error
        return site


def p1(bench: Bench) -> Figure:
    """analyze on W1, net of start-up, over decode."""
    dump = bench.dump("W1")
    works = {"decode": lambda: decode(dump, bench.columns), "tiny": bench.wall("tiny"), "full": bench.wall("W1")}
    decode(dump, bench.columns)  # into the page cache
    samples = interleave(works, bench.rounds)
    columns = "decoded: " + ", ".join(bench.columns)
    return figure(samples, lambda t: (t["full"] - t["tiny"]) / t["decode"], "s", columns)


def p2(bench: Bench) -> Figure:
    """verl's helper over analyze on W1, net of start-up."""
    agreed = check_peer(bench)
    works = {"verl": lambda: peer(bench, "W1")["seconds"], "tiny": bench.wall("tiny"), "full": bench.wall("W1")}
    samples = interleave(works, max(3, bench.rounds // 2))
    return figure(samples, lambda t: t["verl"] / (t["full"] - t["tiny"]), "s", agreed)


def p3(bench: Bench) -> Figure:
    """Peak memory on W2 over that on W1."""
    peaks = {name: [one.peak for one in bench.growth[name]] for name in ("W1", "W2")}
    return figure(peaks, lambda t: t["W2"] / t["W1"], "MB")


def p4(bench: Bench) -> Figure:
    """Peak memory on W1."""
    return figure(interleave({"W1": lambda: bench.analyze("W1").peak}, bench.rounds), lambda t: t["W1"], "MB")


def rows(bench: Bench) -> Figure:
    """Peak memory of analyze on a million rows of one token, in row groups of 20,000."""
    path = bench.directory / "rows.parquet"
    if not path.exists():
        say(f"writing {path}")
        rng = np.random.default_rng(0)
        rollout = -rng.exponential(1.0, 1_000_000).astype(np.float32)
        train = np.minimum(rollout + rng.normal(0.0, 0.02, len(rollout)).astype(np.float32), 0)
        offsets = np.arange(len(rollout) + 1, dtype=np.int32)
        columns = {"rollout_log_probs": rollout, "old_log_probs": train}
        table = pa.table({name: pa.ListArray.from_arrays(offsets, values) for name, values in columns.items()})
        pq.write_table(table, path, row_group_size=20_000)
    command = [RLCORR, "analyze", path, "--preset", PRESET, "--json"]
    return figure(interleave({"rows": lambda: cost(command).peak}, bench.rounds), lambda t: t["rows"], "MB")


def by_torch(bench: Bench) -> Figure:
    """analyze on W1 by torch on a CPU over the same by NumPy, both whole; a detail gives the peak memory of both."""
    command = [RLCORR, "analyze", bench.dump("W1"), "--preset", PRESET, "--json", "--device"]
    runs = interleave({name: partial(cost, [*command, name]) for name in ("cpu", "torch")}, bench.rounds)
    peaks = ", ".join(
        f"{name} {statistics.median(run.peak for run in of_name):.0f} MB" for name, of_name in runs.items()
    )
    samples = {name: [run.wall for run in of_name] for name, of_name in runs.items()}
    return figure(samples, lambda t: t["torch"] / t["cpu"], "s", peaks)


def _filtering(bench: Bench, what: str, name: str, *more: str) -> Callable[[], float]:
    """What a run of filter on one dump costs (wall, peak), when called."""
    out = bench.directory / "filtered.parquet"
    command = [RLCORR, "filter", bench.dump(name), "--preset", "geo_rs", "-o", out, "--overwrite", *more]
    return lambda: getattr(cost(command), what)


def p5(bench: Bench) -> Figure:
    """filter on W1, net of start-up, over copying the file; a detail says what keeping every row costs."""
    filtering = partial(_filtering, bench, "wall")
    keep = ("--rejected", "keep")
    works = {
        "copy": lambda: answer("copy_dump.py", bench.dump("W1"), bench.directory / "copy.parquet")["seconds"],
        "tiny": filtering("tiny", *keep),
        "full": filtering("W1"),
        "keep": filtering("W1", *keep),
    }
    samples = interleave(works, bench.rounds)
    middle = {name: statistics.median(values) for name, values in samples.items()}
    kept = f"with --rejected keep: {(middle['keep'] - middle['tiny']) / middle['copy']:.2f}"
    return figure(samples, lambda t: (t["full"] - t["tiny"]) / t["copy"], "s", kept)


def p5m(bench: Bench) -> Figure:
    """Peak memory of filter that keeps every row, on W2 over that on W1; a detail says without the rejected ones."""
    filtering = partial(_filtering, bench, "peak")
    keep = ("--rejected", "keep")
    works = {
        f"{name} {how[-1]}": filtering(name, *how) for name in ("W1", "W2") for how in (keep, ("--rejected", "drop"))
    }
    samples = interleave(works, bench.rounds)
    middle = {name: statistics.median(values) for name, values in samples.items()}
    dropped = f"with --rejected drop: {middle['W2 drop'] / middle['W1 drop']:.2f}"
    return figure(samples, lambda t: t["W2 keep"] / t["W1 keep"], "MB", dropped)


def plot(bench: Bench) -> Figure:
    """plot on W1 over analyze on it, both whole; a detail gives its peak memory on W2 over W1."""
    picture = bench.directory / "plot.png"

    def costing(command: str, name: str, *more: object) -> Callable[[], Cost]:
        return lambda: cost([RLCORR, command, bench.dump(name), "--preset", "token_is", *map(str, more)])

    works = {"analyze": costing("analyze", "W1"), "plot": costing("plot", "W1", "-o", picture)}
    found = interleave(works, bench.rounds)
    peak = statistics.median(one.peak for one in found["plot"])
    grown = costing("plot", "W2", "-o", picture)().peak / peak
    samples = {name: [one.wall for one in costs] for name, costs in found.items()}
    return figure(samples, lambda t: t["plot"] / t["analyze"], "s", f"peak memory {peak:.0f} MB, W2 / W1 {grown:.2f}")


def _comparing(bench: Bench, name: str) -> Callable[[], Cost]:
    """compare of the plans that it takes by itself, when called."""
    return partial(cost, [RLCORR, "compare", bench.dump(name), "--json"])


def p7(bench: Bench) -> Figure:
    """compare of all plans that it takes by itself on W1 over analyze of one, both whole; details say how many plans
    there were, and the same net of start-up."""
    works = {
        "analyze tiny": bench.wall("tiny"),
        "compare tiny": lambda: _comparing(bench, "tiny")().wall,
        "analyze": bench.wall("W1"),
        "compare": lambda: _comparing(bench, "W1")().wall,
    }
    n_plans = len(json.loads(_comparing(bench, "tiny")().printed)["plans"])
    samples = interleave(works, bench.rounds)
    middle = {name: statistics.median(values) for name, values in samples.items()}
    net = (middle["compare"] - middle["compare tiny"]) / (middle["analyze"] - middle["analyze tiny"])
    return figure(samples, lambda t: t["compare"] / t["analyze"], "s", f"{n_plans} plans; net of start-up: {net:.2f}")


def p7m(bench: Bench) -> Figure:
    """Peak memory of compare on W2 over that on W1."""
    works = {name: lambda name=name: _comparing(bench, name)().peak for name in ("W1", "W2")}
    return figure(interleave(works, min(bench.rounds, 2)), lambda t: t["W2"] / t["W1"], "MB")


def cause(bench: Bench) -> Figure:
    """CPU time of analyze on W1, net of start-up, over the same without looking for the cause of the gap."""
    works = {
        f"{name} {dump}": lambda command=command, dump=dump: (
            cost([*command, "analyze", bench.dump(dump), "--preset", PRESET, "--json"]).cpu
        )
        for name, command in {"with": [RLCORR], "without": [sys.executable, "-c", WITHOUT_CAUSE]}.items()
        for dump in ("tiny", "W1")
    }
    samples = interleave(works, bench.rounds)
    return figure(samples, lambda t: (t["with W1"] - t["with tiny"]) / (t["without W1"] - t["without tiny"]), "s")


def diagnose(bench: Bench) -> Figure:
    """CPU time of diagnose on W1, net of start-up, over that of analyze."""
    works = {
        f"{command} {dump}": lambda command=command, dump=dump: cost([RLCORR, command, bench.dump(dump), "--json"]).cpu
        for command in ("analyze", "diagnose")
        for dump in ("tiny", "W1")
    }
    samples = interleave(works, bench.rounds)
    return figure(
        samples, lambda t: (t["diagnose W1"] - t["diagnose tiny"]) / (t["analyze W1"] - t["analyze tiny"]), "s"
    )


def diagnose_memory(bench: Bench) -> Figure:
    """Peak memory of diagnose on W2 over that on W1."""
    works = {
        name: lambda name=name: cost([RLCORR, "diagnose", bench.dump(name), "--json"]).peak for name in ("W1", "W2")
    }
    return figure(interleave(works, min(bench.rounds, 2)), lambda t: t["W2"] / t["W1"], "MB")


def sweep(bench: Bench) -> Figure:
    """The curve of a geometric rejection on W1 over analyze on it, both whole; a detail gives it with a target."""
    command = [RLCORR, "sweep", bench.dump("W1"), "--vary", "ratio.seq_mean", "--json"]
    works = {
        "analyze": bench.wall("W1"),
        "curve": partial(wall, *command),
        "target": partial(wall, *command, "--target-keep", "0.95"),
    }
    samples = interleave(works, bench.rounds)
    middle = {name: statistics.median(values) for name, values in samples.items()}
    target = f"with --target-keep, which reads the dump again: {middle['target'] / middle['analyze']:.2f}"
    return figure(samples, lambda t: t["curve"] / t["analyze"], "s", target)


def diff(bench: Bench) -> Figure:
    """diff of W1 with itself over two analyses of it, all whole."""
    dump = bench.dump("W1")
    works = {"analyze": bench.wall("W1"), "diff": partial(wall, RLCORR, "diff", dump, dump, "--json")}
    return figure(interleave(works, bench.rounds), lambda t: t["diff"] / (2 * t["analyze"]), "s")


def groups(bench: Bench) -> Figure:
    """Peak memory of analyze where each of 100,000 sequences is a group, with a rejection; details give it without one,
    and the CPU time of both."""
    command = [RLCORR, "analyze", bench.dump("groups"), "--group-by", "sample_id", "--json"]
    plans = {"plain": (), "rejection": ("--rs", "ratio.token:0.5,2")}
    works = {name: partial(cost, [*command, *plan], printed=False) for name, plan in plans.items()}
    found = interleave(works, bench.rounds)
    seconds = ", ".join(f"{name} {statistics.median(run.cpu for run in runs):.1f} s" for name, runs in found.items())
    samples = {name: [run.peak for run in runs] for name, runs in found.items()}
    return figure(samples, lambda t: t["rejection"], "MB", f"CPU: {seconds}")


def p8(bench: Bench) -> Figure:
    """The slowest light command over importing typer; details give typer's own cost of running a command, too."""
    commands = {"--help": ["--help"], "presets": ["presets"], "explain kl": ["explain", "kl"]}
    works = {name: partial(wall, RLCORR, *args) for name, args in commands.items()}
    works["import typer"] = partial(wall, sys.executable, "-c", "import typer")
    works["bare app"] = partial(wall, sys.executable, "-c", BARE_APP, "kl")
    interleave(works, 1)  # byte code and page cache
    samples = interleave(works, max(9, bench.rounds))
    middle = {name: statistics.median(values) for name, values in samples.items()}
    each = ", ".join(f"{name} {middle[name] / middle['import typer']:.2f}" for name in (*commands, "bare app"))
    return figure(samples, lambda t: max(t[name] for name in commands) / t["import typer"], "s", f"each: {each}")


def p9(bench: Bench) -> Figure:
    """CPU time on W2 over that on W1, each net of start-up."""
    times = {name: [one.cpu for one in costs] for name, costs in bench.growth.items()}
    return figure(times, lambda t: (t["W2"] - t["tiny"]) / (t["W1"] - t["tiny"]), "s of CPU")


def p11(bench: Bench) -> Figure:
    """Core compute's bytes read per second over the GPU's copy bandwidth, in percent."""
    found = answer("core.py", "--device", bench.device, "--tokens", str(bench.tokens))
    if found["device"] is None:
        raise NotHere("torch sees no CUDA device here")
    share = 100 * found["bytes"] / found["copy_bandwidth"]
    bandwidth = f"{found['device']}: copies {found['copy_bandwidth'] / 1e9:,.0f} GB/s; {found['tokens']:,} tokens"
    plain = found["seconds_without_bootstrap"]
    times = f"observe {found['seconds']:.4f} s; without the bootstrap {plain:.4f} s ({share / plain:.1f}%)"
    return Figure(share / found["seconds"], None, (bandwidth, times))


def p14(bench: Bench) -> Figure:
    """CPU time of the slower of analyze and filter on ten sequences, start to end, over that of a Python that imports
    what they cannot do without, and ends: by the least of each, for what else a machine does only adds."""
    dump, out = bench.dump("tiny"), bench.directory / "filtered.parquet"
    commands: dict[str, list[str | Path]] = {
        "imports": [sys.executable, "-c", "import typer, numpy, pyarrow.parquet"],
        "analyze": [RLCORR, "analyze", dump],
        "filter": [RLCORR, "filter", dump, "--preset", "token_is", "-o", out, "--overwrite"],
    }
    works = {name: lambda command=command: cost(command).cpu for name, command in commands.items()}
    interleave(works, 1)  # byte code and page cache
    samples = interleave(works, max(7, bench.rounds))
    found = figure(samples, lambda t: max(t["analyze"], t["filter"]) / t["imports"], "s of CPU")
    each = (f"{name} {min(samples[name]) / min(samples['imports']):.2f}" for name in ("analyze", "filter"))
    return replace(found, value=found.least or found.value, details=(*found.details, f"each: {', '.join(each)}"))


def wall(*command: str | Path) -> float:
    """Seconds of a command, start-up and all."""
    return cost(command).wall


def decode(dump: Path, columns: Sequence[str]) -> float:
    """Seconds to read the columns and do nothing."""
    return answer("decode.py", dump, *columns)["seconds"]


def peer(bench: Bench, name: str) -> dict[str, Any]:
    """What verl's helper takes, and finds in the first batch."""
    return answer("peer_verl.py", bench.peer_site, bench.dump(name))


def check_peer(bench: Bench) -> str:
    """That both compute the same: one batch's metrics, verl in float32."""
    theirs = peer(bench, "check")["first"]
    config = bench.directory / "peer.json"
    config.write_text(json.dumps({"rollout_is": "token", "rollout_is_threshold": 2.0}))
    command = [RLCORR, "analyze", bench.dump("check"), "--profile", PEER_PROFILE, "--plan", config, "--json"]
    ours = json.loads(cost(command).printed)["metrics"]
    ours = {name.rpartition("/")[2]: value for name, value in ours.items()}
    for name in PEER_METRICS:
        if not math.isclose(ours[name], theirs[name], rel_tol=1e-4, abs_tol=1e-6):
            raise AssertionError(f"{name}: verl finds {theirs[name]}, rlcorr {ours[name]}: not the same work")
    shown = (f"{name} {theirs[name]:.6g} / {ours[name]:.6g}" for name in ("kl", "rollout_is_mean"))
    return f"same numbers on one batch, verl / rlcorr: {', '.join(shown)}; {len(PEER_METRICS)} metrics agree"


def interleave(works: dict[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Each work once a round, in turn."""
    samples: dict[str, list[T]] = {name: [] for name in works}
    for i in range(rounds):
        for name, work in works.items():
            say(f"round {i + 1} of {rounds}: {name}")
            samples[name].append(work())
    return samples


def figure(samples: Samples, formula: Callable[[Picked], float], unit: str, *details: str) -> Figure:
    """The formula of the medians and of the least, with the medians and the ranges as details."""

    def pick(how: Callable[[Iterable[float]], float]) -> float:
        return formula({name: how(values) for name, values in samples.items()})

    raw = [
        f"{name}: median {statistics.median(values):.3f} {unit}, {min(values):.3f} to {max(values):.3f} ({len(values)})"
        for name, values in samples.items()
    ]
    return Figure(pick(statistics.median), pick(min), (*raw, *details))


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


def default_directory() -> Path:
    """The same for every run, so that dumps are made once."""
    return Path(tempfile.gettempdir()) / "rlcorr-benchmarks"
