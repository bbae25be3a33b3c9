"""Pages in a browser: the tests that need one are skipped where Chromium is not installed."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Each of its pages has cookies, storage and a cache of its own."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed (Debian: apt-get install chromium)")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


class Visit:
    """A page opened in a browser, with what it complained about and what it asked for."""

    def __init__(self, browser: Any, path: Path, width: int = 1100, scheme: str = "light") -> None:
        self.page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())

    def is_quiet(self, path: Path) -> bool:
        return not self.said and [url for url in self.asked if not url.startswith("data:")] == [path.as_uri()]

    def column(self, n: int) -> list[str]:
        name = "by-group" if self.page.query_selector("#by-group") else "by-step"
        rows = f"#{name} ~ table tbody tr"
        return self.page.eval_on_selector_all(rows, f"rows => rows.map(r => r.children[{n}].textContent)")
