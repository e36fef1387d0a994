"""A workspace that is backed up and restored, and what two of them have in common."""

import hashlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from appliance.backup import restore, store_copy
from appliance.backup.backup_directory import BackupDirectory, BackupWorkspace
from appliance.backup.create import create_backup
from appliance.backup.manifest import BackupManifest
from appliance.backup.restore_job import RestoreJob
from appliance.backup.settings import BackupSettings
from appliance.kernel import meta
from appliance.kernel.clock import SystemClock
from appliance.kernel.ids import random_id
from appliance.workspace import epochs, manifest, swap
from appliance.workspace.datadir import STORES, DataDir
from tests.support.database_files import execute
from tests.support.workspaces import Filled

CLOCK = SystemClock()
SETTINGS = BackupSettings(free_bytes_min=0)
TRANSIENT = ("backups", "locks", "logs")

KILLED = """
import os, signal, sys
from pathlib import Path
from appliance.backup import restore
from appliance.backup.restore_job import RestoreJob
from appliance.backup.backup_directory import BackupDirectory, BackupWorkspace
from appliance.workspace import swap
from appliance.kernel.clock import SystemClock
from appliance.workspace.datadir import DataDir
from tests.support.restored_workspace import SETTINGS, watch_swap

left = int(sys.argv[3])

def reached(step):
    global left
    left -= 1
    if left == 0:
        print(step, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

datadir = DataDir(Path(sys.argv[1]))
work = BackupWorkspace(
    datadir, SETTINGS, BackupDirectory(datadir, SETTINGS), SystemClock()
)
watching = watch_swap(reached)
watching.__enter__()
if sys.argv[2] == "settle":
    swap.settle(datadir)
else:
    job = RestoreJob(work, work.backups.read(sys.argv[2]), datadir)
    restore.apply(job, None, reached=reached)
"""
"""A program that restores, and kills itself after a step: workspace, backup or `settle`, number of
the step."""


@contextmanager
def watch_swap(reached: Callable[[str], None]) -> Iterator[None]:
    """Calls `reached` after each step of a swap."""
    move, link, remove = swap._move, swap._link, shutil.rmtree
    write = DataDir.write_private

    def write_private(self: DataDir, path: Path, text: str) -> None:
        write(self, path, text)
        if path.name == swap.FILE:
            reached("committed")

    def moved(source: Path, target: Path) -> None:
        move(source, target)
        reached(f"moved {source.name}")

    def linked(source: Path, target: Path) -> bool:
        done = link(source, target)
        reached(f"linked {source.name}")
        return done

    def removed(path: Path, **more: Any) -> None:
        remove(path, **more)
        if path.name == swap.FOLDER and (path.parent / swap.FILE).exists():
            reached("removed")

    with (
        patch.object(DataDir, "write_private", write_private),
        patch.object(swap, "_move", moved),
        patch.object(swap, "_link", linked),
        patch.object(swap.shutil, "rmtree", removed),
    ):
        yield


class BackedUp:
    """A stopped workspace with some messages, whose events are in the log."""

    def __init__(self, path: Path, messages: int = 5) -> None:
        self.filled = Filled(path, messages=0)
        self.datadir: DataDir = self.filled.datadir
        self.backups = BackupDirectory(self.datadir, SETTINGS)
        execute(self.datadir.database("auth"), meta.SET, epochs.KEY, random_id())
        manifest.remember(self.datadir)
        self.add(messages)

    def add(self, count: int) -> None:
        with closing(self.filled.connect()) as connection:
            for _ in range(count):
                message = self.filled.add_message(connection, "text")
                connection.execute(
                    "INSERT INTO events (ts, name, scope_channel_id, scope_topic_id, entity_type,"
                    " entity_id, data_json) VALUES ('2026-02-04T20:00:00.000Z', 'message.created',"
                    " ?, ?, 'message', ?, '{}')",
                    (self.filled.channel_id, self.filled.topic_id, message),
                )
            connection.commit()

    def back_up(self) -> BackupManifest:
        with self.backups.only_writer():
            return create_backup(self.work(), reason="manual")

    def work(self, settings: BackupSettings = SETTINGS) -> BackupWorkspace:
        return BackupWorkspace(self.datadir, settings, self.backups, CLOCK)

    def job(
        self, made: BackupManifest, settings: BackupSettings = SETTINGS, **more: Any
    ) -> RestoreJob:
        return RestoreJob(self.work(settings), made, **{"target": self.datadir} | more)

    def plan(self, made: BackupManifest, **more: Any) -> restore.RestorePlan:
        return restore.plan(self.job(made, **more), None)

    def restore(
        self, made: BackupManifest, reached: Callable[[str], None] = lambda _: None, **more: Any
    ) -> restore.RestoreResult:
        with watch_swap(reached):
            return restore.apply(self.job(made, **more), None, reached=reached)

    def settle(self, reached: Callable[[str], None]) -> None:
        with watch_swap(reached):
            swap.settle(self.datadir)

    def rows(self, sql: str, store: str = "hub") -> list[tuple[Any, ...]]:
        return rows_of(self.datadir, sql, store)


def rows_of(datadir: DataDir, sql: str, store: str = "hub") -> list[tuple[Any, ...]]:
    return execute(datadir.database(store), sql)


def epoch_of(datadir: DataDir) -> str:
    return str(rows_of(datadir, "SELECT value FROM meta WHERE key = 'epoch'", "auth")[0][0])


def content_of(datadir: DataDir) -> dict[str, str]:
    """A hash of every store's rows and every other file, without what always changes."""
    contents = {}
    for store in STORES:
        if datadir.database(store).exists():
            with closing(sqlite3.connect(datadir.database(store))) as connection:
                rows = {
                    table: connection.execute(f'SELECT * FROM "{table}"').fetchall()
                    for table in store_copy.tables(connection)
                }
            contents[store] = hashlib.sha256(repr(rows).encode()).hexdigest()
    for path in sorted(datadir.workspace.rglob("*")):
        name = path.relative_to(datadir.workspace).as_posix()
        transient = any(f".agentlip/{each}/" in name for each in TRANSIENT)
        if path.is_file() and ".sqlite3" not in name and not transient:
            contents[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return contents


def tree_of(datadir: DataDir) -> dict[str, bytes]:
    """Every file of the workspace with its bytes."""
    return {
        path.relative_to(datadir.workspace).as_posix(): path.read_bytes()
        for path in sorted(datadir.workspace.rglob("*"))
        if path.is_file()
    }
