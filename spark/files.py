"""Writes files: locked, whole, synced. System errors become job errors."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spark.errors import OutputBusy, OutputNotWritable
from spark.locations import Location, as_object


@contextmanager
def locked(folder: Path, busy: OutputBusy) -> Iterator[None]:
    """Hold a directory's lock. Raises `busy` if another process holds the lock."""
    with writable(folder):
        lock = (folder / ".lock").open("a")
    with lock:
        with writable(folder):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise busy from None
        yield


@contextmanager
def writable(root: Location) -> Iterator[None]:
    """Lock, write and sync files. System errors become job errors."""
    try:
        yield
    except OSError as error:
        raise OutputNotWritable(f"{root} cannot be written: {error.strerror}") from None


def write_whole(path: Location, text: str, prefix: str = ".") -> None:
    """Write and sync `text`: after a kill, the file has the old or the new text.

    prefix  begins the file's name until it is complete; another attempt replaces that file
    """
    if as_object(path):
        path.write_bytes(text.encode())
        return
    draft = path.with_name(f"{prefix}{path.name}.part")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_folder(path.parent)


def remove_folder(path: Location) -> None:
    """Remove a folder with all its files, if it exists."""
    if as_object(path):
        for file in path.rglob("*"):
            file.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def sync_folder(path: Location) -> None:
    if as_object(path):
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
