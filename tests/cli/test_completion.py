"""What a shell offers for the value of an option, by what bash, zsh and fish ask and read, and how light asking is."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from running import BF16, SAMPLE, STEPS, Ran, run_process, run_python

from rlcorr_cli.causes.table import ALL_CAUSES, ANY_CAUSE
from rlcorr_cli.commands import app
from rlcorr_cli.commands.pictures import KINDS, NO_REPORT
from rlcorr_cli.frameworks.read import PROFILES
from rlcorr_cli.metrics.catalog import DEFINITIONS
from rlcorr_cli.metrics.framework_names import CANONICAL, RELEASES
from rlcorr_cli.metrics.objective import by_full_name
from rlcorr_cli.plans.plan import SCOPES, STATISTICS
from rlcorr_cli.plans.presets import ALIASES, PRESET_FAMILIES, PRESETS, families, of_family
from rlcorr_cli.results.policy import FLAGS
from rlcorr_cli.show import figures
from rlcorr_cli.show.pages import PAGES

HEAVY = ("torch", "numpy", "pyarrow", "polars", "matplotlib")


def asked(*words: str) -> dict[str, str]:
    """The variables with which bash asks what may stand for the last of a line's words."""
    line = ("rlcorr", *words)
    return {"_RLCORR_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(line), "COMP_CWORD": str(len(line) - 1)}


def offered(*words: str) -> list[str]:
    ran = run_process(env=asked(*words))
    assert (ran.status, ran.err) == (0, "")
    return ran.out.split()


OFFERED: Mapping[tuple[str, ...], Sequence[str]] = {
    ("analyze", BF16, "--preset", ""): [*ALIASES, *PRESETS],
    ("analyze", BF16, "--profile", ""): [CANONICAL, *PROFILES],
    ("plot", BF16, "--kind", ""): list(KINDS),
    ("analyze", BF16, "--rs", ""): [f"{name}.{scope}:" for name in STATISTICS for scope in SCOPES],
    ("check", BF16, "--max", ""): [f"{name}=" for name in DEFINITIONS],
    ("check", BF16, "--max", "objective/ppo/c"): [
        f"{name}=" for name in by_full_name() if name.startswith("objective/ppo/c")
    ],
    ("check", BF16, "--max", "ob"): ["objective/"],
    ("check", BF16, "--fail-on", ""): [ANY_CAUSE, *ALL_CAUSES, *FLAGS],
    ("analyze", BF16, "--format", "j"): ["jsonl"],
    ("analyze", BF16, "--is", ""): ["token:", "sequence:", "geometric:"],
    ("presets", "show", "geo"): ["geo_rs", "geo_is"],
    ("presets", "tr"): ["trl", *(row.name for row in of_family("trl")), "trm"],
    ("explain", "seq_e"): ["seq_ess"],
    ("explain", "verl-0"): ["verl-0.6", "verl-0.7", "verl-0.8", "verl-0.9"],
    ("help", ""): [*PAGES, *(name for name in app.COMMANDS if name not in PAGES)],
}


@pytest.mark.parametrize("words", OFFERED, ids=" ".join)
def test_values_are_offered_from_the_tables(words: tuple[str, ...]) -> None:
    assert offered(*words) == OFFERED[words]


@pytest.mark.parametrize("name", ["smollm2_steps.parquet", "smollm2_bf16.jsonl"])
def test_columns_of_the_named_dump_are_offered(name: str) -> None:
    lists = {"rollout_log_probs", "old_log_probs", "response_mask"}
    assert {"step", *lists} <= {*offered("diagnose", str(SAMPLE / name), "--by", "")}
    groups = {*offered("analyze", str(SAMPLE / name), "--group-by", "")}
    assert {"step", "sample_id"} <= groups
    assert not groups & lists
    assert offered("analyze", str(SAMPLE / name), "--batch-by", "st") == ["step"]


def test_no_column_is_offered_of_what_cannot_be_read(tmp_path: Path) -> None:
    for name, content in (("a.parquet", b"PAR1"), ("a.jsonl", b"[1"), ("a.jsonl.gz", b"no"), ("b.jsonl", b"[1]\n")):
        (tmp_path / name).write_bytes(content)
        assert offered("analyze", str(tmp_path / name), "--group-by", "") == []
    assert offered("analyze", str(tmp_path / "none.parquet"), "--group-by", "") == []


def in_line(shell: str, line: str, action: str = "get-args") -> Ran:
    """What zsh or fish is told; they pass the line as it stands."""
    variables = {"_RLCORR_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line}
    return run_process(env={**variables, "_TYPER_COMPLETE_FISH_ACTION": action})


def test_zsh_and_fish_are_told_what_each_name_is() -> None:
    assert (
        '"trl_opsm":"Like opsm, but compares with the policy that sampled."'
        in in_line("zsh", "rlcorr presets trl_o").out
    )
    assert (
        in_line("fish", "rlcorr presets trl_o").out
        == "trl_opsm\tLike opsm, but compares with the policy that sampled.\n"
    )
    assert '"old_log_probs=step"' in in_line("zsh", f"rlcorr analyze {STEPS} --map old_log_probs=").out


@pytest.mark.parametrize("line", ["explain ", "analyze --rs ", "check --max ", "analyze --"])
def test_fish_is_told_one_line_a_value_however_long_the_line_and_narrow_the_terminal(line: str) -> None:
    values = in_line("fish", f"rlcorr {line}").out.splitlines()
    assert max(map(len, values)) > 100
    assert not [value for value in values if re.match("[^\t]* ", value)]


def test_fish_offers_files_where_nothing_else_is_offered() -> None:
    assert in_line("fish", "rlcorr analyze ", "is-args").status == 1
    assert in_line("fish", "rlcorr presets ", "is-args").status == 0


def test_completion_of_names_loads_nothing_heavy() -> None:
    """By one Python, which is asked one line after another, and tells after each what it has loaded until then."""
    lines = [*OFFERED, ("analyze", "sample.jsonl", "--group-by", "")]
    script = (
        "import os, sys\n"
        "from rlcorr_cli.commands.main import run\n"
        "for line in eval(sys.argv[1]):\n"
        "    os.environ.update(line); run([]); print('\\nLOADED', *sys.modules)"
    )
    out = run_python(script, repr([asked(*words) for words in lines])).out.splitlines()
    told = [line.split() for line in out if line.startswith("LOADED ")]
    for words, loaded in zip(lines, told, strict=True):
        assert "typer" in loaded
        assert [name for name in HEAVY if name in loaded] == [], words


def test_tables_that_stand_for_heavier_ones_are_the_same() -> None:
    assert list(RELEASES) == [CANONICAL, *PROFILES]
    assert (*figures.KINDS, *NO_REPORT) == KINDS


def test_every_preset_has_a_family() -> None:
    rows = [row for key in PRESET_FAMILIES for row in of_family(key)]
    assert sorted(row.name for row in rows) == sorted(PRESETS)
    assert all(of_family(key) for key in PRESET_FAMILIES)
    assert families("verl") == ("verl", "verl_0.9")
    assert families("NeMo-RL") == ("nemo",)
    assert families("token_is") == ()
