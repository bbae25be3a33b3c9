"""Presets in their frameworks' words, and frameworks' configs on the command line."""

from pathlib import Path

import pytest
from running import BF16, run

from rlcorr_cli.plans.presets import preset
from rlcorr_cli.plans.presets.configs import CONFIGS


def test_the_command_says_whose_config_it_read(tmp_path: Path) -> None:
    path = tmp_path / "grpo.yaml"
    path.write_text(CONFIGS["trl_token_mask"].text)
    report = run("analyze", BF16, "--plan", str(path), "--json").json
    assert any("read as TRL's config" in note for note in report["notes"])
    assert report["plan"]["weighting"]["outside"] == "zero"


@pytest.mark.parametrize("name", ["geo_rs", "nemo_tis", "opsm", "geo_is"])
def test_presets_show_prints_the_config_and_the_plan(name: str) -> None:
    shown = run("presets", "show", name).out
    config = CONFIGS.get(preset(name).name)
    assert config is None or config.text in shown
    assert "# As a plan file, for --plan:" in shown
    assert all(len(line) <= 100 for line in shown.splitlines())
