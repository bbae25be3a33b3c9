"""The progress bar on stderr, for terminals only: bytes done, tokens a second."""

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn


class Bar:
    """A context that draws the bar; `advance` is called after each shard."""

    def __init__(self, n_bytes: int) -> None:
        columns = (
            TextColumn("reading"),
            BarColumn(),
            DownloadColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=Console(file=sys.stderr), transient=True)
        self._task = self._progress.add_task("reading", total=n_bytes or None, rate="")
        self._tokens = 0
        self._started = time.perf_counter()

    def advance(self, tokens: int, n_bytes: int) -> None:
        """Count one more shard as done."""
        self._tokens += tokens
        rate = self._tokens / max(time.perf_counter() - self._started, 1e-9)
        self._progress.update(self._task, advance=n_bytes, rate=f"{rate / 1e6:.1f} M tokens/s")

    def __enter__(self) -> "Bar":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._progress.stop()
