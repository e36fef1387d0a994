"""Files that are written completely or not at all, and survive a power failure."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from appliance.kernel.ownership import open_own


def write_whole(path: Path, content: bytes, *, prefix: str = ".", private: bool = True) -> None:
    """Write a file as `whole_file` does."""
    try:
        with whole_file(path, prefix=prefix, private=private) as file:
            file.write(content)
    except OSError as error:
        error.filename = str(path)  # not the temporary name
        raise


@contextmanager
def whole_file(path: Path, *, prefix: str = ".", private: bool = True) -> Iterator[BinaryIO]:
    """Write a file that gets its name after the block. A failed block changes nothing.

    prefix   begins the file's name until then
    private  for the owner only; otherwise the umask decides
    """
    temporary = path.with_name(f"{prefix}{path.name}.{os.urandom(8).hex()}")
    try:
        with new_file(temporary, private=private) as file:
            yield file
        temporary.rename(path)
        sync_directory(path.parent)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def new_file(path: Path, *, private: bool = True) -> Iterator[BinaryIO]:
    """Open a file that did not exist, synced when the block ends."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(open_own(path, flags, 0o600 if private else 0o666), "wb") as file:
        if private and os.fstat(file.fileno()).st_mode & 0o600 != 0o600:
            os.fchmod(file.fileno(), 0o600)  # the umask has removed more bits
        yield file
        file.flush()
        os.fsync(file.fileno())


def sync_file(path: Path) -> None:
    _sync(path, os.O_RDONLY)


def sync_directory(path: Path) -> None:
    """Make names that were created or renamed in `path` survive a power failure."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
