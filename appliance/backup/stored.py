"""Reads one file in a backup, and compares the content with the manifest."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from appliance.backup.encoding import CHUNK_BYTES, ByteProgress, Sink, Undecodable, decode
from appliance.backup.errors import BackupDamaged, KeyRefused
from appliance.backup.manifest import BackupFile
from appliance.kernel.ownership import open_own


class Nowhere:
    """A sink for content that is only checked."""

    def write(self, data: bytes, /) -> int:
        return len(data)


def read(
    backup_path: Path,
    file: BackupFile,
    target: Sink,
    keys: Sequence[Any] | None,
    progress: ByteProgress = lambda *_: None,
) -> None:
    """Write the content of `file` to `target`; without `keys` for unencrypted files.

    Raises BackupDamaged, KeyRefused before anything is written, and the errors of `target`. Bytes
    that were written before BackupDamaged must not be used.
    """
    stored = pieces(backup_path, file)
    try:
        done = decode(stored, target, bytes_max=file.bytes, identities=keys, progress=progress)
    except Undecodable as error:
        raise _damage_error(file, str(error)) from None
    except KeyRefused:
        check_hash(backup_path, file)  # a changed byte can look like another key
        raise
    if done != (file.bytes, file.sha256):
        raise _damage_error(file, "its content has another hash than the manifest says")


def pieces(backup_path: Path, file: BackupFile) -> Iterator[bytes]:
    """Yield the stored file, which needs no key. Raises BackupDamaged; for a wrong hash at the
    end. Bytes that the system can't read are damage."""
    digest = hashlib.sha256()
    try:
        descriptor = open_own(backup_path / file.name, os.O_RDONLY)
        with os.fdopen(descriptor, "rb", buffering=0) as opened:
            size = os.fstat(descriptor).st_size
            if size != file.stored_bytes:
                raise _damage_error(file, f"has {size:,} bytes instead of {file.stored_bytes:,}")
            while piece := opened.read(CHUNK_BYTES):
                digest.update(piece)
                yield piece
    except FileNotFoundError:
        raise _damage_error(file, "it is missing") from None
    except OSError as error:
        raise _damage_error(file, f"it can't be read: {error.strerror}") from None
    if digest.hexdigest() != file.stored_sha256:
        raise _damage_error(file, "it has another hash than the manifest says")


def check_hash(backup_path: Path, file: BackupFile) -> None:
    """Compare the stored file's size and hash. Raises BackupDamaged."""
    for _ in pieces(backup_path, file):
        pass


def _damage_error(file: BackupFile, problem: str) -> BackupDamaged:
    return BackupDamaged(f"{file.name}: {problem}", details={"file": file.name})
