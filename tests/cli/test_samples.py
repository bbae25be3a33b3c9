"""Numbers of a sample of rows say that they are, in every form; those of all rows do not."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import run

ROWS = 300


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> str:
    rng = np.random.default_rng(2)
    rows = []
    for i in range(ROWS):
        rollout = -np.where(rng.random(100) < 0.28, rng.exponential(1.1, 100), rng.exponential(0.02, 100))
        variance = (0.05 if i % 3 else 0.3) ** 2 * (1 - np.exp(rollout))
        train = np.minimum(rollout + rng.normal(0, 1, 100) * variance**0.5 - variance / 2, -1e-8)
        rows.append({"worker": f"w{i % 3}", "rollout_log_probs": rollout, "old_log_probs": train})
    path = tmp_path_factory.mktemp("samples") / "dump.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    return str(path)


def forms(folder: Path, *args: str) -> list[str]:
    """What `diagnose` says on the terminal, on its page and in Markdown, without line breaks and tags."""
    outputs = [folder / "d.html", folder / "d.md"]
    ran = run("diagnose", *args, *(word for path in outputs for word in ("-o", str(path))))
    texts = (ran.out, *(path.read_text() for path in outputs))
    return [re.sub(r"\s+", " ", re.sub(r"</?\w[^>]*>|[`\\]", "", text)) for text in texts]


def test_a_diagnosis_of_a_sample_says_so_beside_its_numbers(dump: str, tmp_path: Path) -> None:
    result = run("diagnose", dump, "--sample", "20000", "--group-by", "worker", "--json").json
    rows, tokens = result["gap"]["sample"].values()
    assert 15_000 < tokens <= 20_000
    assert sum(group["gap"]["sample"]["tokens"] for group in result["groups"]) == tokens
    for text in forms(tmp_path, dump, "--sample", "20000", "--group-by", "worker"):
        assert f"in a sample of {rows} rows, {tokens:,} tokens: k3_kl" in text
        assert "--sample all takes every row" in text
        assert "in sample" in text


def test_groups_that_a_sample_hardly_has_are_told_as_such(dump: str, tmp_path: Path) -> None:
    for text in forms(tmp_path, dump, "--sample", "3000", "--group-by", "worker"):
        assert " have too little data in the sample: --sample all takes every row." in text


@pytest.mark.parametrize("command", ["analyze", "check", "compare"])
def test_the_cause_of_a_sample_says_so_in_every_command(command: str, dump: str) -> None:
    told, whole = (re.sub(r"\s+", " ", run(command, dump, "--sample", sample).out) for sample in ("20000", "all"))
    assert re.search(r"of the gap[^.]*, in a sample of \d+ rows\.", told), told
    assert "in a sample" not in whole


def test_a_diagnosis_of_all_rows_names_no_sample_and_has_the_k3_of_analyze(dump: str, tmp_path: Path) -> None:
    assert all("a sample" not in text for text in forms(tmp_path, dump))
    gap = run("diagnose", dump, "--json").json["gap"]
    assert "sample" not in gap
    assert gap["k3_kl"] == pytest.approx(run("analyze", dump, "--json").json["metrics"]["k3_kl"])
