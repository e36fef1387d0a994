"""Records that a starting server is migrating, which may take long, for the process that waits.

The file names the process of the server. A killed server leaves it behind; it is ignored then,
because no other process waits for a server with that number.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from appliance.kernel.datadir import DataDir, read_small

_FILE = "migrating.json"


class MigrationPhase(msgspec.Struct, frozen=True):
    """`phase` completes the sentence "the appliance is …"."""

    pid: int
    phase: str


@contextmanager
def announced(datadir: DataDir, phase: str) -> Iterator[None]:
    """Records what this process does while the block runs. If it can't, the block runs anyway."""
    path = _path(datadir)
    with suppress(OSError):
        path.write_bytes(msgspec.json.encode(MigrationPhase(os.getpid(), phase)))
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def phase_of(datadir: DataDir, pid: int) -> str:
    """What the process recorded last; "" if it is not migrating."""
    try:
        noted = msgspec.json.decode(read_small(_path(datadir)) or b"", type=MigrationPhase)
    except msgspec.DecodeError:
        return ""
    return noted.phase if noted.pid == pid else ""


def _path(datadir: DataDir) -> Path:
    return datadir.lock_file.with_name(_FILE)
