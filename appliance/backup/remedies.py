"""Returns hints for a damaged store. The hints are commands that work as printed.

Call these functions only after reading damage from the file: a restore loses newer data.
"""

import shlex

from appliance.backup.backup_directory import BackupDirectory
from appliance.backup.settings import BackupSettings
from appliance.checks.sections import section
from appliance.kernel.store_errors import RECOVERY_COMMANDS
from appliance.workspace import manifest
from appliance.workspace.datadir import DataDir


def restore_hint(datadir: DataDir, store: str) -> str:
    """Return the store's recovery command; else the commands that restore a backup; else the
    command that saves the readable rows."""
    command = f"agentlip recover {store} --yes"
    return RECOVERY_COMMANDS.get(store) or copy_hint(datadir, store) or command


def copy_hint(datadir: DataDir, store: str, *, after: int = -1) -> str:
    """Return the commands that restore the newest verified backup with this store; "" without a
    backup. With `after`, only a backup with events above `after` counts."""
    backup = verified_backup(datadir, store, after)
    if backup is None:
        return ""
    workspace = shlex.quote(str(datadir.workspace))
    return (
        f"agentlipd down --workspace {workspace}"
        f"; agentlip backup restore {backup} --yes --workspace {workspace}"
        f"; agentlipd up --workspace {workspace} # this loses what is newer than the backup;"
        f" to see what can be saved, first: agentlip recover {store}"
    )


def verified_backup(datadir: DataDir, store: str, after: int = -1) -> str | None:
    """Return the name of the newest successfully verified backup, if the backup contains this
    workspace's store, with events above `after`. None without such a backup."""
    expected = manifest.read(datadir).stores.get(store, "")
    settings = section(datadir.settings_file, "backup", BackupSettings) or BackupSettings()
    for listed in reversed(BackupDirectory(datadir, settings).list()):
        if listed.manifest is None or listed.result != "good":
            continue
        facts = listed.manifest.stores.get(store)
        if facts is None or facts.last_event_id <= after:
            continue
        if not expected or facts.store_id == expected:
            return listed.name
    return None
