"""Tests that start, kill or measure processes run one after another, in one process of pytest."""

import os

import pytest

pytestmark = pytest.mark.xdist_group("processes")


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="one process has one group")
def test_a_group_of_tests_stays_together(request: pytest.FixtureRequest) -> None:
    """pytest-xdist reads a test's group from its name, and where it could not write it there, it says nothing."""
    assert request.node.nodeid.endswith("@processes")
