"""Removes a workspace's data, for `agentlipd reset` and `uninstall`.

The folder `.agentlip` is renamed with the writer lock held, and then removed. So an interrupted
command leaves no partial workspace; the next one removes the rest.
"""

import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec

from appliance.identity.files import read_view
from appliance.identity.settings import IdentitySettings
from appliance.identity.wire import KeysDamaged, NoKeys
from appliance.kernel import config
from appliance.kernel.errors import ApplianceError
from appliance.outbox.settings import OutboxSettings
from appliance.workspace.datadir import DIRECTORY, DataDir
from appliance.workspace.manifest import StoreLost

REMOVED = f"{DIRECTORY}.removed-"  # the renamed folder, until it is removed


class ResetFailed(ApplianceError):
    kind = "invalid"
    code = "RESET_FAILED"
    default_message = "this workspace's data could not be removed"
    default_hint = "agentlip doctor"


class BrokerMembership(msgspec.Struct, frozen=True):
    """A mesh that knows this workspace's key, and the command that revokes the key."""

    mesh: str
    url: str
    command: str


class ResetPlan(msgspec.Struct, frozen=True):
    """The files that a reset removes and keeps. `meshes`: meshes whose brokers still know the
    key."""

    workspace: str
    removed: list[str]
    bytes: int
    kept: list[str]
    meshes: list[BrokerMembership]


def plan(datadir: DataDir, environment: Mapping[str, str]) -> ResetPlan:
    """Return the paths that `wipe` would remove."""
    folders = [path for path in (datadir.dir, *_find_left_over(datadir)) if path.exists()]
    names = [f"{path.name}/{inner.name}" for path in folders for inner in sorted(path.iterdir())]
    files = (datadir.settings_file, datadir.unread_settings_file)
    return ResetPlan(
        workspace=str(datadir.workspace),
        removed=names,
        bytes=sum(
            path.lstat().st_size
            for folder in folders
            for path in folder.rglob("*")
            if path.is_symlink() or not path.is_dir()
        ),
        kept=[path.name for path in files if path.exists()],
        meshes=_meshes(datadir, environment),
    )


def wipe(datadir: DataDir) -> None:
    """Remove `.agentlip`. Call within `hold_locks`."""
    if datadir.dir.is_symlink():
        raise ResetFailed(f"{datadir.dir} is a symbolic link: remove its target by hand")
    try:
        datadir.dir.rename(datadir.workspace / f"{REMOVED}{secrets.token_hex(8)}")
        for folder in _find_left_over(datadir):
            shutil.rmtree(folder)
    except OSError as error:
        raise ResetFailed(f"can't remove {datadir.dir}: {error.strerror}") from None


def _find_left_over(datadir: DataDir) -> list[Path]:
    return sorted(datadir.workspace.glob(f"{REMOVED}*"))


def _meshes(datadir: DataDir, environment: Mapping[str, str]) -> list[BrokerMembership]:
    class Section(msgspec.Struct, frozen=True):
        identity: IdentitySettings = IdentitySettings()
        outbox: OutboxSettings = OutboxSettings()

    settings = config.load(Section, datadir.settings_file, environment)
    try:
        key = read_view(datadir, settings.identity).pubkey
    except (NoKeys, KeysDamaged, StoreLost):
        return []
    return [
        BrokerMembership(
            broker.mesh, broker.url, f"agentlip mesh revoke-member {broker.mesh} {key}"
        )
        for broker in settings.outbox.brokers
    ]
