"""One hypothesis profile for all tests: the same examples every time, no clock, no database.

The same as long as the code is: examples are also made of the constants in it.  `--hypothesis-profile=search` looks at
others, new ones each time.

And the same surroundings everywhere: where tests run in GitHub Actions, `check` would write to the run's own page.
"""

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "rlcorr",
    derandomize=True,
    deadline=None,
    max_examples=40,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("search", settings.get_profile("rlcorr"), derandomize=False)
settings.load_profile("rlcorr")


@pytest.fixture(autouse=True)
def _outside_of_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
