"""Hints for a store that is damaged. They are commands that work as printed.

Call these functions only after damage was read from the file: a restore loses what is newer.
"""

import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from appliance.backup.backup_directory import BackupDirectory
from appliance.backup.settings import BackupSettings
from appliance.kernel import meta
from appliance.kernel.clock import SystemClock
from appliance.kernel.store_declaration import declaration_of
from appliance.kernel.store_errors import RECOVERY_COMMANDS
from appliance.kernel.store_files import UNUSED, open_database
from appliance.workspace import manifest
from appliance.workspace.datadir import DataDir
from appliance.workspace.schema import state
from doctor.sections import section

SNAPSHOTS_READ_MAX = 3
SECONDS_MAX = 5.0  # for reading all snapshots of a store
_STEPS_BETWEEN_CHECKS = 50_000


def restore_hint(datadir: DataDir, store: str) -> str:
    """The store's recovery command; else the commands that put a copy back; else the command that
    saves what can be read."""
    command = f"agentlip recover {store} --yes"
    return RECOVERY_COMMANDS.get(store) or copy_hint(datadir, store) or command


def copy_hint(datadir: DataDir, store: str, *, after: int = -1) -> str:
    """The commands that restore the store from the newest backup that was verified, or that put
    its newest good snapshot back; "" if there is neither. Only of a backup with events above
    `after`, if that is given."""
    backup, snapshot = verified_backup(datadir, store, after), None
    if backup is not None:
        commands = _backup_commands(datadir, store, backup)
    elif after < 0 and (snapshot := good_snapshot(datadir, store)) is not None:
        commands = _restore_commands(datadir, store, snapshot)
    else:
        return ""
    return (
        f"{commands} # this loses data newer than the {'backup' if backup else 'snapshot'};"
        f" to see what can be saved, first: agentlip recover {store}"
    )


def verified_backup(datadir: DataDir, store: str, after: int = -1) -> str | None:
    """The name of the newest backup whose verification succeeded, if it contains this store of
    this workspace, with events above `after`. None if no backup does."""
    expected = manifest.read(datadir).stores.get(store, "")
    settings = section(datadir.settings_file, "backup", BackupSettings) or BackupSettings()
    for listed in reversed(BackupDirectory(datadir, settings).list()):
        if listed.manifest is None or listed.verification is None:
            continue
        facts = listed.manifest.stores.get(store)
        good = listed.verification.result == "good"
        if not good or facts is None or facts.last_event_id <= after:
            continue
        if not expected or facts.store_id == expected:
            return listed.name
    return None


def good_snapshot(datadir: DataDir, store: str) -> Path | None:
    """The newest snapshot of the store that can be opened, is not damaged, belongs to this
    workspace, and is not newer than this program. None if none of the newest is."""
    clock = SystemClock()
    until = clock.monotonic() + SECONDS_MAX
    expected = manifest.read(datadir).stores.get(store, "")
    for path in _newest(datadir, store):
        try:
            with closing(open_database(path, UNUSED)) as connection:
                connection.set_progress_handler(
                    lambda: clock.monotonic() > until, _STEPS_BETWEEN_CHECKS
                )
                if _is_good(connection, store, expected):
                    return path
        except sqlite3.Error:
            continue
    return None


def _newest(datadir: DataDir, store: str) -> Iterator[Path]:
    name = datadir.database(store).name
    copies = [
        path for path in datadir.backups.glob(f"{name}.backup-v*-*") if path.suffix != ".partial"
    ]
    copies.sort(key=lambda path: path.name.rpartition("-")[2], reverse=True)
    yield from copies[:SNAPSHOTS_READ_MAX]


def _is_good(connection: sqlite3.Connection, store: str, expected: str) -> bool:
    own = meta.read(connection, declaration_of(store).id_key)
    if expected and own and own != expected:
        return False
    schema = state(connection, store)
    if schema.too_new or not (schema.schema or schema.spec_version):
        return False
    return bool(connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))


def _backup_commands(datadir: DataDir, store: str, backup: str) -> str:
    workspace = shlex.quote(str(datadir.workspace))
    commands = (
        f"agentlipd down --workspace {workspace}",
        f"agentlip backup restore {backup} --store {store} --yes --workspace {workspace}",
        f"agentlipd up --workspace {workspace}",
    )
    return " && ".join(commands)


def _restore_commands(datadir: DataDir, store: str, snapshot: Path) -> str:
    """Stops the appliance, moves the damaged files aside, and copies the snapshot."""
    database = shlex.quote(str(datadir.database(store)))
    workspace = shlex.quote(str(datadir.workspace))
    aside = shlex.quote(str(datadir.dir / f"damaged-{store}-XXXXXX"))
    accepted = f" --accept-loss {store}" if declaration_of(store).numbers_events else ""
    return (
        f"agentlipd down --workspace {workspace}"
        f' && mv -t "$(mktemp -d {aside})" {database}*'
        f" && cp {shlex.quote(str(snapshot))} {database}"
        f" && agentlipd up --workspace {workspace}{accepted}"
    )
