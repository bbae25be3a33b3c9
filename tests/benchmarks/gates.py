"""How often the example gates of README, `rlcorr check --help` and `rlcorr help ci` fail, by chance and with reason.

    python tests/benchmarks/gates.py [--nights 40] [--seed 1] [--lengths 200 2000 8000] [--prompts alike own]
    python tests/benchmarks/gates.py --limits 1000

A night is a dump of new prompts: 32 to 128 of 4 to 8 samples each where responses have 200 tokens on average, 32 to 64
of 2,000 tokens, 32 of 4 samples of 8,000.  Nothing changes from night to night but the prompts.  Lengths are lognormal.
Prompts that are `alike` have one law; `own` ones differ in length, in their share of unsure tokens and in the size of
the noise, by e^N(0, .4), e^N(0, .3) and e^N(0, .25).  Noise is of Student's t with 6 degrees of freedom, and grows with
surprise, as a bf16 engine's.

Each gate is the example as it is printed, its dump replaced by the night's report.  A gate with a baseline keeps its
own from night to night, and the first night, which has none, does not count.  Beside each night, and against the same
baseline, stand a night with 3 times and one with 10 times the k3_kl, which no baseline is updated from.  Printed: how
many of the nights failed.  With `--limits`: how often a night fails by each of some limits on its baseline.
"""

import argparse
import contextlib
import io
import re
import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from designs import Rows

from rlcorr_cli.api import analyze, save
from rlcorr_cli.commands import app, main as command_line
from rlcorr_cli.measure.arrays import CPU
from rlcorr_cli.measure.observe import Observation, observe
from rlcorr_cli.metrics.diagnostics import diagnostics, metric_intervals
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.results.policy import Limit, compare
from rlcorr_cli.results.rules import EXAMPLES as OF_OPTIONS, Section
from rlcorr_cli.totals.view import Numbers

Rng = np.random.Generator
Floats = np.ndarray
ROOT = Path(__file__).parents[2]
CI = ROOT / "rlcorr_cli" / "manual" / "ci.md"
SIZES = (0.0003, 0.0018)
"""k3_kl of a night, of two engines."""
TIMES = (1, 3, 10)
MOST_PROMPTS = {200: 128, 2000: 64}
"""Mean length -> the most prompts of a night; 32 of others."""
UNSURE = 0.28
"""The share of tokens of which the policy is not sure."""
BASELINES = ("last.json", "good.json")
"""What the examples call the report of the first night; the first of them is updated."""
LIMITS = (*(Limit("k3_kl", True, share, True) for share in (0.2, 0.35, 0.5, 1.0)), Limit("kl", True, 0.2, True))
"""On a baseline, as `--limits` has them: --max-increase k3_kl=20% and so on."""
NO_GATES = ("--min seq_ess=0.3",)
"""Measured beside the examples, to show why none of them has it."""
WITHOUT_EFFECT = {"--junit": 1, "--group-by": 1, "--json": 0, "-o": 1}
"""Options that fail no night here -> how many values each takes."""


def lognormal(rng: Rng, sd: float, size: int) -> Floats:
    """e^N(0, sd), scaled to a mean square of 1."""
    return np.exp(rng.normal(-(sd**2), sd, size))


def log_probs(rng: Rng, unsure: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """Rollout and training log-probs.  unsure: the share of unsure tokens, noise: of the log-ratio, each f64[V]."""
    size = len(noise)
    rollout = -np.where(rng.random(size) < unsure, rng.exponential(1.1, size), rng.exponential(0.02, size)) - 1e-7
    surprise = -np.expm1(rollout)
    log_ratio = noise * rng.standard_t(6, size) * np.sqrt(surprise / 1.5) - noise**2 * surprise / 2
    return rollout, np.minimum(rollout + log_ratio, -1e-8)


@cache
def noise_of(k3_kl: float) -> float:
    """The noise that makes this k3_kl, by bisection."""
    low, high = 0.0, 2.0
    for _ in range(25):
        noise, size = (low + high) / 2, 400_000
        rollout, trained = log_probs(np.random.default_rng(0), np.full(size, UNSURE), np.full(size, noise))
        log_ratio = trained - rollout
        low, high = (noise, high) if np.mean(np.expm1(log_ratio) - log_ratio) < k3_kl else (low, noise)
    return (low + high) / 2


def night(rng: Rng, mean_length: int, k3_kl: float, *, own: bool, most: int) -> Rows:
    """32 to `most` prompts, of 4 to 8 samples each if these may be more than 32; own: whether the prompts differ."""
    prompts, samples = (int(rng.integers(32, most + 1)), int(rng.integers(4, 9))) if most > 32 else (32, 4)
    lengths = np.repeat(lognormal(rng, 0.4 * own, prompts), samples) * lognormal(rng, 0.6, prompts * samples)
    sizes = np.clip(mean_length * lengths * np.exp((0.4 * own) ** 2 / 2 + 0.6**2 / 2), 20, 5 * mean_length).astype(int)
    unsure = np.minimum(UNSURE * lognormal(rng, 0.3 * own, prompts), 0.9)
    noise = noise_of(k3_kl) * lognormal(rng, 0.25 * own, prompts)
    rollout, trained = log_probs(
        rng, *(np.repeat(np.repeat(of_prompt, samples), sizes) for of_prompt in (unsure, noise))
    )
    return Rows(trained - rollout, rollout, sizes, np.repeat(np.arange(prompts), samples))


def table(rows: Rows, first_prompt: int) -> pa.Table:
    """Rows as a dump of one step."""
    offsets = pa.array(np.concatenate([[0], np.cumsum(rows.lengths)]), pa.int32())
    columns = (pa.array(column, pa.float32()) for column in (rows.rollout, rows.rollout + rows.log_ratio))
    rollout, trained = (pa.ListArray.from_arrays(offsets, column) for column in columns)
    step = np.zeros(len(rows.lengths), np.int64)
    columns_by_name = {"rollout_log_probs": rollout, "old_log_probs": trained}
    return pa.table({"uid": rows.prompts + first_prompt, "step": step, **columns_by_name})


def examples() -> tuple[str, ...]:
    """The options of each gate that README, `check --help` and `help ci` show, but for WITHOUT_EFFECT."""
    texts = ((ROOT / "README.md").read_text("utf-8"), "\n".join(app.examples("check")), CI.read_text("utf-8"))
    lines = [found for text in texts for found in re.findall(r"^[ \-]*(?:run: )?rlcorr (check [^#\n]*)", text, re.M)]
    gates: dict[str, None] = {}
    for line in lines:
        _, _, *words = shlex.split(line)
        kept: list[str] = []
        while words:
            option, words = words[0], words[1:]
            if option in WITHOUT_EFFECT:
                words = words[WITHOUT_EFFECT[option] :]
            else:
                kept.append(option)
        gates[shlex.join(kept)] = None
    return tuple(gates)


def gates_of(k3_kl: float) -> tuple[str, ...]:
    """The examples, two fixed limits, that of `--help` and five times the engine's k3_kl, and NO_GATES."""
    return (*examples(), f"--max {OF_OPTIONS['max']}", f"--max k3_kl={5 * k3_kl:g}", *NO_GATES)


def fails(gate: str, report: Path, *, update: bool) -> bool:
    """Whether a night's report fails a gate in the working directory; update: whether it may become the baseline."""
    options = [option for option in shlex.split(gate) if update or option != "--update-baseline"]
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = command_line.run(["check", str(report), *options])
    if status not in (0, 1):
        sys.exit(said.getvalue())
    return status == 1


def write_reports(rng: Rng, folder: Path, mean_length: int, k3_kl: float, *, own: bool) -> Mapping[int, Path]:
    """The reports of a night: times the k3_kl -> where it is."""
    reports = {times: folder / f"{times}.json" for times in TIMES}
    for times, path in reports.items():
        rows = night(rng, mean_length, k3_kl * times, own=own, most=MOST_PROMPTS.get(mean_length, 32))
        path.unlink(missing_ok=True)
        save(analyze(table(rows, int(rng.integers(1 << 60))), group_by="step", workers=1), path)
    return reports


def failures(seed: int, n_nights: int, mean_length: int, k3_kl: float, *, own: bool) -> Mapping[str, Counter[int]]:
    """Gate -> times the k3_kl -> how many of the nights failed."""
    (rules,) = re.findall(r"```toml\n(# rules\.toml.*?)```", CI.read_text("utf-8"), re.DOTALL)
    found = {gate: Counter[int]() for gate in gates_of(k3_kl)}
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        places = {gate: Path(folder) / str(number) for number, gate in enumerate(found)}
        first = write_reports(rng, Path(folder), mean_length, k3_kl, own=own)[1].read_bytes()
        for place in places.values():
            place.mkdir()
            (place / "rules.toml").write_text(rules)
            for name in BASELINES:
                (place / name).write_bytes(first)
        for _ in range(n_nights):
            reports = write_reports(rng, Path(folder), mean_length, k3_kl, own=own)
            for gate, place in places.items():
                with contextlib.chdir(place):
                    for times in reversed(TIMES):  # the one that may become the baseline comes last
                        found[gate][times] += fails(gate, reports[times], update=times == 1)
    return found


def measured(rows: Rows, number: int) -> Section:
    """A night as a limit on a baseline sees it, without reading and diagnosis; number: of the night."""
    seen = observe(rows.batch(number << 40), Observation(plans=(Plan(),), seed=0), CPU)
    values = diagnostics(Numbers.of_mode(seen.totals, "decoupled", 0))
    return Section({}, values, intervals=metric_intervals(values, seen.replicates["decoupled"]))


def rates(n_nights: int, most: int) -> Mapping[Limit, Counter[int]]:
    """Limit on a baseline -> times the k3_kl -> how many nights failed, of own prompts, 200 tokens and SIZES[1]."""
    rng, baselines = np.random.default_rng(1), dict[Limit, Section]()
    found = {limit: Counter[int]() for limit in LIMITS}
    for number in range(n_nights + 1):
        sections = {
            times: measured(night(rng, 200, times * SIZES[1], own=True, most=most), 4 * number + times)
            for times in (1, 2, 3)
        }
        for limit, counts in found.items():
            before = baselines.setdefault(limit, sections[1])
            if not number:
                continue
            failed = [times for times, now in sections.items() if compare([limit], [now], [before])[0].status == "fail"]
            counts.update(failed)
            if 1 not in failed:
                baselines[limit] = sections[1]
    return found


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lengths", type=int, nargs="*", default=[200, 2000, 8000])
    parser.add_argument("--prompts", choices=("alike", "own"), nargs="*", default=["alike", "own"])
    parser.add_argument("--limits", type=int, metavar="NIGHTS", help="of so many nights, by the limit on a baseline")
    options = parser.parse_args()
    if options.limits:
        for most in (128, 32):
            print(f"\n32 to {most} prompts; % of {options.limits} nights that fail: null, 2 times, 3 times")
            for limit, counts in rates(options.limits, most).items():
                shares = "".join(f"{100 * counts[times] / options.limits:7.1f}" for times in (1, 2, 3))
                print(f"  {shares}  {limit.metric} {limit}", flush=True)
        return
    print(f"of {options.nights} nights fail: where nothing changes, of 3 times the k3_kl, of 10 times")
    for prompts in options.prompts:
        for mean_length in options.lengths:
            for k3_kl in SIZES:
                print(f"\nprompts {prompts}, {mean_length:,} tokens, k3_kl {k3_kl:g}")
                found = failures(options.seed, options.nights, mean_length, k3_kl, own=prompts == "own")
                for gate, counts in found.items():
                    print(
                        "  " + "".join(f"{counts[times]:4}" for times in TIMES) + f"  {gate or '(no option)'}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
