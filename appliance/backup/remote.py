"""The sets at a target: which are there, and whether every byte of them is as it was sent.

Nothing that a target answers is trusted: names, sizes, manifests and content are checked.
"""

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from appliance.backup import manifest as manifests
from appliance.backup.errors import SetDamaged, TargetFailed, TargetObjectMissing, VersionRefused
from appliance.backup.manifest import SetManifest
from appliance.backup.sets import NAME
from appliance.backup.settings import BackupSettings
from appliance.backup.target import Attempts, BackupTarget, Stored, read_all
from appliance.backup.transfer import INDEX, Part, TransferIndex, decode_index, whole_index

Tell = Callable[[str, int, int], None]


class RemoteNames(NamedTuple):
    """Names of sets, oldest first. `unfinished`: without a manifest, so they don't count."""

    present: list[str]
    unfinished: list[str]


class RemoteProblem(NamedTuple):
    """A file at a target that is not as it was sent. `part` is its name there, "" for all."""

    name: str
    part: str
    message: str


class RemoteSet(NamedTuple):
    manifest: SetManifest
    transfer: TransferIndex


def names_in(listed: dict[str, Stored]) -> RemoteNames:
    """Ignores all names that are not those of sets."""
    names = {name.partition("/")[0] for name in listed}
    every = sorted(name for name in names if NAME.match(name))
    present = [name for name in every if f"{name}/{manifests.FILE}" in listed]
    return RemoteNames(present, [name for name in every if name not in set(present)])


def read_set(
    target: BackupTarget, name: str, settings: BackupSettings, attempts: Attempts
) -> RemoteSet:
    """Raises TargetObjectMissing, SetDamaged, VersionRefused or TargetFailed."""
    limit = settings.manifest_bytes_max
    text = attempts.run(partial(read_all, target, f"{name}/{manifests.FILE}", limit))
    manifest = manifests.decode(text)
    if manifest.name != name:
        raise SetDamaged(f"the manifest of {name} at the target is of {manifest.name}")
    try:
        text = attempts.run(partial(read_all, target, f"{name}/{INDEX}", limit))
    except TargetObjectMissing:
        return RemoteSet(manifest, whole_index(manifest))  # copied by another program
    return RemoteSet(manifest, decode_index(text, manifest))


def read_part(target: BackupTarget, name: str, part: Part) -> Iterator[bytes]:
    """The content. Raises SetDamaged at its end, or as soon as it is too long."""
    digest, size = hashlib.sha256(), 0
    for piece in target.read(f"{name}/{part.name}"):
        size += len(piece)
        if size > part.bytes:
            break
        digest.update(piece)
        yield piece
    if size != part.bytes or digest.hexdigest() != part.sha256:
        raise SetDamaged(
            f"{part.name} of {name} at target {target.name} is not as it was sent",
            hint="agentlip backup targets --check; then: agentlip backup upload",
        )


def check(
    target: BackupTarget,
    name: str,
    settings: BackupSettings,
    attempts: Attempts,
    tell: Tell | None = None,
) -> list[RemoteProblem]:
    """Reads the whole set and compares it. Raises TargetRefused or TargetUnreachable."""
    try:
        manifest, transfer = read_set(target, name, settings, attempts)
    except (SetDamaged, TargetObjectMissing, VersionRefused) as error:
        return [RemoteProblem(name, "", error.message)]
    except TargetFailed as error:
        if type(error) is not TargetFailed:
            raise
        return [RemoteProblem(name, "", error.message)]
    problems: list[RemoteProblem] = []
    done, total = 0, manifest.stored_bytes
    for part in transfer.parts:
        if tell is not None:
            tell(f"{name} at {target.name}", done, total)
        try:
            attempts.run(partial(_drain, target, name, part))
        except (SetDamaged, TargetObjectMissing) as error:
            problems.append(RemoteProblem(name, part.name, error.message))
        done += part.bytes
    return problems or _compare_whole(manifest, transfer)


def _drain(target: BackupTarget, name: str, part: Part) -> None:
    for _ in read_part(target, name, part):
        pass


def _compare_whole(manifest: SetManifest, transfer: TransferIndex) -> list[RemoteProblem]:
    """The index could have been changed together with a file; the manifest is sealed. Files in
    several parts are compared with it when they are fetched."""
    single = {part.file: part.sha256 for part in transfer.parts if part.name == part.file}
    return [
        RemoteProblem(manifest.name, file.name, f"{file.name} is not as the manifest recorded it")
        for file in manifest.files
        if single.get(file.name, file.stored_sha256) != file.stored_sha256
    ]
