"""Every result, and every page of help, is drawn on a terminal of any width, from the narrowest that counts on."""

import contextlib
import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from running import BF16, SAMPLE, STEPS, parquet, row, run, watched

from rlcorr_cli import api
from rlcorr_cli.commands import main
from rlcorr_cli.plans.presets import PRESETS
from rlcorr_cli.show import print_result
from rlcorr_cli.show.explain import explainable_names
from rlcorr_cli.show.pages import PAGES
from rlcorr_cli.show.stdout import NARROWEST
from rlcorr_cli.show.watch import Teller

WIDTHS = [*range(NARROWEST, 110), *range(110, 201, 10)]
NATIVE = [
    str(SAMPLE / "native" / path)
    for path in ("nemo-rl/train_data_step10.jsonl", "skyrl/global_step_4_training_input.pkl", "slime/1.pt")
]
INT8 = BF16.replace("bf16", "int8")
DUMPS = [BF16, BF16.replace(".parquet", ".jsonl"), STEPS, *NATIVE, INT8, BF16.replace("bf16", "fp32")]
BY_PROMPT = [dump for dump in DUMPS if "smollm2" in dump]
VERL = {"rollout_is": "token", "rollout_rs": "token_k1,seq_max_k2", "rollout_rs_threshold": "2,1"}
COMMANDS = ("analyze", "check", "compare", "convert", "diagnose", "diff", "explain", "filter", "help", "inspect")
COMMANDS += ("plot", "presets", "scalars", "sweep", "watch")
Make = Callable[[str], Any]


@dataclass(frozen=True)
class Shown:
    """A kind of result: what draws it, and what makes it of each of some dumps."""

    draw: Callable[[Any], None]
    makes: Sequence[Make]
    dumps: Sequence[str] = tuple(DUMPS)

    @property
    def results(self) -> list[Any]:
        return [make(dump) for make in self.makes for dump in self.dumps]


def told(dump: str) -> list[Any]:
    """All that `watch` tells of a dump whose later steps break a rule, and what came of it."""
    said: list[Any] = ["Following a folder, of which no step was told yet. Ctrl-C ends it."]
    result = watched(dump, max={"k3_kl": 1e-4}, told=said.append)
    return [*said, result]


def tell(said: list[Any]) -> None:
    """As it is told while it goes on, and at the end."""
    teller = Teller()
    for what in said[:-1]:
        teller(what)
    print_result(said[-1])


def in_full(dump: str, **options: Any) -> Any:
    """A report of which a terminal shows all."""
    return replace(api.analyze(dump, **options), everything=True)


BY_GROUP: list[Make] = [
    lambda p: api.analyze(p, preset="token_is", group_by="step"),
    lambda p: api.analyze(p, group_by=["group_id", "step"]),
]
KINDS = {
    "analyze": Shown(print_result, [api.analyze, lambda p: api.analyze(p, preset="seq_is_rs", pictures=True)]),
    "analyze --all": Shown(print_result, [in_full, lambda p: in_full(p, preset="seq_is_rs", group_by="step")]),
    "analyze by group": Shown(print_result, BY_GROUP, BY_PROMPT),
    "analyze, a profile": Shown(print_result, [lambda p: api.analyze(p, plan=VERL, profile="verl-0.9")], [BF16]),
    "check": Shown(print_result, [api.check, lambda p: api.check(p, group_by="step")]),
    "compare": Shown(print_result, [api.compare]),
    "scalars": Shown(print_result, [api.scalars, lambda p: api.scalars(p, all=True)], [str(SAMPLE / "metrics.jsonl")]),
    "compare --all": Shown(print_result, [lambda p: api.compare(p, all=True)], [INT8]),
    "compare by step": Shown(print_result, [lambda p: api.compare(p, group_by="step")], [INT8, STEPS]),
    "compare, an objective": Shown(
        print_result, [lambda p: api.compare(p, group_by="step", objective="ppo")], [BF16, STEPS]
    ),
    "diff": Shown(print_result, [lambda p: api.diff(p, INT8), lambda p: api.diff(p, INT8, STEPS, group_by="step")]),
    "diagnose": Shown(print_result, [api.diagnose]),
    "inspect": Shown(print_result, [api.inspect]),
    "inspect --row": Shown(print_result, [lambda p: api.inspect(p, row=0)], [INT8]),
    "sweep": Shown(
        print_result,
        [
            lambda p: api.sweep(p, vary="ratio.seq_mean"),
            lambda p: api.sweep(p, is_="token", vary="is.high", target_ess=0.5),
        ],
        [BF16, INT8],
    ),
    "watch": Shown(tell, [told], [STEPS, BF16]),
}


class Terminal(io.StringIO):
    """A stdout that is a terminal: pages are drawn, and not told as Markdown."""

    def isatty(self) -> bool:
        return True


def drawn(draw: Callable[[], object], width: int) -> str:
    """What it writes on a terminal of this width."""
    os.environ["COLUMNS"] = str(width)
    with contextlib.redirect_stdout(Terminal()) as out:
        draw()
    return out.getvalue()


@pytest.fixture(autouse=True)
def _columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")  # and whatever a test makes of it ends with the test


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_is_drawn_at_any_width(kind: str) -> None:
    """Its kind at each of them, every result of the kind at some."""
    shown = KINDS[kind]
    for width, result in zip(WIDTHS, cycle(shown.results)):
        assert drawn(lambda result=result: shown.draw(result), width).strip(), width


def test_the_histogram_of_a_report_has_one_line_and_its_quantiles_stand_beside_the_table_in_a_wide_one() -> None:
    report = in_full(INT8)
    for width in (36, 40, 60, 80, 120):
        lines = drawn(lambda: print_result(report), width).splitlines()
        (histogram,) = (line for line in lines if "|" in line)
        assert len(histogram) <= width
        assert histogram.count("|") == 2
        (heading,) = (line for line in lines if "divergence  " in line)
        assert ("log_ratio at" in heading) == (width == 120)


@pytest.mark.parametrize(
    "kind", ["analyze", "analyze --all", "compare --all", "sweep", "inspect", "inspect --row", "diagnose"]
)
def test_no_name_and_no_number_is_cut_however_narrow_the_terminal(kind: str) -> None:
    shown = KINDS[kind]
    result = shown.makes[0](INT8)
    for width in range(NARROWEST, 64, 3):
        text = drawn(lambda: shown.draw(result), width)
        assert "…" not in text, width
        assert "?" not in text.replace("? ", ""), width


@pytest.mark.parametrize(
    "commands",
    [
        [("help", page) for page in PAGES],
        [(*command, "--help") for command in ((), *((name,) for name in COMMANDS))],
        [("presets",), ("presets", "list"), *(("presets", name) for name in PRESETS)],
        [("explain", name) for name in explainable_names()],
    ],
    ids=["help", "--help", "presets", "explain"],
)
def test_help_is_drawn_at_any_width(commands: list[tuple[str, ...]]) -> None:
    for i in range(max(len(WIDTHS) // 3, len(commands))):
        args, width = commands[i % len(commands)], WIDTHS[3 * i % len(WIDTHS)]
        assert drawn(lambda args=args: main.run(list(args)), width).strip(), (args, width)


def test_every_command_is_among_them() -> None:
    assert [name for name in COMMANDS if f" {name} " not in run("--help").out] == []


def test_a_group_is_named_however_narrow_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The column that rows are grouped by stays, even where it is called as one that goes first."""
    rows = [row(clipped=f"group {i % 2}", advantages=[0.5, -0.5]) for i in range(8)]
    monkeypatch.setenv("COLUMNS", "60")
    ran = run("compare", parquet(tmp_path / "d.parquet", rows), "--group-by", "clipped", "--objective", "ppo")
    assert ran.status == 0, ran.err
    assert "Not shown at this width: clipped" in ran.out
    n_plans = ran.out.count("group 1") - 1
    assert n_plans > 10
    assert f"{n_plans} plans" in ran.out


def test_a_wide_terminal_shows_tables_beside_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def headings(width: int) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        lines = run("analyze", BF16, "--preset", "seq_is_rs").out.splitlines()
        return [line for line in lines if "rejected by" in line or "what is kept" in line]

    (together,) = headings(120)
    assert together.index("rejected by") < together.index("what is kept")
    assert len(headings(119)) == 2
