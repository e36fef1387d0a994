"""Reads the audit log heads that a workspace's backups noted."""

from collections.abc import Iterator

import msgspec

from appliance.audit.log.file import STORE, ChainHead
from appliance.checks.sections import section
from appliance.kernel.ownership import read_regular
from appliance.workspace.datadir import DataDir

MANIFESTS_MAX = 1_000
_BYTES_MAX = 64 * 1024 * 1024


class BackupDirectorySetting(msgspec.Struct, frozen=True):
    directory: str = ".agentlip/backups"


class _Facts(msgspec.Struct):
    head: str = ""
    store_id: str = ""


class _Manifest(msgspec.Struct):
    name: str
    stores: dict[str, _Facts]


def noted_heads(datadir: DataDir) -> Iterator[ChainHead]:
    """Yield the noted heads. Unreadable manifests are other checks' business."""
    setting = section(datadir.settings_file, "backup", BackupDirectorySetting)
    folder = datadir.workspace / (setting or BackupDirectorySetting()).directory
    for path in sorted(folder.glob("*/manifest.json"))[-MANIFESTS_MAX:]:
        try:
            manifest = msgspec.json.decode(read_regular(path, _BYTES_MAX), type=_Manifest)
            facts = manifest.stores[STORE]
            number, _, digest = facts.head.partition(":")
            yield ChainHead(int(number), digest, f"the backup {manifest.name}", facts.store_id)
        except (OSError, KeyError, ValueError):
            continue
