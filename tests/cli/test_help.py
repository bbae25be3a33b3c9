"""Help: whole sentences, choices rather than types, and examples that run."""

import os
import re
import shlex
from pathlib import Path

import pytest
from running import BF16, STEPS, parquet, refused, row, run

from rlcorr_cli.commands import app
from rlcorr_cli.commands.app import examples
from rlcorr_cli.show.pages import MANUAL
from rlcorr_cli.show.stdout import SPELT


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_help_cuts_no_summary(monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    text = " ".join(run("--help").out.split())
    assert "..." not in text.replace("[ARGS]...", "")
    for command in app.COMMANDS:
        assert (app.function(command).__doc__ or "?").partition("\n")[0] in text


def test_the_list_of_commands_has_each_once_by_what_it_is_for_and_says_where_to_start() -> None:
    printed = run("--help").out
    listed = [name for names in app.GROUPS.values() for name in names]
    assert sorted(listed) == sorted(app.COMMANDS)
    places = [printed.index(f"\n{heading}:\n") for heading in app.GROUPS]
    assert places == sorted(places)
    assert [re.search(rf"^  {name} ", printed, re.MULTILINE) is not None for name in listed] == [True] * len(listed)
    assert "Start with `rlcorr analyze DUMP`." in " ".join(printed.split())


@pytest.mark.parametrize("command", app.COMMANDS)
def test_help_shows_no_types_of_python(command: str) -> None:
    text = run(command, "--help").out
    assert not [name for name in ("<str>", "<bool>", "<list", "<int range>", "9007199254740991") if name in text]


@pytest.mark.parametrize("command", app.COMMANDS)
def test_help_ends_with_two_examples(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = [line.strip() for line in run(command, "--help").out.splitlines() if line.strip()]
    assert lines[-3:] == ["Examples:", *examples(command)]


@pytest.mark.parametrize("command", app.COMMANDS)
def test_help_fits_on_a_screen_and_the_rest_is_in_help_all(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    short, full = run(command, "--help").out, run(command, "--help-all").out
    assert len(short.splitlines()) <= 60
    assert max(map(len, (short + full).splitlines())) <= 100  # only a name that is longer than its column
    options = {flag for option in app.built().commands[command].params for flag in option.opts if flag[:2] == "--"}
    assert options - {"--help"} <= set(re.findall(r"--[a-z][a-z-]+", full))
    n_short, n_full = (len(re.findall(r"^  (?:-\w, )?--", text, re.MULTILINE)) for text in (short, full))
    rare = n_full - n_short
    assert (f"`rlcorr {command} --help-all` has {rare} more options." in short) == (rare > 0)


def test_help_takes_the_width_that_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = {}
    for columns in (80, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines[columns] = run("filter", "--help").out.splitlines()
    assert len(lines[120]) < len(lines[80]) - 5
    assert max(map(len, lines[120])) > 100


def test_help_of_a_command_is_its_help_and_a_page_of_that_name_follows() -> None:
    assert run("help", "check").out == run("check", "--help").out
    both = run("help", "diagnose").out
    assert both.startswith(run("diagnose", "--help").out)
    page = (MANUAL / "diagnose.md").read_text(encoding="utf-8")
    assert page.encode("ascii", SPELT).decode() in both
    refused(run("help", "chekc"), 2, "'chekc'", "Similar pages: check")


PARTS = {
    f"{name}.rlcorr": [row([-0.1 * number, -1.0], step=number)] for number, name in enumerate(("part1", "part2", "run"))
} | {"today.rlcorr": [row(step=9)]}
"""What the examples of totals add."""


@pytest.mark.parametrize("example", [each for command in app.COMMANDS for each in examples(command)])
def test_examples_run(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.symlink(STEPS, "dump.parquet")
    for name in ("tokenizer.json", "metrics.jsonl"):
        os.symlink(Path(STEPS).with_name(name), name)
    for name in ("old", "new", "bf16", "fp8", "int8"):
        os.symlink(STEPS, f"{name}.parquet")
    os.mkdir("dump")
    os.symlink(BF16, "dump/bf16.parquet")  # a gate fails the stale rollouts of STEPS
    os.mkdir("run")
    os.symlink(STEPS, "run/steps.parquet")
    for name in ("last.json", "good.json"):
        if name in example:
            assert run("analyze", "dump/", "-o", name).status == 0
    if "old.rlcorr" in example:
        assert run("analyze", "old.parquet", "-o", "old.rlcorr").status == 0
    for name, dump in PARTS.items() if "part1" in example else ():
        assert run("analyze", parquet(tmp_path / "part.parquet", dump), "--group-by", "step", "-o", name).status == 0
    program, *args = shlex.split(example)
    assert program == "rlcorr"
    if args[0] == "watch" and "--once" not in args:
        args.append("--once")  # else it ends at Ctrl-C
    ran = run(*args)
    written = [f"Wrote {name}.\n" for name in re.findall(r"-o (\S+\.(?:html|png))", example)]
    assert (ran.status, ran.err) == (0, "".join(written))
    assert ran.out


TWICE = {
    "--preset": ("analyze", "--preset", "token_is", "--preset", "geo_rs"),
    "--profile": ("analyze", "--profile", "slime", "--profile", "slime"),
    "--seed": ("analyze", "--seed=1", "--seed", "2"),
    "--output": ("plot", "-o", "a.png", "--output", "b.png"),
    "--junit": ("check", "--junit", "a.xml", "--junit", "a.xml"),
}


@pytest.mark.parametrize("option", TWICE)
def test_an_option_of_one_value_is_refused_twice(option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    refused(run(*TWICE[option], STEPS), 2, f"Error: {option} is given twice.", f"Give {option} once.")
    assert list(tmp_path.iterdir()) == []


def test_how_often_an_option_is_given_is_said() -> None:
    refused(run("analyze", STEPS, *("--limit", "5") * 3), 2, "--limit is given 3 times.")


def test_options_of_many_values_and_flags_may_be_repeated() -> None:
    args = ("--group-by", "step", "--group-by", "group_id", "--quiet", "-q", "--limit", "4")
    assert run("analyze", STEPS, *args).status == 0
    assert run("analyze", "--help", *("--limit", "1") * 2).status == 0
