"""Limits how long a start may take, and shows the waiting process the server's step.

A start ends within START_SECONDS_MAX. Work that may take longer is announced in a file: a
migration, its backup, reading a large write-ahead log. As long as the announced work goes on, the
limit counts from the work that was seen last. The file names the server's process. A killed server
leaves the file behind, which is then ignored, because no other process waits for a server with that
number.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from appliance.kernel.clock import Clock
from appliance.kernel.errors import ApplianceError
from appliance.kernel.json_file import read_json
from appliance.workspace.datadir import DataDir

START_SECONDS_MAX = 55.0  # for `agentlipd up` and `restart`, then SIGTERM and SIGKILL: below 60 s
ANNOUNCED_SECONDS_MAX = 4 * 3600.0  # backup and migration for a large workspace
WORK_SECONDS = 1.0  # processor time that counts as work; a process that waits uses less
WORK_BYTES = 1 << 20  # read or written bytes that count as work
_FILE = "starting.json"


class StartPhase(msgspec.Struct, frozen=True):
    """Announced work. `phase` completes the sentence "the appliance is …"."""

    pid: int
    phase: str


class StartDeadline:
    """The time by which a start has to end."""

    def __init__(self, clock: Clock, seconds_max: float = START_SECONDS_MAX) -> None:
        self._clock = clock
        self._seconds_max = seconds_max
        self._began = self._since = clock.monotonic()
        self._seen = (0.0, 0)

    def left(self) -> float:
        """Return the seconds until a start without announced work has to end, 0 after that."""
        return max(0.0, self._since + self._seconds_max - self._clock.monotonic())

    def has_passed(self, datadir: DataDir, pid: int) -> bool:
        """Return whether the start in process `pid` has to end now."""
        now = self._clock.monotonic()
        if now - self._began < ANNOUNCED_SECONDS_MAX and phase_of(datadir, pid):
            seconds, size = work_of(pid)
            if seconds - self._seen[0] >= WORK_SECONDS or size - self._seen[1] >= WORK_BYTES:
                self._seen, self._since = (seconds, size), now
        return now - self._since >= self._seconds_max


@contextmanager
def announce_phase(datadir: DataDir, phase: str) -> Iterator[None]:
    """Record the process's step during the block, which runs even if that fails."""
    path = _path(datadir)
    outer = phase_of(datadir, os.getpid())
    _record(datadir, phase)
    try:
        yield
    finally:
        if outer:
            _record(datadir, outer)
        else:
            with suppress(OSError):
                path.unlink(missing_ok=True)


def _record(datadir: DataDir, phase: str) -> None:
    with suppress(ApplianceError):
        text = msgspec.json.encode(StartPhase(os.getpid(), phase)).decode()
        datadir.write_private(_path(datadir), text)


def phase_of(datadir: DataDir, pid: int) -> str:
    """Return the process's last record; "" if it announced no long work."""
    noted = read_json(_path(datadir), StartPhase)
    return noted.phase if noted and noted.pid == pid else ""


def work_of(pid: int) -> tuple[float, int]:
    """Return a process's and its children's processor seconds, and bytes read and written."""
    seconds, size = 0.0, 0
    for child in (pid, *_children(pid)):
        with suppress(OSError, ValueError, IndexError):
            process = Path("/proc", str(child))
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            lines = (process / "io").read_text().splitlines()
            size += sum(int(line.split()[1]) for line in lines if line.startswith(("rch", "wch")))
    return seconds, size


def _children(pid: int) -> list[int]:
    try:
        return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (OSError, ValueError):
        return []


def _path(datadir: DataDir) -> Path:
    return datadir.lock_file.with_name(_FILE)
