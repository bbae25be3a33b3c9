"""A report's page and Markdown for tests of what they say, without pictures, which take longest to draw."""

from typing import Any

from rlcorr_cli import analyze
from rlcorr_cli.show.forms import markdown, page
from rlcorr_cli.show.forms.content import content


def words(dump: str, **options: Any) -> tuple[str, str]:
    """Both forms as text.  options: of `analyze`."""
    report = analyze(dump, **options)
    return page.text(report), markdown.text(content(report), [], "none")
