"""Lists backups at a target, and checks that every byte still equals the sent byte.

Nothing in a target's responses is trusted: names, sizes, manifests and content are checked.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from appliance.backup import manifest as manifests
from appliance.backup.backup_directory import NAME
from appliance.backup.errors import BackupDamaged, TargetObjectMissing, VersionRefused
from appliance.backup.manifest import BackupFile, BackupManifest
from appliance.backup.order import in_order
from appliance.backup.target import BackupTarget
from appliance.kernel.errors import ApplianceError, Invalid


class RemoteNames(NamedTuple):
    """Backup names, oldest first. `unfinished`: without a manifest, so they don't count."""

    present: list[str]
    unfinished: list[str]


def names_in(listed: Iterable[str]) -> RemoteNames:
    """Return the backups with these files. Ignores all names that are not backup names."""
    listed = set(listed)
    names = {name.partition("/")[0] for name in listed}
    every = sorted(name for name in names if NAME.match(name))
    present = [name for name in every if f"{name}/{manifests.FILE}" in listed]
    return RemoteNames(present, [name for name in every if name not in set(present)])


def read_manifest(target: BackupTarget, name: str) -> BackupManifest:
    """Read a manifest. Raises TargetObjectMissing, BackupDamaged or VersionRefused."""
    text = bytearray()
    for piece in target.read(f"{name}/{manifests.FILE}"):
        text += piece
        if len(text) > manifests.BYTES_MAX:
            raise BackupDamaged(
                f"the manifest of {name} is larger than {manifests.BYTES_MAX:,} bytes"
            )
    return manifests.decode(bytes(text), name)


def newest_manifest(
    target: BackupTarget, names: Sequence[str], owner: str | None, now_ms: int
) -> BackupManifest:
    """Read the manifests for all `names`, and return the newest one from the workspace `owner`
    (`db_id`).

    Unreadable manifests are skipped, unless all are unreadable. Raises Invalid if the owner is
    unknown and there are several, BackupDamaged, VersionRefused or TargetObjectMissing.
    """
    manifests_read: list[BackupManifest] = []
    problem: ApplianceError | None = None
    for name in names:
        try:
            manifests_read.append(read_manifest(target, name))
        except (BackupDamaged, VersionRefused, TargetObjectMissing) as error:
            problem = error
    ours = [manifest for manifest in manifests_read if manifest.db_id == owner] or manifests_read
    if problem is not None and not ours:
        raise problem
    if len({manifest.db_id for manifest in ours}) > 1:
        raise Invalid(
            f"target {target.name} has backups of several workspaces",
            hint="name the backup: agentlip backup targets --json lists them",
        )
    return in_order(ours, now_ms)[-1]


def read_file(target: BackupTarget, name: str, file: BackupFile) -> Iterator[bytes]:
    """Yield the stored file. Raises BackupDamaged at the end, or as soon as the file is too
    long."""
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
            hint="remove it there; then: agentlip backup upload",
        )
