"""The figures: how each is measured.

Every figure is a ratio of things timed in one run, in rounds that interleave them, so that a busy machine slows all
of them.  One of time by the clock or of memory is the median of its rounds' ratios.  One of CPU time is the ratio of
the least that each took, for what else a machine does only adds.  Net of start-up: less what the same command takes on
ten rows.
"""

import json
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
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
DUMPS = {
    "tiny": ("10",),
    "tiny-honest": ("10", "--honest"),
    "64 rows": ("64",),
    "check": ("128",),
    "W1": ("20000",),
    "W1h": ("20000", "--honest"),
    "W2": ("200000",),
}
"""Name -> what make_dump.py is given: sequences first."""
REJECTION = ("--rs", "ratio.seq_mean:0.99815,1.00186")
"""Keeps nine rows of W1h in ten."""
COMPARED = (
    *("decoupled_token_is", "decoupled_seq_is", "decoupled_seq_is_rs", "seq_mis", "decoupled_geo_rs"),
    *("token_is_token_rs", "token_rs", "seq_rs", "geo_is", "decoupled_token_icepop", "decoupled_geo_rs_seq_tis"),
    *("decoupled_geo_rs_token_tis", "decoupled_k3_rs", "decoupled_k3_rs_seq_tis", "decoupled_k3_rs_token_tis"),
    *("slime_tis", "slime_icepop", "slime_mis", "slime_cis", "trl_token_truncate"),
)
"""20 presets."""
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
    """value: what is held against the figure to reach.  ends: the least and the largest of the rounds, where there are
    several.  details: lines below."""

    value: float
    ends: tuple[float, float] | None
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
            sequences, *options = DUMPS[name]
            say(f"writing {path} ({int(sequences):,} sequences)")
            cost(script("make_dump.py", sequences, path, *options))
        return path

    def lines(self, name: str, rows: int) -> Path:
        """The first rows of a dump as JSON lines, made once, then kept."""
        path = self.directory / f"{name}-{rows}.jsonl"
        if not path.exists():
            say(f"writing {path}")
            first = next(pq.ParquetFile(self.dump(name)).iter_batches(rows)).to_pylist()
            path.write_text("".join(json.dumps(row) + "\n" for row in first))
        return path

    def analyze(self, name: str, workers: int | None = None) -> Cost:
        """One run of the command the figures are about.  workers: threads, where not as many as `auto` takes."""
        by = () if workers is None else ("--engine", "threads", "--workers", str(workers))
        return cost([RLCORR, "analyze", self.dump(name), "--preset", PRESET, "--json", *by])

    def wall(self, name: str, workers: int | None = None) -> Callable[[], float]:
        """A sampler of analyze's wall time."""
        return lambda: self.analyze(name, workers).wall

    def cpu(self, name: str, workers: int | None = None) -> Callable[[], float]:
        """A sampler of analyze's CPU time."""
        return lambda: self.analyze(name, workers).cpu

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
    """Seconds of analyze on W1 by two workers, net of start-up, over those of decode."""
    dump = bench.dump("W1")
    works = {
        "decode": lambda: decode(dump, bench.columns)["seconds"],
        "tiny": bench.wall("tiny", 2),
        "full": bench.wall("W1", 2),
    }
    decode(dump, bench.columns)  # into the page cache
    samples = interleave(works, max(7, bench.rounds))
    columns = "decoded: " + ", ".join(bench.columns)
    return figure(samples, lambda t: (t["full"] - t["tiny"]) / t["decode"], "s", columns)


def p1c(bench: Bench) -> Figure:
    """CPU time of analyze on W1 by one worker, net of start-up, over that of decode by one thread."""
    dump = bench.dump("W1")
    works = {
        "decode": lambda: decode(dump, bench.columns, "--one-thread")["cpu"],
        "tiny": bench.cpu("tiny", 1),
        "full": bench.cpu("W1", 1),
    }
    return cpu_figure(interleave(works, bench.rounds), lambda t: (t["full"] - t["tiny"]) / t["decode"])


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
    """Peak memory of analyze on a million rows of one token."""
    command = [RLCORR, "analyze", _rectangle(bench, 1_000_000, 1), "--preset", PRESET, "--json"]
    return figure(interleave({"rows": lambda: cost(command).peak}, bench.rounds), lambda t: t["rows"], "MB")


def _rectangle(bench: Bench, n_rows: int, n_tokens: int) -> Path:
    """A dump of rows of one length, in row groups of 20,000, made once, then kept."""
    path = bench.directory / f"{n_rows}x{n_tokens}.parquet"
    if not path.exists():
        say(f"writing {path}")
        rng = np.random.default_rng(0)
        rollout = -rng.exponential(1.0, n_rows * n_tokens).astype(np.float32)
        train = np.minimum(rollout + rng.normal(0.0, 0.02, len(rollout)).astype(np.float32), 0)
        offsets = np.arange(n_rows + 1, dtype=np.int32) * np.int32(n_tokens)
        columns = {"rollout_log_probs": rollout, "old_log_probs": train}
        table = pa.table({name: pa.ListArray.from_arrays(offsets, values) for name, values in columns.items()})
        pq.write_table(table, path, row_group_size=20_000)
    return path


def by_torch(bench: Bench) -> Figure:
    """analyze on W1 by torch on a CPU over the same by NumPy, both whole; a detail gives the peak memory of both."""
    command = [RLCORR, "analyze", bench.dump("W1"), "--preset", PRESET, "--json", "--device"]
    runs = interleave({name: partial(cost, [*command, name]) for name in ("cpu", "torch")}, bench.rounds)
    peaks = ", ".join(
        f"{name} {statistics.median(run.peak for run in of_name):.0f} MB" for name, of_name in runs.items()
    )
    samples = {name: [run.wall for run in of_name] for name, of_name in runs.items()}
    return figure(samples, lambda t: t["torch"] / t["cpu"], "s", peaks)


def _filtering(bench: Bench, name: str, *more: str) -> Callable[[], Cost]:
    """What a run of filter on one dump costs, when called."""
    out = bench.directory / "filtered.parquet"
    command = [RLCORR, "filter", bench.dump(name), *REJECTION, "-o", out, "--overwrite", *more]
    return partial(cost, command)


def p5(bench: Bench, rejected: str) -> Figure:
    """CPU time of filter on W1h by one worker, net of start-up, over that of copying the file by one thread."""
    how = ("--rejected", rejected, "--engine", "threads", "--workers", "1")
    tiny, full = _filtering(bench, "tiny-honest", *how, "--force"), _filtering(bench, "W1h", *how)
    works = {
        "copy": lambda: answer("copy_dump.py", bench.dump("W1h"), bench.directory / "copy.parquet")["cpu"],
        "tiny": lambda: tiny().cpu,
        "full": lambda: full().cpu,
    }
    return cpu_figure(interleave(works, bench.rounds), lambda t: (t["full"] - t["tiny"]) / t["copy"])


def p6(bench: Bench) -> Figure:
    """CPU time of analyze on the first 2,000 rows of W1 as JSON lines by one worker, net of start-up, over that of
    parsing them to arrays by msgspec."""
    lines, tiny = bench.lines("W1", 2_000), bench.lines("tiny", 10)
    command = [RLCORR, "analyze", "--preset", PRESET, "--json", "--engine", "threads", "--workers", "1"]
    works = {
        "parse": lambda: answer("json_arrays.py", lines)["cpu"],
        "tiny": lambda: cost([*command, tiny]).cpu,
        "full": lambda: cost([*command, lines]).cpu,
    }
    return cpu_figure(interleave(works, bench.rounds), lambda t: (t["full"] - t["tiny"]) / t["parse"])


def p5m(bench: Bench) -> Figure:
    """Peak memory of filter on W1h that keeps every row."""
    full = _filtering(bench, "W1h", "--rejected", "keep")
    return figure(interleave({"W1h": lambda: full().peak}, min(bench.rounds, 3)), lambda t: t["W1h"], "MB")


def plot(bench: Bench) -> Figure:
    """Seconds of plot on W1 over those of analyze, both whole."""
    picture = bench.directory / "plot.png"
    works = {
        "analyze": bench.wall("W1"),
        "plot": partial(wall, RLCORR, "plot", bench.dump("W1"), "-o", picture, "--overwrite"),
    }
    return figure(interleave(works, bench.rounds), lambda t: t["plot"] / t["analyze"], "s")


def p7(bench: Bench) -> Figure:
    """CPU time of compare of 20 presets on W1 over that of analyze of one, both net of start-up."""
    presets = [word for name in COMPARED for word in ("--preset", name)]

    def comparing(name: str) -> Callable[[], float]:
        return lambda: cost([RLCORR, "compare", bench.dump(name), *presets, "--json"]).cpu

    works = {
        "analyze tiny": bench.cpu("tiny"),
        "compare tiny": comparing("tiny"),
        "analyze": bench.cpu("W1"),
        "compare": comparing("W1"),
    }
    samples = interleave(works, bench.rounds)
    return cpu_figure(samples, lambda t: (t["compare"] - t["compare tiny"]) / (t["analyze"] - t["analyze tiny"]))


def p17(bench: Bench) -> Figure:
    """CPU time of analyze on W1, net of start-up, over the same without looking for the cause of the gap."""
    works = {
        f"{name} {dump}": lambda command=command, dump=dump: (
            cost([*command, "analyze", bench.dump(dump), "--preset", PRESET, "--json"]).cpu
        )
        for name, command in {"with": [RLCORR], "without": [sys.executable, "-c", WITHOUT_CAUSE]}.items()
        for dump in ("tiny", "W1")
    }
    samples = interleave(works, bench.rounds)
    return cpu_figure(samples, lambda t: (t["with W1"] - t["with tiny"]) / (t["without W1"] - t["without tiny"]))


def p16(bench: Bench) -> Figure:
    """CPU time of diagnose on W1, net of start-up, over that of analyze."""
    works = {
        f"{command} {dump}": lambda command=command, dump=dump: cost([RLCORR, command, bench.dump(dump), "--json"]).cpu
        for command in ("analyze", "diagnose")
        for dump in ("tiny", "W1")
    }
    samples = interleave(works, bench.rounds)
    return cpu_figure(
        samples, lambda t: (t["diagnose W1"] - t["diagnose tiny"]) / (t["analyze W1"] - t["analyze tiny"])
    )


def peaks(bench: Bench) -> Figure:
    """The largest growth of peak memory from W1 to W2 of filter that keeps all, plot, compare and diagnose."""
    commands: dict[str, Callable[[str], list[str | Path]]] = {
        "filter": lambda name: [
            *(RLCORR, "filter", bench.dump(name), *REJECTION, "--force", "--rejected", "keep", "--overwrite"),
            *("-o", bench.directory / "filtered.parquet"),
        ],
        "plot": lambda name: [RLCORR, "plot", bench.dump(name), "-o", bench.directory / "plot.png", "--overwrite"],
        "compare": lambda name: [RLCORR, "compare", bench.dump(name), "--json"],
        "diagnose": lambda name: [RLCORR, "diagnose", bench.dump(name), "--json"],
    }
    works = {
        f"{command} {name}": lambda make=make, name=name: cost(make(name)).peak
        for command, make in commands.items()
        for name in ("W1", "W2")
    }
    samples = interleave(works, min(bench.rounds, 2))
    return figure(samples, lambda t: max(t[f"{command} W2"] / t[f"{command} W1"] for command in commands), "MB")


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
    return cpu_figure(times, lambda t: (t["W2"] - t["tiny"]) / (t["W1"] - t["tiny"]))


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
    what they cannot do without, with one thread of BLAS as they have, and ends."""
    dump, out = bench.dump("tiny"), bench.directory / "filtered.parquet"
    imports = [sys.executable, "-c", "import typer, numpy, pyarrow.parquet"]
    filtering = [RLCORR, "filter", dump, "--preset", "token_is", "-o", out, "--overwrite"]
    works = {
        "imports": lambda: cost(imports, variables={"OPENBLAS_NUM_THREADS": "1"}).cpu,
        "analyze": lambda: cost([RLCORR, "analyze", dump]).cpu,
        "filter": lambda: cost(filtering).cpu,
    }
    interleave(works, 1)  # byte code and page cache
    samples = interleave(works, max(7, bench.rounds))
    found = cpu_figure(samples, lambda t: max(t["analyze"], t["filter"]) / t["imports"])
    each = (f"{name} {min(samples[name]) / min(samples['imports']):.2f}" for name in ("analyze", "filter"))
    return replace(found, details=(*found.details, f"each: {', '.join(each)}"))


def p20(bench: Bench, dump: Path) -> Figure:
    """CPU time of analyze on a small dump over that on ten rows, both whole."""
    works = {
        name: lambda path=path: cost([RLCORR, "analyze", path]).cpu
        for name, path in {"tiny": bench.dump("tiny"), "small": dump}.items()
    }
    interleave(works, 1)
    return cpu_figure(interleave(works, max(7, bench.rounds)), lambda t: t["small"] / t["tiny"])


def p20a(bench: Bench) -> Figure:
    """64 rows like W1's."""
    return p20(bench, bench.dump("64 rows"))


def p20b(bench: Bench) -> Figure:
    """1,000 rows of 100 tokens."""
    return p20(bench, _rectangle(bench, 1_000, 100))


def wall(*command: str | Path) -> float:
    """Seconds of a command, start-up and all."""
    return cost(command).wall


def decode(dump: Path, columns: Sequence[str], *how: str) -> dict[str, float]:
    """What reading the columns and doing nothing takes: seconds, and cpu."""
    return answer("decode.py", dump, *columns, *how)


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
    """The median of the rounds' values, with the medians and the ranges of what was timed as details."""
    rounds = [formula(dict(zip(samples, values, strict=True))) for values in zip(*samples.values(), strict=True)]
    ends = (min(rounds), max(rounds)) if len(rounds) > 1 else None
    return Figure(statistics.median(rounds), ends, (*_timed(samples, unit), *details))


def cpu_figure(samples: Samples, formula: Callable[[Picked], float]) -> Figure:
    """The formula of the least CPU seconds of each."""
    of_rounds = figure(samples, formula, "s of CPU")
    return replace(of_rounds, value=formula({name: min(values) for name, values in samples.items()}))


def _timed(samples: Samples, unit: str) -> list[str]:
    return [
        f"{name}: median {statistics.median(values):.3f} {unit}, {min(values):.3f} to {max(values):.3f} ({len(values)})"
        for name, values in samples.items()
    ]


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


def default_directory() -> Path:
    """The same for every run, so that dumps are made once."""
    return Path(tempfile.gettempdir()) / "rlcorr-benchmarks"
