"""One hypothesis profile for all tests: the same examples every time, no clock, no database."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "rlcorr",
    derandomize=True,
    deadline=None,
    max_examples=40,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("rlcorr")
