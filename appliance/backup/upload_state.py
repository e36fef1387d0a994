"""Records how the last upload to a target ended: `upload-TARGET.json` in `.agentlip/backups`."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from appliance.backup.backup_directory import writing
from appliance.backup.errors import BackupNotWritable
from appliance.backup.settings import TargetSettings
from appliance.kernel.json_file import read_json
from appliance.kernel.whole_file import write_whole


class UploadState(msgspec.Struct, frozen=True):
    """An upload's end. `newest`: the newest backup that the target has, as far as an upload has
    seen."""

    newest: str = ""
    finished_at: str = ""
    problem: str = ""


def read_state(root: Path, target: str) -> UploadState:
    """Return the state, empty without an upload. A damaged file only affects what metrics show."""
    return read_json(root / f"upload-{target}.json", UploadState) or UploadState()


def read_states(root: Path, targets: Iterable[TargetSettings]) -> dict[str, UploadState]:
    return {target.name: read_state(root, target.name) for target in targets}


def write_state(root: Path, target: str, state: UploadState) -> None:
    """Write the state. A failed upload keeps the newest backup from an earlier upload."""
    newest = state.newest or read_state(root, target).newest
    # On a full disk a copy elsewhere matters most.
    with suppress(BackupNotWritable), writing():
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        text = msgspec.json.encode(msgspec.structs.replace(state, newest=newest))
        write_whole(root / f"upload-{target}.json", text)
