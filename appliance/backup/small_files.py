"""Reads the files that a backup contains besides the stores, with their content at the cut."""

import os
import stat
from pathlib import Path
from typing import NamedTuple

import msgspec

from appliance.backup.errors import BackupNotWritable
from appliance.workspace.contents import CONTENTS, Kind
from appliance.workspace.datadir import DIRECTORY, DataDir

IDENTITY, AGENTS, AGENT_STATE = "identity", "network", "state.sqlite3"
KEY_PAIR = f"{DIRECTORY}/{IDENTITY}/keypair.json"
_BYTES_MAX = 16 * 1024 * 1024
_FILES_MAX = 1_000


class SmallFile(NamedTuple):
    """A file that is read completely. `path`: relative to the workspace, with /."""

    path: str
    kind: Kind
    mode: int
    content: bytes


def read_all(datadir: DataDir) -> tuple[SmallFile, ...]:
    """Return secrets, settings and records. Called while no store can be written.

    Raises BackupNotWritable for a file that can't be read or is larger than 16 MiB.
    """
    files = [_read(datadir, path, kind) for path, kind in _candidates(datadir)]
    return tuple(file for file in files if file is not None)


def identity_of(files: tuple[SmallFile, ...]) -> str:
    """Return the member's public key; "" without a readable key."""
    for file in files:
        if file.path == KEY_PAIR:
            try:
                return msgspec.json.decode(file.content, type=_KeyPair).ed25519_pubkey
            except msgspec.DecodeError:
                return ""
    return ""


class _KeyPair(msgspec.Struct):
    ed25519_pubkey: str


def _candidates(datadir: DataDir) -> list[tuple[Path, Kind]]:
    """Return the files to read. Raises BackupNotWritable if there are too many files to read
    while no store can be written. Agent states are databases, which are copied."""
    kinds: tuple[Kind, ...] = ("settings", "secret", "record")
    rows = [(r, kind) for kind in kinds for r in CONTENTS if r.kind == kind and not r.sqlite]
    files = [(path, kind) for row, kind in rows for path in sorted(row.find(datadir.workspace))]
    if len(files) > _FILES_MAX:
        raise BackupNotWritable(
            f"the workspace has more than {_FILES_MAX:,} job files, plugins and secrets",
            hint="move unneeded files elsewhere: ls jobs plugins .agentlip/network",
        )
    return files


def _read(datadir: DataDir, path: Path, kind: Kind) -> SmallFile | None:
    relative = path.relative_to(datadir.workspace).as_posix()
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return None
            content = file.read(_BYTES_MAX + 1)
    except (FileNotFoundError, IsADirectoryError):
        return None
    except OSError as error:
        raise BackupNotWritable(
            f"{relative} can't be read: {error.strerror}", hint=f"ls -l {relative}"
        ) from error
    if len(content) > _BYTES_MAX:
        raise BackupNotWritable(f"{relative} is larger than {_BYTES_MAX:,} bytes")
    return SmallFile(relative, kind, stat.S_IMODE(status.st_mode) & 0o777, content)
