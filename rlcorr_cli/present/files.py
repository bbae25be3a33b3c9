"""Files of a report or a picture: whole or not at all."""

import os
from pathlib import Path

from rlcorr_cli.errors import OutputError


def replace_file(path: Path, content: bytes) -> None:
    """Write a file under a temporary name, then give it its own."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise OutputError(f"Cannot write {path}: {error.strerror}.", "Name another place with -o.") from None
    finally:
        temporary.unlink(missing_ok=True)
