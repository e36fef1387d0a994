"""Implements a target in a directory, for example a mounted disk. Files are written unchanged."""

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from appliance.backup.errors import (
    TargetFailed,
    TargetObjectMissing,
    TargetRefused,
    TargetUnreachable,
)
from appliance.backup.target import OBJECTS_MAX, READ_BYTES
from appliance.kernel.ownership import open_own
from appliance.kernel.whole_file import sync_directory, whole_file

_TEMPORARY = ".writing-"
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG}


class DirectoryTarget:
    """A target directory, which must exist. The directory is not created, because the disk may
    not be mounted."""

    def __init__(self, name: str, root: Path) -> None:
        self.name = name
        self._root = root

    def list(self, below: str = "") -> dict[str, int]:
        with self._report_errors():
            self._check_root()
            listed: dict[str, int] = {}
            folders = [below] if below else [entry.name for entry in os.scandir(self._root)]
            for folder in folders:
                for name, entry in self._entries(folder):
                    listed[name] = entry.stat(follow_symlinks=False).st_size
                    if len(listed) > OBJECTS_MAX:
                        raise TargetFailed(f"the target has more than {OBJECTS_MAX:,} files")
            return listed

    def read(self, name: str) -> Iterator[bytes]:
        with self._report_errors():
            self._check_root()
            try:
                descriptor = open_own(self._root / name, os.O_RDONLY)
            except FileNotFoundError:
                raise TargetObjectMissing(f"the target does not have {name}") from None
            with os.fdopen(descriptor, "rb") as file:
                while piece := file.read(READ_BYTES):
                    yield piece

    def write(self, name: str, content: Iterable[bytes]) -> None:
        with self._report_errors():
            self._check_root()
            path = self._root / name
            if not path.parent.is_dir():
                path.parent.mkdir(mode=0o700)
                sync_directory(self._root)
            self._remove_leftovers(path.parent, path.name)
            with whole_file(path, prefix=_TEMPORARY) as file:
                file.writelines(content)

    def remove(self, name: str) -> None:
        with self._report_errors():
            self._check_root()
            path = self._root / name
            path.unlink(missing_ok=True)
            with suppress(OSError):  # other files are left
                path.parent.rmdir()

    def _entries(self, folder: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        with suppress(FileNotFoundError, NotADirectoryError):
            for entry in os.scandir(self._root / folder):
                if entry.is_file(follow_symlinks=False) and not entry.name.startswith(_TEMPORARY):
                    yield f"{folder}/{entry.name}", entry

    def _remove_leftovers(self, folder: Path, name: str) -> None:
        """Remove a killed upload's leftovers for this file."""
        for entry in os.scandir(folder):
            if entry.name.startswith(f"{_TEMPORARY}{name}."):
                Path(entry.path).unlink(missing_ok=True)

    def _check_root(self) -> None:
        if not self._root.is_dir():
            raise TargetRefused(
                f"the directory for target {self.name} does not exist",
                hint=f"mount the disk, or create the directory: mkdir -p {self._root}",
            )

    @contextmanager
    def _report_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = f"target {self.name}: {os.strerror(error.errno or errno.EIO)}"
            if error.errno in _REFUSED:
                raise TargetRefused(
                    reason, hint=f"check its space and owner: df -h {self._root}"
                ) from None
            raise TargetUnreachable(reason) from None
