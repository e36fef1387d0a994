"""`agentlipd reset` and `uninstall`: what a workspace has on this machine is removed, whole.

Removed is the folder `.agentlip`, with all that is in it. It is renamed first, under the writer
lock, so a command that breaks off leaves no half of a workspace; the next one removes the rest.
"""

import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from appliance.daemon import one_start
from appliance.identity.files import shown_of
from appliance.identity.settings import IdentitySettings
from appliance.identity.wire import KeysDamaged, NoKeys
from appliance.kernel import config
from appliance.kernel.clock import SystemClock
from appliance.kernel.datadir import DIRECTORY, DataDir, WriterLock
from appliance.kernel.errors import ApplianceError
from appliance.kernel.ids import random_id
from appliance.outbox.settings import OutboxSettings

REMOVED = f"{DIRECTORY}.removed-"  # the folder, until all of it is gone


class ResetFailed(ApplianceError):
    kind = "invalid"
    code = "RESET_FAILED"
    sentence = "the data of this workspace could not be removed"
    advice = "agentlip doctor"


class Membership(msgspec.Struct, frozen=True):
    """A mesh elsewhere that knows the key of this workspace, and how its operator ends that."""

    mesh: str
    url: str
    command: str


class Found(msgspec.Struct, frozen=True):
    """What a reset removes and keeps. `meshes`: whose brokers go on knowing the key."""

    workspace: str
    removed: list[str]
    bytes: int
    kept: list[str]
    meshes: list[Membership]


def look(datadir: DataDir, environment: Mapping[str, str]) -> Found:
    """What `wipe` would remove."""
    folders = [path for path in (datadir.dir, *_left_over(datadir)) if path.exists()]
    names = [f"{path.name}/{inner.name}" for path in folders for inner in sorted(path.iterdir())]
    files = (datadir.settings_file, datadir.unread_settings_file)
    return Found(
        workspace=str(datadir.workspace),
        removed=names,
        bytes=sum(_bytes(path) for path in folders),
        kept=[path.name for path in files if path.exists()],
        meshes=_meshes(datadir, environment),
    )


@contextmanager
def stopped(datadir: DataDir) -> Iterator[None]:
    """Nothing runs or starts here meanwhile. Raises HubRunning."""
    clock = SystemClock()
    with one_start(datadir, clock):
        lock = WriterLock(datadir, random_id(), clock)
        lock.acquire()
        try:
            yield
        finally:
            lock.release()


def wipe(datadir: DataDir) -> None:
    """Removes `.agentlip`. Within `stopped`."""
    if datadir.dir.is_symlink():
        raise ResetFailed(f"{datadir.dir} is a link: remove what it points to by hand")
    try:
        datadir.dir.rename(datadir.workspace / f"{REMOVED}{secrets.token_hex(8)}")
        for folder in _left_over(datadir):
            shutil.rmtree(folder)
    except OSError as error:
        raise ResetFailed(f"can't remove {datadir.dir}: {error.strerror}") from None


def _left_over(datadir: DataDir) -> list[Path]:
    return sorted(datadir.workspace.glob(f"{REMOVED}*"))


def _bytes(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            total += (Path(parent) / name).lstat().st_size
    return total


def _meshes(datadir: DataDir, environment: Mapping[str, str]) -> list[Membership]:
    class Section(msgspec.Struct, frozen=True):
        identity: IdentitySettings = IdentitySettings()
        outbox: OutboxSettings = OutboxSettings()

    settings = config.load(Section, datadir.settings_file, environment)
    try:
        key = shown_of(datadir, settings.identity).pubkey
    except (NoKeys, KeysDamaged):
        return []
    return [
        Membership(one.mesh, one.url, f"agentlip mesh revoke-member {one.mesh} {key}")
        for one in settings.outbox.brokers
    ]
