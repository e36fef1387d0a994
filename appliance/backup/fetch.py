"""Brings a set back from a target. It gets its name when all of it was compared with its hashes."""

import hashlib
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from appliance.backup.errors import BackupNotWritable, SetDamaged, SetNotFound
from appliance.backup.manifest import SetFile, SetManifest
from appliance.backup.remote import RemoteSet, names_in, read_part, read_set
from appliance.backup.sets import SetDirectory, writing
from appliance.backup.settings import BackupSettings
from appliance.backup.target import Attempts, BackupTarget
from appliance.backup.transfer import Part, divide

Tell = Callable[[str, int, int], None]


def newest_at(target: BackupTarget, attempts: Attempts) -> str:
    """The name of the newest set at the target. Raises SetNotFound."""
    present = names_in(attempts.run(target.list)).present
    if not present:
        raise SetNotFound(
            f"target {target.name} has no backup", hint="agentlip backup targets; check its url"
        )
    return present[-1]


def fetch(
    target: BackupTarget,
    name: str,
    sets: SetDirectory,
    settings: BackupSettings,
    attempts: Attempts,
    tell: Tell | None = None,
) -> tuple[SetManifest, bool]:
    """The manifest, and whether anything was fetched: a whole set in the directory is kept.

    Call it inside `sets.only_writer()`. A damaged set of this name is replaced at the end.
    Raises SetNotFound, SetDamaged, VersionRefused, BackupNotWritable, TargetRefused or
    TargetFailed.
    """
    if name not in names_in(attempts.run(partial(target.list, _checked(name)))).present:
        raise SetNotFound(
            f"target {target.name} has no backup named {name!r}", hint="agentlip backup targets"
        )
    remote = read_set(target, name, settings, attempts)
    if _is_whole(sets, remote.manifest):
        return remote.manifest, False
    _check_space(sets.root, remote.manifest, settings)
    partial_path = sets.begin_named(name)
    try:
        _fetch_files(target, remote, partial_path, attempts, tell)
        with suppress(SetNotFound):
            sets.remove(name)
        sets.finish(remote.manifest, partial_path)
    except BaseException:
        shutil.rmtree(partial_path, ignore_errors=True)
        raise
    return remote.manifest, True


def _checked(name: str) -> str:
    if "/" in name or name.startswith("."):
        raise SetNotFound(f"no backup is named {name!r}", hint="agentlip backup targets")
    return name


def _is_whole(sets: SetDirectory, manifest: SetManifest) -> bool:
    """Whether the set is in the directory, byte by byte."""
    try:
        if sets.read(manifest.name) != manifest:
            return False
        divide(sets.path(manifest.name), manifest, None)
    except (SetNotFound, SetDamaged):
        return False
    return True


def _check_space(root: Path, manifest: SetManifest, settings: BackupSettings) -> None:
    with writing():
        free = shutil.disk_usage(root).free
    needed = manifest.stored_bytes + settings.free_bytes_min
    if free < needed:
        raise BackupNotWritable(
            f"the backup needs {needed:,} bytes with backup.free_bytes_min; {free:,} are free",
            hint=f"free space: df -h {root}",
        )


def _fetch_files(
    target: BackupTarget,
    remote: RemoteSet,
    into: Path,
    attempts: Attempts,
    tell: Tell | None,
) -> None:
    manifest, done = remote.manifest, 0
    for file in manifest.files:
        parts = [part for part in remote.transfer.parts if part.file == file.name]
        for part in parts:
            if tell is not None:
                tell(f"{manifest.name} from {target.name}", done, manifest.stored_bytes)
            attempts.run(partial(_fetch_part, target, manifest.name, part, into / file.name))
            done += part.bytes
        _compare(into / file.name, file)


def _fetch_part(target: BackupTarget, name: str, part: Part, path: Path) -> None:
    """Writes the part at its offset; another attempt starts there again."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with writing():
        descriptor = os.open(path, flags, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        with writing():
            file.truncate(part.offset)
            file.seek(part.offset)
        for piece in read_part(target, name, part):
            with writing():
                file.write(piece)
        with writing():
            file.flush()
            os.fsync(file.fileno())


def _compare(path: Path, file: SetFile) -> None:
    digest = hashlib.sha256()
    with path.open("rb") as opened:
        while piece := opened.read(1024 * 1024):
            digest.update(piece)
    if path.stat().st_size != file.stored_bytes or digest.hexdigest() != file.stored_sha256:
        raise SetDamaged(f"{file.name} at the target is not as the manifest recorded it")
