"""One hypothesis profile for all tests: the same examples every time, no clock, no database.  `.ci/full` draws more.

Examples hang on the text of a test and on nothing else.  Hypothesis also draws constants that it finds in the modules
that are loaded, so that examples would change with every commit, and with what a worker happened to import before; here
that pool stays empty (tests/test_examples.py holds it).  `--hypothesis-profile=search` looks at other examples, new
ones each time and as many as may be, with constants of the code among them.

And the same surroundings everywhere: one torch thread, as workers of rlcorr have it, in the commands that tests start,
too (tensors of tests are small, and two threads take twice the time); and no GitHub Actions, where `check` would write
to the run's own page.  A signal that whoever started the tests ignores, as `nohup` and a script's background do, would
be ignored in all that they start; so here it is handled, by nothing, which no process inherits.  Ray collects nothing
about its use: its thread for that, which writes tracebacks, made `ast.parse` in another thread fail (Python 3.11 counts
the depth of all threads together).

Python looks for garbage seldom, and never while tests are collected: as often as it does by itself, that is a quarter
of the time of all tests.
"""

import gc
import os
import signal
from collections.abc import Generator
from glob import glob

# Read when torch is loaded, so before any test module is.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, lambda *_: None)

gc.disable()
LONGEST_BYTES = 40
settings.register_profile(
    "rlcorr",
    derandomize=True,
    deadline=None,
    max_examples=15,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("full", settings.get_profile("rlcorr"), max_examples=40)
settings.register_profile("search", settings.get_profile("rlcorr"), derandomize=False, max_examples=120)
settings.load_profile("rlcorr")


def pytest_configure(config: pytest.Config) -> None:
    """Leave hypothesis's pool of the code's constants empty, unless new examples are searched for."""
    if config.getoption("--hypothesis-profile", None) in (None, "rlcorr", "full"):
        providers._get_local_constants = lambda: providers._local_constants


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Long bytes name no test: an archive holds the time at which it was made, which is another in each process of
    pytest-xdist, and these must collect the same tests."""
    return argname if isinstance(val, bytes) and len(val) > LONGEST_BYTES else None


def pytest_collection_finish() -> None:
    """Never look again at the tests themselves, and at young objects only when there are many."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


def pytest_sessionfinish() -> None:
    """What is never looked at is never freed, and DuckDB says of that, after the last line, that it leaked."""
    gc.unfreeze()


@pytest.fixture(
    scope="module",
    params=["cpu", pytest.param("torch", marks=pytest.mark.full), *(["cuda"] if glob("/dev/nvidia[0-9]*") else [])],
)
def every_library(request: pytest.FixtureRequest) -> Generator[None]:
    """What tests/made.py measures is measured by NumPy, in full by torch on a CPU, and on a GPU where there is one."""
    from made import DEVICES, computed_on

    (device,) = [device for device in DEVICES if device.name == request.param]
    with computed_on(device):
        yield


@pytest.fixture(autouse=True)
def _outside_of_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests of pages were skipped for want of a browser: none is what .ci/run should say."""
    skipped = terminalreporter.stats.get("skipped", [])
    n = sum("chromium" in str(report.longrepr) or "playwright" in str(report.longrepr) for report in skipped)
    terminalreporter.write_line(f"browser tests skipped: {n}")
