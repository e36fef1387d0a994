"""Hints for a store that is damaged. They are commands that work as printed.

Call these functions only after damage was read from the file: a restore loses what is newer.
"""

import shlex

from appliance.backup.backup_directory import BackupDirectory
from appliance.backup.settings import BackupSettings
from appliance.checks.sections import section
from appliance.kernel.store_errors import RECOVERY_COMMANDS
from appliance.workspace import manifest
from appliance.workspace.datadir import DataDir


def restore_hint(datadir: DataDir, store: str) -> str:
    """The store's recovery command; else the commands that restore a backup; else the command that
    saves what can be read."""
    command = f"agentlip recover {store} --yes"
    return RECOVERY_COMMANDS.get(store) or copy_hint(datadir, store) or command


def copy_hint(datadir: DataDir, store: str, *, after: int = -1) -> str:
    """The commands that restore the newest backup that was verified and has the store; "" without
    one. Only of a backup with events above `after`, if that is given."""
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
    """The name of the newest backup whose verification succeeded, if it contains this store of
    this workspace, with events above `after`. None if no backup does."""
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
