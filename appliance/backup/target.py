"""What a target can do.

A target holds files below names with `/`, such as `20260204T203000Z-0a1b2c/manifest.json`:

    NAME/…              the files of the backup, as they are
    NAME/manifest.json  written last: only with it the backup counts as present
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

READ_BYTES = 256 * 1024
OBJECTS_MAX = 500_000  # files in a listing, which is in memory, 100 MB; more are refused


class BackupTarget(Protocol):
    """All methods raise TargetRefused, or TargetUnreachable if it may help to try again later."""

    name: str

    def list(self, below: str = "") -> dict[str, int]:
        """The sizes of the files, or of those of the folder `below`, by name. Raises TargetFailed
        above OBJECTS_MAX."""

    def read(self, name: str) -> Iterator[bytes]:
        """The content in pieces. Raises TargetObjectMissing."""

    def write(self, name: str, content: Iterable[bytes]) -> None:
        """Writes the file completely or not at all. Raises what `content` does."""

    def remove(self, name: str) -> None:
        """Removes the file, if it exists."""
