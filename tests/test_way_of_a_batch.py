"""The way of a batch through the modules, as `rlcorr help development` lists it: followed, not read."""

import re
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import rlcorr_cli

PACKAGE = Path(rlcorr_cli.__path__[0])
SAMPLE = Path(__file__).parent.parent / "sample_data" / "smollm2_bf16.parquet"
MOST = 10
STEP = re.compile(r"^\d+\. `([\w/]+)\.py` [^`]*`(\w+)`", re.M)
"""A line of the list: the module, and the first form of the batch that it makes."""


def listed() -> list[tuple[str, str]]:
    """Module and form, in the order of the page."""
    page = (PACKAGE / "manual" / "development.md").read_text(encoding="utf-8")
    return STEP.findall(page[page.index("## The path of a batch") :])


def made(forms: set[str]) -> dict[str, str]:
    """Form -> the module that makes the first of it, in the order in which they are made, while one batch is read."""
    found: dict[str, str] = {}

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or frame.f_code.co_name != "__init__":
            return
        form = type(frame.f_locals.get("self")).__name__
        maker = frame.f_back
        while maker is not None and PACKAGE not in Path(maker.f_code.co_filename).parents:
            maker = maker.f_back
        if form in forms and maker is not None:
            module = Path(maker.f_code.co_filename).relative_to(PACKAGE)
            found.setdefault(form, module.with_suffix("").as_posix())

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        rlcorr_cli.analyze(str(SAMPLE), preset="token_is")
    finally:
        threading.setprofile(None)
        sys.setprofile(None)
    return found


def test_the_way_of_a_batch_is_the_one_that_is_listed() -> None:
    steps = listed()
    assert 5 <= len(steps) <= MOST
    found = made({form for _, form in steps})
    assert [(module, form) for form, module in found.items()] == steps
