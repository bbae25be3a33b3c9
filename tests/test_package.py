"""What comes from outside: the built package's face and long description, the files of .github, the rooms' picture."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import check_jsonschema
import pytest
import rooms
import yaml
from limits import LIMIT_SECONDS

import rlcorr_cli
from rlcorr_cli.commands import app, main
from rlcorr_cli.show.pages import MANUAL, PAGES

ROOT = Path(__file__).parent.parent
GITHUB = ROOT / ".github"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def long_description() -> str:
    """What a package index shows, as the build makes it of README."""
    hook = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    (fragment,), text = hook["fragments"], ""
    text = (ROOT / fragment["path"]).read_text(encoding="utf-8")
    for each in hook["substitutions"]:
        text = re.sub(each["pattern"], each["replacement"], text)
    return text


def test_the_long_description_has_no_link_or_picture_that_only_a_checkout_has() -> None:
    text = long_description()
    assert re.findall(r"\]\((?!https?://)[^)]*\)|<img|src=", text) == []
    assert text.startswith("# rlcorr\n\n")
    assert "\n\n\n" not in text
    named = {*re.findall(r"`rlcorr help ([a-z_]+)`", text)}
    assert named
    assert named <= {*PAGES}


def test_rlcorr_is_the_package_by_its_own_name() -> None:
    spec = importlib.util.spec_from_file_location("rlcorr", ROOT / ".ci" / "face" / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    face = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(face)
    assert face.__version__ == rlcorr_cli.__version__
    assert face.analyze is rlcorr_cli.analyze
    assert dir(face) == dir(rlcorr_cli)
    with pytest.raises(AttributeError, match="nothing"):
        _ = face.nothing
    assert PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"] == {".ci/face": "rlcorr"}


SCHEMAS = {"workflows/*.yml": "vendor.github-workflows", "ISSUE_TEMPLATE/*.yml": "vendor.github-issue-forms"}


@pytest.mark.parametrize(("pattern", "schema"), SCHEMAS.items())
def test_files_of_github_are_what_github_takes(pattern: str, schema: str) -> None:
    paths = [str(path) for path in sorted(GITHUB.glob(pattern))]
    assert paths
    command = [sys.executable, "-m", check_jsonschema.__name__, "--builtin-schema", schema, *paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert done.returncode == 0, done.stdout


def test_every_command_of_githubs_files_has_options_that_exist(
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = [path for path in GITHUB.rglob("*") if path.is_file()]
    commands = re.findall(r"rlcorr (\w+)((?: [^\n`]*)?)", "\n".join(path.read_text(encoding="utf-8") for path in files))
    known = [(name, options) for name, options in commands if name in app.COMMANDS]
    assert len(known) >= 4
    for name, options in known:
        assert main.run([name, "--help-all"]) == 0
        helped = capsys.readouterr().out
        assert {*re.findall(r"--[a-z-]+", options)} <= {*re.findall(r"--[a-z-]+", helped)}, (name, options)


def test_the_reusable_check_is_the_nightly_job_of_the_manual() -> None:
    ours = yaml.safe_load((GITHUB / "workflows" / "check.yml").read_text(encoding="utf-8"))["jobs"]["check"]["steps"]
    (text,) = [
        block
        for block in re.findall(r"```yaml\n(.*?)```", (MANUAL / "ci.md").read_text(encoding="utf-8"), re.DOTALL)
        if block.startswith("# .github/workflows")
    ]
    theirs = yaml.safe_load(text)["jobs"]["check"]["steps"]

    def caches(steps: list[dict[str, object]]) -> list[object]:
        return [(step["uses"], step["with"]) for step in steps if "cache" in str(step.get("uses"))]

    assert caches(ours) == caches(theirs)
    assert len(caches(ours)) == 2


def test_the_image_takes_only_files_that_are_there_and_no_address() -> None:
    text = (GITHUB / "Dockerfile").read_text(encoding="utf-8")
    sources = [name for line in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE) for name in line.split()]
    assert len(sources) == 5
    assert all((ROOT / name).exists() for name in sources)
    assert "http" not in text
    assert re.findall(r"^ENTRYPOINT (.*)$", text, re.MULTILINE) == ['["rlcorr"]']


def test_the_picture_of_the_rooms_is_drawn_from_the_imports() -> None:
    text = (MANUAL / "development.md").read_text(encoding="utf-8")
    assert f"```text\n{rooms.drawn()}```" in text
    below = rooms.imports()
    above = {room: place for place, row in enumerate(rooms.levels()) for room in row}
    assert all(above[room] < above[other] for room, others in below.items() for other in others if other in above)
