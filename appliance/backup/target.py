"""Defines the target operations.

A target holds files below names with `/`, such as `20260204T203000Z-0a1b2c/manifest.json`:

    NAME/…              the backup's files, unchanged
    NAME/manifest.json  written last: without a manifest the backup does not count as present
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

READ_BYTES = 256 * 1024
OBJECTS_MAX = 500_000  # files in a listing, which is in memory, 100 MB; more are refused


class BackupTarget(Protocol):
    """A target. All methods raise TargetRefused, or TargetUnreachable if a later attempt may
    succeed."""

    name: str

    def list(self, below: str = "") -> dict[str, int]:
        """Return the file sizes by name, for all files or the folder `below`. Raises
        TargetFailed above OBJECTS_MAX."""

    def read(self, name: str) -> Iterator[bytes]:
        """Yield the content in pieces. Raises TargetObjectMissing."""

    def write(self, name: str, content: Iterable[bytes]) -> None:
        """Write the file completely or not at all. Raises the errors from `content`."""

    def remove(self, name: str) -> None:
        """Remove the file, if present."""
