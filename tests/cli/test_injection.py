"""Nothing that a dump, a file's name, a plan, rules or a report say is a command to a terminal or to a CI system.

Every output is fed with every form through every name that comes from outside.
"""

import csv
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import BF16, Ran, jsonl, parquet, run

FORMS = {
    "a line": "::error::forged",
    "a line behind a newline": "x\n::stop-commands::forged",
    "a line behind a return": "x\r::error::forged",
    "the older form": "##[error]forged",
    "the older form inside a line": "x ##[add-mask]forged ###[stop-commands]forged",
    "Azure's form": "x ##vso[task.setvariable variable=a]forged",
    "escape sequences": "\x1b[31mforged\x1b[0m \x1b]8;;http://forged\x07link\x1b]8;;\x07 \x9b1m \x1b]0;title\x07",
    "directions": "\u202eforged\u2066forged\u200f",
    "control characters": "forged\r\x08\x08\x7f\u2028",
    "markup": "<script>forged()</script> [red]x[/red] [x](javascript:forged) |`*_",
    "a formula": "=forged()",
}
ALL = "".join(FORMS.values())
SENT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
COMMAND = re.compile(r"^\s*::|##\w*\[", re.MULTILINE)


def harmless(ran: Ran, *statuses: int) -> Ran:
    """A terminal shows what a command wrote, and a CI system's log takes it for text."""
    assert ran.status in (statuses or (0,)), ran.err
    for text in (ran.out, ran.err):
        assert not SENT.search(text), repr(text)
        assert not COMMAND.search(text), text
    return ran


def shown(ran: Ran, *statuses: int) -> Ran:
    """The same of one that shows the form."""
    assert "forged" in (ran.out + ran.err).replace("\n", "").replace(" ", "")
    return harmless(ran, *statuses)


def dump_of(form: str, folder: Path) -> str:
    """A dump that has the form in its path, columns, groups and ids."""
    rows: list[dict[str, Any]] = [
        {
            form: [-0.5, -1.0 - i / 10],
            f"old {form}": [-0.25, -2.0],
            f"group {form}": f"{form} {i % 2}",
            "sample_id": f"{form} {i}",
            "step": i,
        }
        for i in range(4)
    ]
    (folder / as_name(form)).mkdir()
    return parquet(folder / as_name(form) / f"{as_name(form)}.parquet", rows)


def as_name(form: str) -> str:
    """A file's name that holds the form, as far as the system allows."""
    return form.replace("/", "|")[:100]


def read(form: str) -> tuple[str, ...]:
    return "--map", f"rollout_log_probs={form}", "--map", f"old_log_probs=old {form}"


def commands(form: str, dump: str, folder: Path) -> Iterator[tuple[str, ...]]:
    """Every command that reads a dump, told its columns; of a single form one panel is drawn, of all together six."""
    groups, kind = ("--group-by", f"group {form}"), "overview" if form == ALL else "ratio"
    yield ("analyze", dump, *read(form), *groups)
    yield ("filter", dump, *read(form), "--is", "token", "-o", str(folder / f"{as_name(form)}.jsonl"), "--overwrite")
    yield ("inspect", dump, *read(form), "--worst", "2")
    yield ("inspect", dump, *read(form), "--row", f"{form} 1")
    yield ("check", dump, *read(form), *groups, "--min", "kl=9")
    yield ("plot", dump, *read(form), *groups, "--kind", kind, "-o", str(folder / f"{as_name(form)}.svg"))


@pytest.mark.parametrize("form", [*FORMS.values(), ALL], ids=[*FORMS, "all of them"])
def test_text_is_harmless(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    dump = dump_of(form, tmp_path)
    for args in commands(form, dump, tmp_path):
        shown(run(*args), 0, 1)


def strings(value: Any) -> Iterator[str]:
    """Every text in a JSON document, keys among them."""
    if isinstance(value, str):
        yield value
    for part in value if isinstance(value, list) else ():
        yield from strings(part)
    for key, part in value.items() if isinstance(value, dict) else ():
        yield key
        yield from strings(part)


def test_json_is_harmless_and_keeps_every_value(tmp_path: Path) -> None:
    for args in commands(ALL, dump_of(ALL, tmp_path), tmp_path):
        document = json.loads(harmless(run(*args, "--json"), 0, 1).out)
        assert any(ALL in text or as_name(ALL) in text for text in strings(document)), args


BAD = {
    "an unequal row": {"sample_id": ALL, "rollout_log_probs": [-1.0], "old_log_probs": [-1.0, -2.0]},
    "a value above 0": {"sample_id": ALL, "rollout_log_probs": [-1.0], "old_log_probs": [2.0]},
}


def errors(folder: Path) -> Iterator[tuple[str, ...]]:
    """Commands whose errors name what was typed, or what a file holds."""
    yield ("analyze", f"{ALL}*")
    yield ("analyze", str(folder / as_name(ALL)))
    yield ("analyze", dump_of(ALL, folder))
    for i, row in enumerate(BAD.values()):
        yield ("analyze", jsonl(folder / f"{as_name(ALL)}{i}.jsonl", [row]))
    for option in ("--preset", "--profile", "--plan", "--mode", "--group-by", "--device", "--format", "--rs", "--map"):
        yield ("analyze", BF16, option, ALL)
    yield ("analyze", BF16, f"--{ALL}")
    yield ("analyze", BF16, "-o", str(folder / as_name(ALL) / "none" / "x.json"))
    yield ("analyze", BF16, "-o", str(folder / as_name(ALL)))
    yield ("check", BF16, "--max", f"{ALL}=1")
    yield ("check", BF16, "--max", f"kl={ALL}")
    yield ("check", BF16, "--rules", ALL)
    yield ("check", BF16, "--baseline", ALL, "--max-increase", "kl=1")
    yield ("plot", BF16, "--kind", ALL)
    yield ("inspect", BF16, "--row", ALL)
    yield ("filter", BF16, "--preset", "token_is", "-o", str(folder / as_name(ALL) / "none" / "x.jsonl"))
    yield ("explain", ALL)
    yield ("presets", "show", ALL)
    yield (ALL,)


def test_errors_are_harmless_and_so_are_their_tracebacks(tmp_path: Path) -> None:
    for args in errors(tmp_path):
        ran = shown(run(*args), 2, 3, 4)
        assert len(ran.err.splitlines()) == 2, ran.err
        if len(args) > 1:
            assert "Traceback" in shown(run(*args, "--debug"), 2, 3, 4).err or args[1].startswith("--")


def test_errors_as_json_keep_what_they_say(tmp_path: Path) -> None:
    for args in errors(tmp_path):
        if len(args) == 3:
            error = json.loads(harmless(run(*args, "--json"), 2, 3, 4).err)["error"]
            assert "##[" in error["message"] + error["hint"] or "…" in error["message"]


PLANS = {
    "name": {"name": ALL, "weighting": {"scope": "token"}},
    "unknown key": {ALL: 1},
    "wrong value": {"weighting": {"scope": ALL}},
    "rejection's name": {"rejections": [{"statistic": "ratio", "scope": "token", "low": 0.5, "name": ALL}]},
    "statistic": {"rejections": [{"statistic": ALL, "scope": "token", "low": 0.5}]},
    "trainer's option": {"loss_fn": {"use_importance_sampling_correction": ALL}},
}


@pytest.mark.parametrize("where", PLANS)
def test_what_a_plan_file_says_is_harmless(where: str, tmp_path: Path) -> None:
    plan = tmp_path / f"{as_name(ALL)}.json"
    plan.write_text(json.dumps(PLANS[where]))
    shown(run("analyze", BF16, "--plan", str(plan)), 0, 2)
    for args in (("filter", BF16, "--dry-run"), ("inspect", BF16, "--row", "s003")):
        harmless(run(*args, "--plan", str(plan), "--debug"), 0, 2)


@pytest.mark.parametrize("suffix", [".toml", ".yaml", ".json"])
def test_a_plan_file_that_cannot_be_read_is_harmless(suffix: str, tmp_path: Path) -> None:
    plan = tmp_path / f"plan{suffix}"
    plan.write_text(f"a: !!bool {FORMS['the older form']}\n::error::forged [ {FORMS['directions']}")
    harmless(run("analyze", BF16, "--plan", str(plan)), 2)


RULES = {
    "remedy": {"metric": "k3_kl", "max": 1e-9, "remedy": ALL},
    "metric": {"metric": ALL, "max": 1},
    "key": {"metric": "kl", ALL: 1},
    "value": {"metric": "kl", "max": ALL},
}


@pytest.mark.parametrize("where", RULES)
def test_what_a_rules_file_says_is_harmless(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules, summary = tmp_path / f"{as_name(ALL)}.json", tmp_path / "summary.md"
    rules.write_text(json.dumps({"rule": [RULES[where]]}))
    shown(run("check", BF16, "--rules", str(rules)), 1, 2)
    if where == "remedy":
        in_ci(("check", BF16, "--rules", str(rules)), summary, monkeypatch)


def in_ci(args: tuple[str, ...], summary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check in GitHub Actions: its annotations are rlcorr's own commands, and nothing else is one."""
    with monkeypatch.context() as actions:
        actions.setenv("GITHUB_ACTIONS", "true")
        actions.setenv("GITHUB_STEP_SUMMARY", str(summary))
        ran = run(*args)
    assert ran.status == 1
    harmless(Ran(0, ran.out, ""))
    for line in ran.err.splitlines():
        annotation = re.fullmatch(r"::(?:error|warning) title=([^:,]*)::(.*)", line)
        assert annotation, line
        assert not SENT.search(line)
        assert not COMMAND.search(annotation[1])
        assert "##[" not in annotation[2]
    assert "forged" in ran.err
    assert not SENT.search(summary.read_text())
    assert "<script>" not in summary.read_text()


def test_annotations_and_the_step_summary_are_harmless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = ("check", dump_of(ALL, tmp_path), *read(ALL), "--group-by", f"group {ALL}", "--max", "k3_kl=1e-9")
    in_ci(args, tmp_path / "summary.md", monkeypatch)


def test_files_are_harmless(tmp_path: Path) -> None:
    dump, groups = dump_of(ALL, tmp_path), ("--group-by", f"group {ALL}")
    paths = {form: tmp_path / f"report.{form}" for form in ("md", "html", "csv", "json")}
    outputs = [part for path in paths.values() for part in ("-o", str(path))]
    harmless(run("analyze", dump, *read(ALL), *groups, *outputs))
    for form in ("md", "html", "csv"):
        text = paths[form].read_bytes().decode().replace("\r\n", "\n")
        assert "forged" in text
        assert not SENT.search(text)
        assert "<script>forged" not in text or form == "csv"
    cells = [cell for line in csv.reader(paths["csv"].read_text().splitlines()) for cell in line]
    assert not any(cell.startswith(("=", "@", "\t")) for cell in cells)
    assert json.loads(paths["json"].read_text())["groups"][0]["key"] == {f"group {ALL}": f"{ALL} 0"}
    junit = tmp_path / "junit.xml"
    harmless(run("check", dump, *read(ALL), *groups, "--junit", str(junit), "--max", "k3_kl=1e-9"), 1)
    assert "forged" in junit.read_text()
    assert not SENT.search("".join(ET.parse(junit).getroot().itertext()))


def test_what_a_saved_report_says_is_harmless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / f"{as_name(ALL)}.json"
    harmless(run("analyze", dump_of(ALL, tmp_path), *read(ALL), "--group-by", f"group {ALL}", "-o", str(report)))
    document = json.loads(report.read_text())
    document["notes"] = [ALL]
    document["inputs"][0]["path"] = f"/{as_name(ALL)}/{as_name(ALL)}"
    document["plan"]["name"] = ALL
    document["suspicions"] = [{"name": ALL, "path": ALL, "evidence": ALL, "cure": ALL, "n_files": 1}]
    document["problems"] = {ALL: {"rows": 1, "first": ALL}}
    report.write_text(json.dumps(document))
    shown(run("check", str(report), "--max", "k3_kl=1e-9"), 1)
    harmless(run("check", str(report), "--max", "k3_kl=1e-9", "--json"), 1)
    harmless(run("check", BF16, "--baseline", str(report), "--max-increase", "kl=1%"), 0, 1)
    harmless(run("plot", str(report), "-o", str(tmp_path / "x.png")))
    in_ci(("check", str(report), "--max", "k3_kl=1e-9"), tmp_path / "summary.md", monkeypatch)
    for key, value in (("rlcorr", ALL), ("metrics", {ALL: ALL}), ("plan", {ALL: 1}), ("profile", ALL)):
        report.write_text(json.dumps({**document, key: value}))
        harmless(run("check", str(report)), 0, 1, 2, 3)
        harmless(run("check", str(report), "--debug"), 0, 1, 2, 3)


@pytest.mark.parametrize("text", ["x ::error::", "#[error]", "# [x]", "##", "## [x]", "a:b", ": :"])
def test_what_is_no_command_is_left_alone(text: str, tmp_path: Path) -> None:
    assert text in run("analyze", f"{tmp_path}/none/{text}").err
