"""Local files: locked, written as a whole, synced. Errors of the system become those of jobs."""

import fcntl
import os
import re
from argparse import ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from spark.errors import OutputBusy, OutputNotWritable

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


def local_folder(text: str) -> Path:
    """The directory of an argument: a path, or a URL with `file:`. Others are refused, because a
    path of that name would be a directory of this machine."""
    if not URL.match(text):
        return Path(text)
    parts = urlsplit(text)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise ArgumentTypeError(
            f"{parts.scheme}: is not supported; use a directory that all processes share"
        )
    return Path(unquote(parts.path))


@contextmanager
def locked(folder: Path, busy: OutputBusy) -> Iterator[None]:
    """Hold the lock of a folder. Raises `busy` if another process holds it."""
    with writable(folder):
        lock = (folder / ".lock").open("a")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise busy from None
        yield


@contextmanager
def writable(root: Path) -> Iterator[None]:
    """Convert OSError to OutputNotWritable."""
    try:
        yield
    except OSError as error:
        raise OutputNotWritable(f"{root} cannot be written: {error.strerror}") from None


def write_whole(path: Path, text: str, prefix: str = ".") -> None:
    """Write and sync `text`: after a kill, the file has the old or the new text.

    prefix  how the name of the file begins until it is complete; another attempt replaces that file
    """
    draft = path.with_name(f"{prefix}{path.name}.part")
    write_synced(draft, text)
    draft.replace(path)
    sync_folder(path.parent)


def write_synced(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
