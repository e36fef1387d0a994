"""Payloads above 4,096 bytes, as files named after their content: `blobs/sha256-<hex>`."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from appliance.busfile.file import unwritable
from appliance.kernel.ownership import read_regular
from appliance.kernel.whole_file import sync_directory, write_whole

INLINE_BYTES_MAX = 4096
BLOB_BYTES_MAX = 64 * 1024 * 1024
"""A larger payload belongs into a workspace file whose path the message has."""
_NAME = re.compile(r"sha256-[0-9a-f]{64}")


def save(folder: Path, content: bytes) -> str:
    """Store `content` and return its reference. The file is whole, also after kill -9.

    Call before the message's transaction, so that nobody else waits for the disk.
    """
    ref = f"sha256-{hashlib.sha256(content).hexdigest()}"
    path = folder / ref
    try:
        if not path.exists():
            if not folder.is_dir():
                folder.parent.mkdir(mode=0o700, exist_ok=True)  # also before there is a bus
                folder.mkdir(mode=0o700, exist_ok=True)
                sync_directory(folder.parent)
            write_whole(path, content, private=False)
    except OSError as error:
        raise unwritable(error, folder.parent) from error
    return ref


def load(folder: Path, ref: str) -> bytes | None:
    """Return a blob's content; None if it is missing or `ref` does not name a blob."""
    try:
        return read_regular(folder / ref, BLOB_BYTES_MAX) if _NAME.fullmatch(ref) else None
    except OSError:
        return None


def size(folder: Path, ref: str) -> int:
    """Return a blob's size in bytes; 0 if it is missing or `ref` does not name a blob."""
    try:
        return (folder / ref).lstat().st_size if _NAME.fullmatch(ref) else 0
    except OSError:
        return 0


def names(folder: Path) -> Iterator[str]:
    """Yield all blobs' references in the folder, without temporary files."""
    if folder.is_dir():
        yield from (path.name for path in folder.iterdir() if _NAME.fullmatch(path.name))
