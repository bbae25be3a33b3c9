"""Nothing that a test waits for may take for ever: a signal that is lost, or a worker that hangs, fails one test."""

import select
import subprocess
from typing import Any

LIMIT_SECONDS = 300.0
"""Of one wait, however busy the machine is."""


class LimitedProcess(subprocess.Popen[Any]):
    """A process that is waited for no longer than LIMIT_SECONDS, and killed where its test fails."""

    def wait(self, timeout: float | None = LIMIT_SECONDS) -> int:
        return super().wait(timeout)

    def communicate(self, input: Any = None, timeout: float | None = LIMIT_SECONDS) -> tuple[Any, Any]:
        return super().communicate(input, timeout)

    def first_line(self) -> Any:
        """What it prints first."""
        assert self.stdout is not None
        assert select.select([self.stdout], [], [], LIMIT_SECONDS)[0], "it prints nothing"
        return self.stdout.readline()

    def __exit__(self, kind: type[BaseException] | None, *error: Any) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, *error)
