"""Take the picture of the token page that README shows: `python make_tokens.py`, with playwright and Chromium."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
SAMPLES = HERE.parent
DUMP, TOKENIZER = SAMPLES / "smollm2_steps.parquet", SAMPLES / "tokenizer.json"
ROWS = ("--where", "step = 4", "--worst", "12", "--tokenizer", str(TOKENIZER))
PLAN = ("--is", "token:,2", "--rs", "k3.token:,0.5")

with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
    path = Path(folder) / "tokens.html"
    subprocess.run(["rlcorr", "inspect", str(DUMP), *ROWS, *PLAN, "-o", str(path)], check=True, capture_output=True)
    browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
    page = browser.new_page(viewport={"width": 1000, "height": 560}, color_scheme="light")
    page.goto(path.as_uri())
    page.select_option("[name=sort]", "n")
    page.locator(".card").nth(2).scroll_into_view_if_needed()
    page.evaluate("document.querySelectorAll('.card')[1].scrollIntoView()")
    page.wait_for_timeout(500)
    page.locator(".card").nth(1).locator(".tokens b.far").first.hover()
    page.screenshot(path=HERE / "tokens.png")
    browser.close()
