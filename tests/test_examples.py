"""The examples of a test that hypothesis draws are the same ones, whatever else is loaded."""

import sys
from importlib import util
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

NUMBER = 123_456_789_123


def drawn() -> list[int]:
    """What a test that takes whole numbers is given."""
    numbers: list[int] = []

    @settings(max_examples=200)
    @given(st.integers())
    def test(number: int) -> None:
        numbers.append(number)

    test()
    return numbers


def test_examples_do_not_hang_on_what_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("--hypothesis-profile", None) not in (None, "rlcorr", "full"):
        pytest.skip("another profile looks at constants of the code")
    before = drawn()
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    (tmp_path / "code").mkdir()
    path = tmp_path / "code" / "constants.py"
    path.write_text(f"NUMBERS = {[NUMBER + i for i in range(100)]}\n")
    spec = util.spec_from_file_location("constants_of_a_module", path)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    assert drawn() == before
    assert len(set(before)) > 50
