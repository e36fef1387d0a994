"""What a target can do, and how requests to it are repeated.

A target holds files below names with `/`, such as `20260204T203000Z-0a1b2c/manifest.json`:

    NAME/upload.json    written first: of which workspace the backup is
    NAME/…              the files of the backup, as they are
    NAME/manifest.json  written last: only with it the backup counts as present
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePosixPath
from typing import NamedTuple, Protocol, TypeVar

from appliance.backup.errors import TargetFailed, TargetUnreachable
from appliance.backup.settings import BackupSettings
from appliance.kernel.clock import Clock
from appliance.kernel.retry import RetrySettings, delay_seconds

T = TypeVar("T")
Environment = Callable[[str], str | None]
READ_BYTES = 256 * 1024
OBJECTS_MAX = 100_000  # files in a listing, which is in memory; more are refused
RETRY = RetrySettings(initial_seconds=1.0, max_seconds=60.0, jitter=0.1)  # requests


class Stored(NamedTuple):
    """A file at a target. `tag` changes with the content if the target has tags, else it is ""."""

    bytes: int
    tag: str


class BackupTarget(Protocol):
    """All methods raise TargetRefused, or TargetUnreachable if repeating the request may help."""

    name: str

    def list(self, below: str = "") -> dict[str, Stored]:
        """The files, or those of the folder `below`. Raises TargetFailed above OBJECTS_MAX."""

    def read(self, name: str) -> Iterator[bytes]:
        """The content in pieces. Raises TargetObjectMissing."""

    def write(self, name: str, content: Iterable[bytes]) -> str:
        """Writes the file completely or not at all. Returns its tag. Raises what `content` does."""

    def remove(self, name: str) -> None:
        """Removes the file, if it exists."""


class Attempts:
    """Repeats requests, with growing delays, until one deadline for all of them."""

    def __init__(
        self,
        settings: BackupSettings,
        clock: Clock,
        pause: Callable[[float], None],
        attempts_max: int | None = None,
    ) -> None:
        self._attempts_max = attempts_max or settings.upload_attempts_max
        self._clock = clock
        self._pause = pause
        self._deadline = clock.monotonic() + settings.seconds_max

    def run(self, request: Callable[[], T]) -> T:
        """Raises the error of the last attempt, TargetFailed when the time is over."""
        failures = 0
        while True:
            if self._clock.monotonic() >= self._deadline:
                raise TargetFailed("the time for copying is over; the next upload continues")
            try:
                return request()
            except TargetUnreachable:
                failures += 1
                if failures >= self._attempts_max:
                    raise
                self._pause(delay_seconds(RETRY, failures))


def read_all(target: BackupTarget, name: str, bytes_max: int) -> bytes:
    """The content of a small file. Raises TargetFailed if it is larger than `bytes_max`."""
    content = bytearray()
    for piece in target.read(name):
        content += piece
        if len(content) > bytes_max:
            raise TargetFailed(f"{PurePosixPath(name).name} is larger than {bytes_max:,} bytes")
    return bytes(content)
