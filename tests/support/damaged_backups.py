"""Backups that tests damage: copies of them, and backups made of manipulated stores."""

import hashlib
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec

from appliance.backup import manifest as manifests
from appliance.backup.backup_directory import BackupDirectory
from appliance.backup.encoding import encode
from appliance.backup.manifest import BackupManifest
from appliance.backup.settings import BackupSettings
from appliance.backup.store_copy import facts_of
from appliance.backup.unpack import unpack
from appliance.kernel.store_files import UNUSED, open_database
from appliance.workspace.datadir import DataDir

OF_THE_PROCESS = {"server.json", "port", "writer.lock", "backup.lock"}


def checksums(workspace: Path, *, without: str = "backups") -> dict[str, str]:
    """The hash of each file, without files of running processes, an empty log and its index."""
    return {
        str(path.relative_to(workspace)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((workspace / ".agentlip").rglob("*"))
        if path.is_file() and path.name not in OF_THE_PROCESS and without not in path.parts
        if not path.name.endswith("-shm")
        if not (path.name.endswith("-wal") and path.stat().st_size == 0)
    }


class DamagedBackups:
    """The backups of a workspace that is not served."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.directory = BackupDirectory(DataDir(workspace), BackupSettings())

    def copy_to(self, workspace: Path) -> "DamagedBackups":
        shutil.copytree(self.workspace, workspace, symlinks=True)
        return DamagedBackups(workspace)

    @property
    def name(self) -> str:
        return self.directory.newest()

    @property
    def path(self) -> Path:
        return self.directory.path(self.name)

    @property
    def manifest(self) -> BackupManifest:
        return self.directory.read(self.name)

    def flip(self, file: str, at: float = 0.5) -> None:
        """Changes one bit at this part of a file of the backup."""
        path = self.path / file
        content = bytearray(path.read_bytes())
        content[min(int(len(content) * at), len(content) - 1)] ^= 0x10
        path.write_bytes(content)

    def change(self, store: str, sql: str, *, recount: bool = False) -> None:
        """A backup whose hashes are right, but whose store was changed by another program. With
        `recount` the manifest has the changed numbers of rows and other facts too."""

        def execute(workspace: Path) -> None:
            with closing(sqlite3.connect(DataDir(workspace).database(store))) as connection:
                connection.executescript(sql)

        self.remake(execute)
        if recount:
            self.seal(lambda manifest: self._recounted(manifest, store))

    def remake(self, change: Callable[[Path], None]) -> None:
        """Unpacks the backup, changes files, and writes it again as if that were the original."""
        folder = self.workspace / "remade"
        manifest = self.manifest
        unpack(self.path, manifest, folder, None)
        change(folder)
        files = []
        for file in manifest.files:
            stored = self.path / file.name
            with (folder / file.path).open("rb") as source, stored.open("wb") as target:
                done = encode(source, target)
            files.append(msgspec.structs.replace(file, **done._asdict()))
        shutil.rmtree(folder)
        self.seal(lambda manifest: msgspec.structs.replace(manifest, files=tuple(files)))

    def seal(self, change: Callable[[BackupManifest], BackupManifest]) -> None:
        (self.path / manifests.FILE).write_bytes(manifests.encode(change(self.manifest)))

    def _recounted(self, manifest: BackupManifest, store: str) -> BackupManifest:
        folder = self.workspace / "counted"
        wanted = f".agentlip/{manifest.stores[store].file}"
        unpack(self.path, manifest, folder, None)
        with closing(open_database(folder / wanted, UNUSED)) as connection:
            facts = facts_of(connection, store)
        shutil.rmtree(folder)
        return msgspec.structs.replace(manifest, stores={**manifest.stores, store: facts})
