"""How large the page of 200 rows of 4,000 tokens is, and how long it takes to open.

`python tests/benchmarks/token_page.py`.  It is compared with a page of as many bytes of plain text, in the same
browser; and it is scrolled through by screens, of which the longest frame is told.  With an earlier page as an
argument, nothing is made anew.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from html import escape
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from playwright.sync_api import sync_playwright

N_ROWS, N_TOKENS = 200, 4000
WORDS = ("the", "of", "and", "to", "in", "is", "that", "for", "it", "as", "was", "with", "reasoning", "therefore")
RUNS = 3
SCROLL = """async () => {
  let longest = 0, before = performance.now(), screens = 0;
  const frame = () => new Promise(requestAnimationFrame);
  while (screens++ < 150) {
    scrollBy({ top: innerHeight, behavior: "instant" });
    await frame();
    const now = performance.now();
    longest = Math.max(longest, now - before);
    before = now;
  }
  return longest;
}"""


def made(folder: Path) -> Path:
    """The page, by the command."""
    draw = np.random.default_rng(0)
    dump, page = folder / "dump.jsonl", folder / "tokens.html"
    with dump.open("w") as file:
        for i in range(N_ROWS):
            rollout = -draw.exponential(1.0, N_TOKENS)
            row: dict[str, Any] = {
                "sample_id": f"s{i}",
                "rollout_log_probs": rollout.tolist(),
                "old_log_probs": np.minimum(rollout + draw.normal(0, 0.2, N_TOKENS), 0).tolist(),
                "entropy": draw.exponential(1.0, N_TOKENS).tolist(),
                "response_tokens": [f" {WORDS[w]}" for w in draw.integers(0, len(WORDS), N_TOKENS)],
                "response_token_ids": draw.integers(0, 150_000, N_TOKENS).tolist(),
            }
            file.write(json.dumps(row) + "\n")
    started = time.perf_counter()
    options = ("--worst", str(N_ROWS), "--is", "token:,2", "--rs", "k3.token:,0.1", "-o", str(page))
    subprocess.run(["rlcorr", "inspect", str(dump), *options], check=True, capture_output=True)
    print(f"made in {time.perf_counter() - started:.1f} s")
    return page


def opened(browser: Any, page: Path) -> float:
    """Milliseconds until the page is loaded and painted, the median of some runs."""
    taken = []
    for _ in range(RUNS):
        tab = browser.new_page(viewport={"width": 1200, "height": 900})
        started = time.perf_counter()
        tab.goto(page.as_uri())
        tab.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        taken.append(1000 * (time.perf_counter() - started))
        tab.close()
    return median(taken)


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = Path(sys.argv[1]) if len(sys.argv) > 1 else made(Path(folder))
        plain = Path(folder) / "plain.html"
        n_bytes = page.stat().st_size
        text = escape(" ".join(WORDS))
        paragraph = f"<p>{(text + ' ') * 40}</p>\n"
        plain.write_text(f"<!doctype html><title>x</title>{paragraph * (n_bytes // len(paragraph))}")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        ours, theirs = opened(browser, page), opened(browser, plain)
        tab = browser.new_page(viewport={"width": 1200, "height": 900})
        tab.goto(page.as_uri())
        longest = tab.evaluate(SCROLL)
        browser.close()
    print(f"{n_bytes / 1e6:.1f} MB; opens in {ours:.0f} ms, plain text in {theirs:.0f} ms ({ours / theirs:.2f} of it)")
    print(f"scrolled by 150 screens; the longest frame took {longest:.0f} ms")


if __name__ == "__main__":
    main()
