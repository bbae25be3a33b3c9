"""What lies in a folder of a store, the same for all of them."""

from typing import Any

from pyarrow import fs


def entries(files: Any, folder: str, *, recursive: bool) -> list[fs.FileInfo]:
    """Files and folders in a folder, or also further below; a FileNotFoundError where there is none."""
    if files.type_name != "gcs":
        return files.get_file_info(fs.FileSelector(folder, recursive=recursive))
    return _of_keys(files, folder, recursive=recursive)


def _of_keys(files: Any, folder: str, *, recursive: bool) -> list[fs.FileInfo]:
    """Of Google's store pyarrow tells the folders that it made itself, and no others: keys tell them all."""
    infos = files.get_file_info(fs.FileSelector(folder, recursive=True, allow_not_found=True))
    if not infos and files.get_file_info(folder).type != fs.FileType.Directory:
        raise FileNotFoundError(folder)
    start = len(folder) + 1
    below = {info.path: info for info in infos if info.type == fs.FileType.File}
    folders = {info.path for info in infos if info.type == fs.FileType.Directory}
    for path in below:
        parts = path[start:].split("/")
        folders |= {f"{folder}/{'/'.join(parts[:n])}" for n in range(1, len(parts))}
    all_infos = [*below.values(), *(fs.FileInfo(path, fs.FileType.Directory) for path in folders)]
    return [info for info in all_infos if recursive or "/" not in info.path[start:]]
