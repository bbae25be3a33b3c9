"""README and the manual are true: their commands run, their options exist, what they show is what is printed."""

import contextlib
import io
import json
import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from limits import LIMIT_SECONDS
from test_architecture import MAY_IMPORT

from rlcorr_cli.commands import app, main
from rlcorr_cli.plans.plan import STATISTICS
from rlcorr_cli.show.forms import FORMS
from rlcorr_cli.show.pages import PAGES

ROOT = Path(__file__).parent.parent
NEMO_RL = ROOT / "tests" / "golden" / "native" / "nemo-rl"
MANUAL = ROOT / "rlcorr_cli" / "manual"
README = (ROOT / "README.md").read_text(encoding="utf-8")
BOOK = "\n".join([README, *((MANUAL / f"{page}.md").read_text(encoding="utf-8") for page in PAGES)])
"""README, and all pages of the manual after it."""
BLOCKS = re.findall(r"```sh\n(.*?)```", BOOK, re.DOTALL)
LINES = [line.split("#")[0].strip() for block in BLOCKS for line in block.splitlines()]
COMMANDS = list(dict.fromkeys(line for line in LINES if line.startswith("rlcorr ")))
YAML = re.findall(r"```yaml\n(.*?)```", BOOK, re.DOTALL)
TOML = re.findall(r"```toml\n(.*?)```", BOOK, re.DOTALL)
CI = {"vendor.github-workflows": "# .github/workflows", "vendor.gitlab-ci": "# .gitlab-ci"}
"""The schema of a CI system's file -> how README's block of it starts."""
VERL = {"algorithm": {"rollout_correction": {"rollout_is": "token", "rollout_is_threshold": "0.5_5.0"}}, "seed": 1}


def block(blocks: list[str], start: str) -> str:
    (found,) = (one for one in blocks if one.startswith(start))
    return found


@pytest.fixture(scope="module")
def last(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The report that README's commands call last.json."""
    path = tmp_path_factory.mktemp("last") / "last.json"
    assert main.run(["analyze", str(ROOT / "sample_data" / "smollm2_bf16.parquet"), "-o", str(path)]) == 0
    return path.read_bytes()


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The totals that README's commands merge, of two steps."""
    folder = tmp_path_factory.mktemp("parts")
    rows = pq.read_table(ROOT / "sample_data" / "smollm2_steps.parquet")
    for step in (1, 2):
        pq.write_table(rows.filter(pc.field("step") == step), folder / "step.parquet")
        of_step = ["analyze", str(folder / "step.parquet"), "--group-by", "step"]
        assert main.run([*of_step, "-o", str(folder / f"part{step}.rlcorr")]) == 0
    return {path.name: path.read_bytes() for path in folder.glob("*.rlcorr")}


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: bytes, parts: dict[str, bytes]) -> Path:
    """What README's commands name: a dump, a directory of them, JSON lines by step, a trainer's config, a report,
    two parts of a run, an engine's answers."""
    (tmp_path / "last.json").write_bytes(last)
    (tmp_path / "sample_data").symlink_to(ROOT / "sample_data")
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    dump = (ROOT / "sample_data" / "smollm2_bf16.parquet").read_bytes()
    (tmp_path / "dump.parquet").write_bytes(dump)
    rows = pq.read_table(ROOT / "sample_data" / "smollm2_bf16.parquet")
    pq.write_table(rows.append_column("prompt_token_ids", [[[1, 2]] * len(rows)]), tmp_path / "with_prompts.parquet")
    (tmp_path / "dump").mkdir()
    (tmp_path / "dump" / "000001.parquet").write_bytes(dump)
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps" / "1.jsonl").write_bytes((ROOT / "sample_data" / "smollm2_bf16.jsonl").read_bytes())
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "train_data_step1.jsonl").write_bytes((NEMO_RL / "train_data_step1.jsonl").read_bytes())
    for name, sample in (("old", "bf16"), ("new", "bf16")):
        (tmp_path / f"{name}.parquet").write_bytes((ROOT / "sample_data" / f"smollm2_{sample}.parquet").read_bytes())
    for name, data in parts.items():
        (tmp_path / name).write_bytes(data)
    for answers in (ROOT / "tests" / "transcript" / "inputs").glob("answers_*.jsonl"):
        (tmp_path / answers.name).write_bytes(answers.read_bytes())
    for name, policy in (("responses", -1.0), ("scored", -1.25)):
        row = {"sample_id": "a", "rollout_log_probs": [policy, policy]}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row))
    (tmp_path / "three.parquet").write_bytes(dump)
    rows = pq.read_table(tmp_path / "dump.parquet", columns=["sample_id", "rollout_log_probs"]).to_pylist()
    (tmp_path / "replayed.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "trainer.yaml").write_text(json.dumps(VERL))
    (tmp_path / "grpo.yaml").write_text(YAML[0])
    (tmp_path / "rules.toml").write_text(block(TOML, "# rules.toml"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_in_readme_and_manual_runs(
    command: str, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = [arg.replace("*.jsonl.gz", "*.jsonl") for arg in shlex.split(command)[1:]]
    if "-o" in args and (output := args[args.index("-o") + 1]) in ("dump.parquet", "three.parquet"):
        (workplace / output).unlink()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert main.run(args) == 0, capsys.readouterr().err
    printed = capsys.readouterr()
    assert printed.out
    assert [str(warning.message) for warning in caught] == []
    assert "Warning" not in printed.err


LOADING = {
    "explain kl": (),
    "check dump.parquet --junit junit.xml --max kl=1": (),
    "filter dump.parquet --preset geo_rs -o kept.jsonl": (),
    "analyze dump.parquet --preset token_is -o report.html -o report.md -o report.json": (
        "Wrote report.html.",
        "Wrote report.md.",
        "Wrote report.json.",
    ),
}
"""Commands that load every library between them, and what each says beside its result."""


def test_no_library_warns_while_it_is_loaded(workplace: Path) -> None:
    """A process of its own, which loads everything, in surroundings that show every warning; below its command."""
    code = (
        "import shlex, sys\n"
        "from rlcorr_cli.commands.main import run\n"
        "for command in sys.argv[1:]:\n"
        "    print(command, file=sys.stderr); print(run(shlex.split(command)), file=sys.stderr)"
    )
    line = [sys.executable, "-W", "always", "-c", code, *LOADING]
    done = subprocess.run(line, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert done.returncode == 0
    assert done.stderr.splitlines() == [line for command, said in LOADING.items() for line in (command, *said, "0")]


def test_the_plan_file_in_readme_is_a_plan(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workplace / "plan.toml").write_text(block(TOML, "# plan.toml"))
    assert main.run(["analyze", "dump.parquet", "--plan", "plan.toml", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert plan["name"] == "mine"
    assert plan["rejections"][0]["scope"] == "seq_mean"


def ci_schema(schema: str, path: Path) -> int:
    """Whether a CI system takes a file, by the schema that check-jsonschema has of it."""
    from check_jsonschema import main as check

    with contextlib.redirect_stdout(io.StringIO()), pytest.raises(SystemExit) as ended:
        check(["--builtin-schema", schema, str(path)])
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize("schema", CI)
def test_the_ci_jobs_in_readme_are_jobs_and_their_check_runs(
    schema: str, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = block(YAML, CI[schema])
    (workplace / "job.yml").write_text(text)
    assert ci_schema(schema, workplace / "job.yml") == 0
    broken = text.replace("runs-on:", "run-on:").replace("script:", "scripts:")
    (workplace / "broken.yml").write_text(broken)
    assert ci_schema(schema, workplace / "broken.yml") == 1
    (command,) = re.findall(r"- (?:run: )?(rlcorr check .*)", text)
    assert main.run(shlex.split(command)[1:]) == 0, capsys.readouterr().err


SHOWN = re.findall(r"rlcorr ([^\n]*)\n```\n\n```text\n(.*?)```", BOOK, re.DOTALL)
"""A command and what it shows of its output, with ... for what it leaves out."""


@pytest.mark.parametrize(("command", "shown"), SHOWN)
def test_the_output_in_readme_is_what_is_printed(
    command: str, shown: str, workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main.run(shlex.split(command)) == 0
    printed, shown = (re.sub(r"\d+\.\d+ s\b", "T s", text) for text in (capsys.readouterr().out, shown))
    for part in shown.split("  ...\n"):
        assert part in printed


def test_outputs_are_shown() -> None:
    assert len(SHOWN) >= 4


FAILING = re.findall(r"```text\n\$ rlcorr (check [^\n]*)\n(.*?)```", BOOK, re.DOTALL)
"""A check that fails and what it shows of its output."""


@pytest.mark.parametrize(("command", "shown"), FAILING)
def test_a_failing_check_in_readme_is_what_it_prints(
    command: str, shown: str, workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main.run(shlex.split(command)) == 1
    printed = capsys.readouterr().out
    start, *_, end = shown.split("  ...\n") if "  ...\n" in shown else ("", shown)
    assert printed.startswith(start)
    assert printed.endswith(end)
    assert start or shown == printed


def test_readmes_pictures_are_there_and_no_larger_than_they_need() -> None:
    links = [ROOT / link for link in re.findall(r"!\[.+?\]\((.+?)\)", README)]
    links += [MANUAL / link for link in re.findall(r"!\[.+?\]\((.+?)\)", BOOK.removeprefix(README))]
    assert len(links) == 5
    assert all(link.read_bytes().startswith(b"\x89PNG") for link in links)
    sizes = sum(path.stat().st_size for path in (ROOT / "sample_data").rglob("*"))
    assert sizes < 2_000_000


OTHERS_OWN = {
    *("--dump-details", "--save_traces", "--no-monitors", "--no-dump-train-data", "--get-mismatch-metrics"),
    *("--custom-tis-function-path", "--use-tis", "--tis-clip", "--use-rollout-logprobs", "--enable-scale-out"),
    *("--algo", "--use_vllm", "--padding_free", "--enable-trace-replay", "--enable-prompt-tokens-details"),
    *("--head", "--address", "--array", "--cpus-per-task", "--mem", "--parsable", "--dependency", "--wrap"),
}
"""Flags of trainers and engines, by which they write dumps or correct, and of clusters."""


def test_every_option_in_readme_exists(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for command in app.COMMANDS:
        assert main.run([command, "--help-all"]) == 0
    assert main.run(["--help"]) == 0
    known = {"--help-all", *re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out)}
    changelog = (MANUAL / "changelog.md").read_text(encoding="utf-8")
    now = BOOK.replace(changelog, "")  # which names options that are gone
    prose = "\n".join(line for line in now.splitlines() if "pip" not in line and "python " not in line)
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z_-]+", prose)) - OTHERS_OWN <= known


def test_every_command_is_in_readme() -> None:
    commands = list(app.COMMANDS)
    assert len(commands) > 2
    assert all(f"rlcorr {name} " in README for name in commands)


EVERYWHERE = {"errors", "frozen"}
"""Parts that every part may import."""


def test_the_layers_in_readme_are_those_that_are_held() -> None:
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ((?:`\w+`(?:, )?)*) ?\|$", BOOK, re.MULTILINE)
    layers = {part: set(re.findall(r"\w+", below)) for part, below in rows if part in MAY_IMPORT}
    assert layers == {part: set(below) - EVERYWHERE for part, below in MAY_IMPORT.items() if part not in EVERYWHERE}


def test_what_readme_says_to_touch_is_there() -> None:
    table = BOOK.split("| new | touch |")[1].split("\n\n")[0]
    paths = set(re.findall(r"`([a-z_]+/[a-z_/.]*)`", table))
    assert len(paths) > 15
    roots = {path: ROOT if path.startswith("tests/") else ROOT / "rlcorr_cli" for path in paths}
    assert [path for path, root in roots.items() if not (root / path).exists()] == []


def test_every_form_of_a_report_is_named_where_forms_are_listed() -> None:
    written = BOOK.split("## Forms of a report")[1].split("```")[0]
    for suffix in FORMS:
        assert f"`{suffix}`" in written


def test_readme_names_every_statistic() -> None:
    (named,) = re.findall(r"a rejection; statistics: (.*?); scopes:", BOOK)
    assert re.findall(r"`(\w+)`", named) == list(STATISTICS)


def test_readme_names_pages_that_help_lists() -> None:
    """By name: a package index shows README, and its links to files lead nowhere there."""
    named = re.findall(r"`rlcorr help ([a-z_]+)`", README)
    assert len(named) > 5
    assert {*named} <= {*PAGES}
    assert sorted(PAGES) == sorted(page.stem for page in MANUAL.glob("*.md"))
    assert re.findall(r"(?<!!)\[[^\]]*\]\([^)]*\)", README) == []


def test_links_between_pages_lead_somewhere() -> None:
    for page in (ROOT / "README.md", *MANUAL.glob("*.md")):
        for link in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), (page.name, link)


def test_readme_is_read_in_one_sitting() -> None:
    assert len(README.splitlines()) <= 150


def test_help_prints_each_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["help"]) == 0
    listed = capsys.readouterr().out
    for page in PAGES:
        assert f"  {page} " in listed
        assert main.run(["help", page]) == 0
        shown, text = capsys.readouterr().out, (MANUAL / f"{page}.md").read_text(encoding="utf-8")
        assert shown.endswith(text) if page in app.COMMANDS else shown == text
    assert main.run(["help", "correction"]) == 2
    assert "corrections" in capsys.readouterr().err


def test_ci_runs_readmes_test_command_and_once_an_issue_every_test() -> None:
    command = next(line for line in LINES if line.endswith("-m pytest"))
    assert command in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert 'pytest -m "" --hypothesis-profile=full ||' in (ROOT / ".ci" / "full").read_text(encoding="utf-8")


def test_every_exit_status_in_readme_is_an_error_kind() -> None:
    from rlcorr_cli import errors

    for kind in (errors.UsageError, errors.DataError, errors.OutputError):
        assert re.search(rf"^\| {kind.exit_status} \|", BOOK, re.MULTILINE)


def test_the_python_example_in_readme_runs(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """But for the one that takes a cluster, which tests/engines/test_ray.py runs."""
    blocks = [block for block in re.findall(r"```python\n(.*?)```", BOOK, re.DOTALL) if "rlcorr_cli" in block]
    blocks = [block for block in blocks if "import ray" not in block]
    assert len(blocks) == 3
    for block in blocks[::-1]:
        exec(compile(block, "README.md", "exec"), {})
    out = capsys.readouterr().out
    assert (workplace / "canonical.parquet").exists()
    assert (workplace / "toy" / "step-00000003.rank0.parquet").exists()
    assert "shape: (1," in out
    assert out.splitlines()[-1] == "64 64 667.0"
    assert (workplace / "python.parquet").exists()
