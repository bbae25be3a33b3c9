"""The manual's pages are what the tables say."""

from collections.abc import Iterable

import pytest

from rlcorr_cli.causes.table import ALL_CAUSES
from rlcorr_cli.metrics.catalog import GROUPS
from rlcorr_cli.metrics.framework_names import RELEASES
from rlcorr_cli.plans.plan import STATISTICS
from rlcorr_cli.reading.bad_rows import PROBLEMS
from rlcorr_cli.reading.names import COLUMNS
from rlcorr_cli.results import recommend
from rlcorr_cli.results.rules import RULES
from rlcorr_cli.show.explain import METRICS_PAGE, metrics_page
from rlcorr_cli.show.pages import MANUAL


def page(name: str) -> str:
    return (MANUAL / f"{name}.md").read_text(encoding="utf-8")


def test_the_page_of_metrics_is_up_to_date() -> None:
    written = METRICS_PAGE.read_text(encoding="utf-8")
    assert written == metrics_page(), "write it again: python -m rlcorr_cli.show.explain"


def test_the_page_has_a_section_for_every_metric_and_tells_every_rule() -> None:
    page = metrics_page()
    for rows in GROUPS.values():
        for row in rows:
            assert f"### {row.name}\n\n`{row.formula}`\n\n{row.meaning}\n" in page
    for rule in RULES:
        limit = f", or {rule.limit} if that is lower" if rule.limit else ""
        assert f"- Rule ({rule.severity}): {rule}{limit}. {rule.remedy}\n" in page


@pytest.mark.parametrize(
    ("names", "pages"),
    [
        (ALL_CAUSES, ("diagnose", "dumps")),
        ([row.name for row in PROBLEMS], ("dumps",)),
        (COLUMNS, ("dumps",)),
        (STATISTICS, ("corrections",)),
        (RELEASES, ("profiles",)),
        (recommend.FLAGS, ("choosing",)),
    ],
    ids=["causes", "bad rows", "columns", "statistics", "profiles", "flags"],
)
def test_a_page_lists_every_name(names: Iterable[str], pages: tuple[str, ...]) -> None:
    text = "".join(map(page, pages))
    assert [name for name in names if f"`{name}`" not in text] == []


def test_how_a_plan_is_chosen_is_told_with_the_limits_that_the_rule_takes() -> None:
    text = " ".join(page("choosing").partition("\n## How a plan is chosen\n")[2].split())
    assert text.index("`moved`") < text.index("`outliers`") < text.index("`far`") < text.index("`near`")
    for words in (
        f"\\|advantage_shift\\| above {recommend.MOVED} and above three standard errors",
        f"token_ess below {recommend.USABLE_TOKEN_ESS} at a token_tv below {recommend.FEW_TOKENS_TV}",
        f"an info of at least {recommend.USABLE_INFO}",
        f"token_tv above {recommend.FAR_TOKEN_TV}",
        f"seq_tv below {recommend.NEAR_SEQ_TV}",
        f"within {recommend.TIE} of it ({recommend.NEAR_TIE} if the flag is near)",
        f"with fewer than {recommend.FEWEST_SEQUENCES} sequences, with a largest worth below {recommend.LEAST_WORTH}",
    ):
        assert words in text
    assert recommend.ERRORS == 3
    assert recommend.FLAGS == ("moved", "outliers", "far", "near", "weight")
