"""The layouts together: no file of one framework is taken for another's."""

from pathlib import Path

import pytest

from rlcorr_cli.layouts.recognise import FileStart
from rlcorr_cli.layouts.table import LAYOUTS
from tests.layouts.native_rows import NATIVE, folder_of

NO_DUMPS = (".md", "meta.json", "STABLE", ".lock", "e-next.json")
REFUSED = ("no-log-probs/", "verl/rollout_data/")
"""Logs of texts, which no layout reads."""
BESIDE = ("metrics.jsonl", ".index.jsonl", "train_op.jsonl")
"""What is written beside samples, and has none."""
FILES = sorted(
    path.relative_to(NATIVE).as_posix()
    for path in NATIVE.rglob("*")
    if path.is_file() and not path.name.startswith("expected") and not path.name.endswith(NO_DUMPS)
)


@pytest.mark.parametrize("name", FILES)
def test_a_frameworks_file_is_of_one_layout_and_of_that_framework(name: str) -> None:
    head = FileStart(str(NATIVE / name))
    known = [row for row in LAYOUTS if row.recognise(head)]
    right = [] if name.startswith(REFUSED) or name.endswith(BESIDE) else [Path(name).parts[0].rstrip("3")]
    assert [folder_of(row) for row in known] == right, [row.name for row in known]
