"""The manual's pages are what the tables say."""

from rlcorr_cli.metrics.catalog import GROUPS
from rlcorr_cli.results.rules import RULES
from rlcorr_cli.show.manual import METRICS_PAGE, metrics_page


def test_the_page_of_metrics_is_up_to_date() -> None:
    written = METRICS_PAGE.read_text(encoding="utf-8")
    assert written == metrics_page(), "write it again: python -m rlcorr_cli.show.manual"


def test_the_page_has_a_section_for_every_metric_and_tells_every_rule() -> None:
    page = metrics_page()
    for rows in GROUPS.values():
        for row in rows:
            assert f"### {row.name}\n\n`{row.formula}`\n\n{row.meaning}\n" in page
    for rule in RULES:
        limit = f", or {rule.limit} if that is lower" if rule.limit else ""
        assert f"- Rule ({rule.severity}): {rule}{limit}. {rule.remedy}\n" in page
