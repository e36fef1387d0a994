"""The backups at a target: which are there, and whether every byte of them is as it was sent.

Nothing that a target answers is trusted: names, sizes, manifests and content are checked.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from appliance.backup import manifest as manifests
from appliance.backup.backup_directory import NAME
from appliance.backup.errors import BackupDamaged, TargetObjectMissing, VersionRefused
from appliance.backup.manifest import BackupFile, BackupManifest
from appliance.backup.target import BackupTarget, read_all
from appliance.backup.unpack import TellFile


class RemoteNames(NamedTuple):
    """Names of backups, oldest first. `unfinished`: without a manifest, so they don't count."""

    present: list[str]
    unfinished: list[str]


class RemoteProblem(NamedTuple):
    """A file at a target that is not as it was sent. `file` is its name there, "" for all."""

    name: str
    file: str
    message: str


def names_in(listed: Iterable[str]) -> RemoteNames:
    """The backups with these files. Ignores all names that are not those of backups."""
    listed = set(listed)
    names = {name.partition("/")[0] for name in listed}
    every = sorted(name for name in names if NAME.match(name))
    present = [name for name in every if f"{name}/{manifests.FILE}" in listed]
    return RemoteNames(present, [name for name in every if name not in set(present)])


def read_manifest(target: BackupTarget, name: str) -> BackupManifest:
    """Raises TargetObjectMissing, BackupDamaged or VersionRefused."""
    manifest = manifests.decode(read_all(target, f"{name}/{manifests.FILE}", manifests.BYTES_MAX))
    if manifest.name != name:
        raise BackupDamaged(f"the manifest of {name} at the target is of {manifest.name}")
    return manifest


def read_file(target: BackupTarget, name: str, file: BackupFile) -> Iterator[bytes]:
    """The stored file. Raises BackupDamaged at its end, or as soon as it is too long."""
    digest, size = hashlib.sha256(), 0
    for piece in target.read(f"{name}/{file.name}"):
        size += len(piece)
        if size > file.stored_bytes:
            break
        digest.update(piece)
        yield piece
    if size != file.stored_bytes or digest.hexdigest() != file.stored_sha256:
        raise BackupDamaged(
            f"{file.name} of {name} at target {target.name} is not as the manifest recorded it",
            hint="agentlip backup targets --check; then: agentlip backup upload",
        )


def check(target: BackupTarget, name: str, tell: TellFile | None = None) -> list[RemoteProblem]:
    """Reads the whole backup and compares it. Raises TargetRefused or TargetUnreachable."""
    try:
        manifest = read_manifest(target, name)
    except (BackupDamaged, TargetObjectMissing, VersionRefused) as error:
        return [RemoteProblem(name, "", error.message)]
    problems: list[RemoteProblem] = []
    done, total = 0, manifest.stored_bytes
    for file in manifest.files:
        if tell is not None:
            tell(f"{name} at {target.name}", done, total)
        try:
            for _ in read_file(target, name, file):
                pass
        except (BackupDamaged, TargetObjectMissing) as error:
            problems.append(RemoteProblem(name, file.name, error.message))
        done += file.stored_bytes
    return problems
