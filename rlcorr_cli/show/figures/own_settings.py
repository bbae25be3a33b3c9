"""matplotlib under settings of rlcorr's own: what a user set for other programs neither changes a picture nor stops it.

Its import reads files and variables (`matplotlibrc` here, at home and where MATPLOTLIBRC says, MPLBACKEND), and fails
over some of them, so it happens here first, with these out of its sight.  Somebody who draws with it in the same
process keeps their settings: `settings` puts them back.
"""

import logging
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from rlcorr_cli.errors import OutputError

_LOG = logging.getLogger("matplotlib")


def load() -> None:
    """Import matplotlib, unless it is there already."""
    if "matplotlib" in sys.modules:
        return
    try:
        with _quiet(), _environment(MPLBACKEND=None, MATPLOTLIBRC=os.devnull), _no_file_here():
            import_module("matplotlib.figure")  # with the list of fonts, whose cache is in a folder beside the settings
            _remove_temporary(import_module("matplotlib").get_cachedir())
    except OSError as error:
        message = f"matplotlib cannot keep its list of fonts: {error.strerror or error}."
        raise OutputError(message, "Name a directory that can be written with MPLCONFIGDIR, or TMPDIR.") from None


@contextmanager
def settings(own: Any) -> Generator[None]:
    """Its defaults and these settings, whatever others there are."""
    import matplotlib as mpl

    with _quiet(), mpl.rc_context():
        dict.update(mpl.rcParams, {key: value for key, value in dict.items(mpl.rcParamsDefault) if key != "backend"})
        mpl.rcParams.update(own)
        yield


@contextmanager
def _quiet() -> Generator[None]:
    """No word of matplotlib's: of folders it would rather have, of letters that its fonts lack."""
    level = _LOG.level
    _LOG.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            yield
    finally:
        _LOG.setLevel(level)


@contextmanager
def _environment(**variables: str | None) -> Generator[None]:
    """These variables of the environment; None: unset.  matplotlib's own changes to it are undone as well."""
    before = {name: os.environ.get(name) for name in (*variables, "MPLCONFIGDIR")}
    _set(variables)
    try:
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def _no_file_here() -> Generator[None]:
    """Another working directory, if this one has a `matplotlibrc`: it would be read whatever the environment says."""
    if not os.path.lexists("matplotlibrc"):
        yield
        return
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(Path(__file__).parent)
        yield
    finally:
        os.fchdir(here)
        os.close(here)


def _remove_temporary(folder: str) -> None:
    """Remove the folder that matplotlib makes where none can be written; it would at exit, which we take short."""
    path = Path(folder)
    if path.parent == Path(tempfile.gettempdir()) and path.name.startswith("matplotlib-"):
        with suppress(OSError):
            shutil.rmtree(path)
