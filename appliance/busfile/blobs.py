"""Files named after their content, `blobs/sha256-<hex>`: payloads above 4,096 bytes, and the files
that agents put into the hub."""

import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from appliance.busfile.file import unwritable
from appliance.kernel.ownership import open_own, read_regular
from appliance.kernel.whole_file import sync_directory, write_whole

INLINE_BYTES_MAX = 4096
BLOB_BYTES_MAX = 64 * 1024 * 1024
"""A larger payload belongs into a workspace file whose path the message has."""
_NAME = re.compile(r"sha256-[0-9a-f]{64}")
_PARTIAL = ".put-"


def save(folder: Path, content: bytes) -> str:
    """Store `content` and return its reference. The file is whole, also after kill -9.

    Call before the message's transaction, so that nobody else waits for the disk.
    """
    ref = f"sha256-{hashlib.sha256(content).hexdigest()}"
    path = folder / ref
    try:
        try:
            with suppress(PermissionError):  # another user's
                os.utime(path)  # renew, so that nothing deletes the file before the message exists
        except FileNotFoundError:
            make_folder(folder)
            write_whole(path, content, private=False)
    except OSError as error:
        raise unwritable(error, folder.parent) from error
    return ref


def make_folder(folder: Path) -> None:
    """Make the folder, also before there is a bus. Raises OSError."""
    if not folder.is_dir():
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        sync_directory(folder.parent)


class PartialBlob:
    """A file that is being received. `publish` gives the file its name; `discard` removes it."""

    def __init__(self, folder: Path) -> None:
        """Open a new file. Raises OSError."""
        make_folder(folder)
        self._path = folder / f"{_PARTIAL}{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        self._file = os.fdopen(open_own(self._path, flags), "wb")
        self._hash = hashlib.sha256()
        self.size = 0

    @property
    def digest(self) -> str:
        """Return the hash of the bytes so far, in hexadecimal digits."""
        return self._hash.hexdigest()

    def add(self, data: bytes) -> None:
        """Append bytes. Raises OSError."""
        self._hash.update(data)
        self._file.write(data)
        self.size += len(data)

    def publish(self) -> None:
        """Sync the file and name it, in place of a damaged one. Raises OSError."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._path.rename(path_of(self._path.parent, self.digest))
        sync_directory(self._path.parent)

    def discard(self) -> None:
        """Close the file, and remove it unless it was published."""
        with suppress(OSError):  # the disk is full
            self._file.close()
        with suppress(OSError):
            self._path.unlink()


def path_of(folder: Path, digest: str) -> Path:
    return folder / f"sha256-{digest}"


def delete_older(path: Path, time_ms: int) -> None:
    """Delete a file unless a program has saved its content again since `time_ms`. Raises
    OSError."""
    with suppress(FileNotFoundError):
        if path.stat().st_mtime_ns // 1_000_000 <= time_ms:
            path.unlink()


def discard_partial(folder: Path) -> int:
    """Remove files that a killed process was receiving; return how many. Raises OSError."""
    left = list(folder.glob(f"{_PARTIAL}*"))
    for path in left:
        path.unlink(missing_ok=True)
    return len(left)


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
