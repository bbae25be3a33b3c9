"""A store's client that waits for minutes where something takes the connection and is silent, asked in time.

Neither Google's nor Azure's takes a limit for that.  So a call is made in a thread of its own, and left to it when no
answer comes: the thread ends with the client's own patience, or with the process.
"""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import Any

SILENT_S = 45
"""After which a store is taken for silent; where nothing listens, Google's client says so within 40 s."""


class Impatient:
    """A file system of pyarrow's, of which a look at a path and the opening of a file end within `limit_s`.

    Other calls are passed on: a listing or a copy may well take longer, and a look comes before each.
    """

    def __init__(self, files: Any, limit_s: float = SILENT_S) -> None:
        self._files = files
        self._limit_s = limit_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def get_file_info(self, asked: Any) -> Any:
        """Of a path in time, of a selector as long as it takes."""
        ask = self._files.get_file_info
        return self._in_time(ask, asked) if isinstance(asked, str) else ask(asked)

    def open_input_file(self, path: str) -> Any:
        """As pyarrow's."""
        return self._in_time(self._files.open_input_file, path)

    def _in_time(self, call: Callable[[str], Any], path: str) -> Any:
        answer: Future[Any] = Future()

        def ask() -> None:
            try:
                answer.set_result(call(path))
            except BaseException as error:  # whatever it is, it is raised where the answer is waited for
                answer.set_exception(error)

        Thread(target=ask, daemon=True).start()
        try:
            return answer.result(self._limit_s)
        except TimeoutError as error:
            if answer.done():  # the client's own
                raise
            raise TimeoutError(f"no answer within {self._limit_s:g} s") from error
