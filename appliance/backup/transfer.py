"""How the last upload of a backup ended: `upload-TARGET.json` beside its manifest."""

from pathlib import Path
from typing import Literal

import msgspec

from appliance.backup.backup_directory import writing
from appliance.backup.settings import TargetSettings
from appliance.kernel.whole_file import write_whole

_STATE_BYTES_MAX = 16 * 1024 * 1024


class UploadState(msgspec.Struct, kw_only=True):
    """`address`: the target's, since a name may get another address."""

    address: str
    status: Literal["complete", "failed"] = "failed"
    finished_at: str = ""
    problem: str = ""


def address_of(target: TargetSettings) -> str:
    return f"{target.endpoint} {target.url}".strip()


def state_file(backup_path: Path, target: str) -> Path:
    return backup_path / f"upload-{target}.json"


def read_state(backup_path: Path, target: TargetSettings) -> UploadState | None:
    """None without an upload to this address; a damaged file only costs sending it again."""
    try:
        with state_file(backup_path, target.name).open("rb") as file:
            state = msgspec.json.decode(file.read(_STATE_BYTES_MAX), type=UploadState)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return state if state.address == address_of(target) else None


def write_state(backup_path: Path, target: str, state: UploadState) -> None:
    with writing():
        write_whole(state_file(backup_path, target), msgspec.json.encode(state))
