"""A report's page and Markdown for tests of what they say, without pictures, which take longest to draw."""

from typing import Any

from rlcorr_cli import analyze
from rlcorr_cli.show import document_of
from rlcorr_cli.show.forms import page, texts


def words(dump: str, **options: Any) -> tuple[str, str]:
    """Both forms as text.  options: of `analyze`."""
    report = analyze(dump, **options)
    return page.page_html(document_of(report)), texts.markdown(document_of(report), {})
