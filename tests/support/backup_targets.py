"""Backups of given files, which are complete but of no real workspace."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from appliance.backup.backup_directory import BackupDirectory, BackupWorkspace
from appliance.backup.manifest import BackupFile, BackupManifest
from appliance.backup.settings import BackupSettings, TargetSettings
from appliance.backup.target import BackupTarget
from appliance.backup.targets import UploadReport, open_target, upload
from appliance.kernel.clock import SystemClock
from appliance.workspace.datadir import DataDir

NOW_MS = 1_770_000_000_000
DAY_MS = 86_400_000


class TargetBackups:
    """The directory of the backups of one workspace below `path`."""

    def __init__(self, path: Path, *targets: TargetSettings, **settings: Any) -> None:
        self.datadir = DataDir(path)
        self.datadir.dir.mkdir(parents=True)
        self.settings = BackupSettings(targets=targets, **{"free_bytes_min": 0, **settings})
        self.backups = BackupDirectory(self.datadir, self.settings)

    @classmethod
    def of(cls, datadir: DataDir) -> "TargetBackups":
        """The backups of a workspace that exists, with the default settings."""
        fixture = cls.__new__(cls)
        fixture.datadir, fixture.settings = datadir, BackupSettings()
        fixture.backups = BackupDirectory(datadir, fixture.settings)
        return fixture

    def add(
        self,
        files: Mapping[str, bytes] | None = None,
        *,
        day: int = 0,
        encrypted: bool = True,
        db_id: str = "db-1",
        reason: Any = "manual",
    ) -> str:
        """Returns the name of a new backup."""
        content = files if files is not None else {"hub.sqlite3.zst.age": os.urandom(5000)}
        with self.backups.only_writer():
            name, partial = self.backups.begin(NOW_MS + day * DAY_MS)
            for file, each in content.items():
                (partial / file).write_bytes(each)
            self.backups.finish(_manifest(name, content, encrypted, db_id, reason), partial)
        return name

    @property
    def work(self) -> BackupWorkspace:
        return BackupWorkspace(self.datadir, self.settings, self.backups, SystemClock())

    def open(self, **options: int) -> BackupTarget:
        """Its first target."""
        return open_target(
            self.settings.targets[0], self.settings, self.datadir.workspace, **options
        )

    def upload(self) -> UploadReport:
        return upload(self.work, self.settings.targets[0])

    def with_targets(self, *targets: TargetSettings, **settings: Any) -> None:
        self.settings = msgspec.structs.replace(self.settings, targets=targets, **settings)
        self.backups = BackupDirectory(self.datadir, self.settings)


class PassedTarget:
    """Passes everything to a real target; subclasses fail, or change answers."""

    def __init__(self, real: BackupTarget) -> None:
        self.real, self.name = real, real.name

    def list(self, below: str = "") -> dict[str, int]:
        return self.real.list(below)

    def read(self, name: str) -> Iterator[bytes]:
        return self.real.read(name)

    def write(self, name: str, content: Iterable[bytes]) -> None:
        self.real.write(name, content)

    def remove(self, name: str) -> None:
        self.real.remove(name)


def _manifest(
    name: str, files: Mapping[str, bytes], encrypted: bool, db_id: str, reason: Any
) -> BackupManifest:
    stamp = f"{name[:4]}-{name[4:6]}-{name[6:8]}T{name[9:11]}:{name[11:13]}:{name[13:15]}.000Z"
    return BackupManifest(
        name=name,
        reason=reason,
        created_at=stamp,
        cut_at=stamp,
        seconds=0.1,
        pause_ms=1.0,
        app_version="0",
        db_id=db_id,
        epoch="epoch-1",
        last_event_id=1,
        recipients=("age1test",) if encrypted else (),
        stores={},
        files=tuple(
            BackupFile(
                name=file,
                path=f".agentlip/identity/file-{number}",
                kind="secret",
                mode=0o600,
                bytes=len(content),
                sha256=hashlib.sha256(content).hexdigest(),
                stored_bytes=len(content),
                stored_sha256=hashlib.sha256(content).hexdigest(),
            )
            for number, (file, content) in enumerate(files.items())
        ),
    )
