"""The last failures, in `.agentlip/backups`, so that commands show them while nothing runs.

They stay there if `backup.directory` is elsewhere, because that may be what fails.
"""

from pathlib import Path

import msgspec

from appliance.backup import wire
from appliance.backup.backup_directory import writing
from appliance.kernel.whole_file import write_whole

FILE = "failures.json"
_BYTES_MAX = 65_536


def write_failures(root: Path, failures: list[wire.BackupFailure]) -> None:
    """Raises BackupNotWritable."""
    with writing():
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(root / FILE, msgspec.json.encode(failures))


def read_failures(root: Path) -> list[wire.BackupFailure]:
    """The last failures; none if the file is missing or can't be decoded."""
    try:
        with (root / FILE).open("rb") as file:
            text = file.read(_BYTES_MAX)
        return msgspec.json.decode(text, type=list[wire.BackupFailure])
    except (OSError, msgspec.DecodeError):
        return []
