"""rlcorr under its own name: the public names of `rlcorr_cli`, which load when they are first asked for."""

from typing import Any

import rlcorr_cli

__version__ = rlcorr_cli.__version__


def __getattr__(name: str) -> Any:
    return getattr(rlcorr_cli, name)


def __dir__() -> list[str]:
    return dir(rlcorr_cli)
