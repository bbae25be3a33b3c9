"""What decoding a framework's file alone takes, for native.py: pickles with stubs for the frameworks' classes.

A decode has every value in memory: `unzip` reads each storage of a file of torch's, and `torch.load` without `mmap`
makes a tensor of each.
"""

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch


class Stub:
    """Whatever a pickle names."""

    def __init__(self, *args: Any) -> None:
        self.args = args

    def __setstate__(self, state: Any) -> None:
        self.state = state


class Unpickler(pickle.Unpickler):
    """As `pickle.loads`, with stubs for the frameworks' classes."""

    def find_class(self, module: str, name: str) -> Any:
        return Stub

    def persistent_load(self, pid: Any) -> Any:
        return pid


def unpickle(path: Path) -> None:
    """A pickle, all of it in memory."""
    Unpickler(io.BytesIO(path.read_bytes())).load()


def load(path: Path) -> None:
    """A file of torch's by torch itself, in the way that runs nothing of it."""
    torch.load(path, map_location="cpu", weights_only=True)


def unzip(path: Path) -> None:
    """A file of torch's: its pickle with stubs, so no tensors, and every storage as the bytes that it is."""
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            data = archive.read(entry)
            if entry.filename.endswith("data.pkl"):
                Unpickler(io.BytesIO(data)).load()
