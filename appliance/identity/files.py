"""Reads and changes the files in `.agentlip/identity/` while the appliance is stopped."""

import os
import shlex
from pathlib import Path
from typing import Any

from appliance.identity import host, keys, wire
from appliance.identity.host import HostFingerprint
from appliance.identity.keys import KeyArchive, KeyPair
from appliance.identity.mode import choose
from appliance.identity.settings import IdentitySettings
from appliance.kernel import meta
from appliance.kernel.clock import Clock, iso
from appliance.kernel.ownership import read_regular
from appliance.workspace import manifest
from appliance.workspace.datadir import DataDir
from appliance.workspace.manifest import IDENTITY, StoreLost

DIRECTORY, AGENTS = "identity", "network"
KEYPAIR = "keypair.json"
NEXT = "keypair-next.json"
ARCHIVE = "keypair-archive.json"
HOST = "host_fingerprint.json"
_FILE_BYTES_MAX = 256 * 1024


class IdentityFiles:
    """The folder `.agentlip/identity/`. Files are written atomically."""

    def __init__(self, datadir: DataDir) -> None:
        self._datadir = datadir
        self.folder = datadir.dir / DIRECTORY

    def read(self, name: str) -> bytes | None:
        """Return a file's content; None without the file. Raises KeysDamaged if it can't be
        read."""
        path = self.folder / name
        try:
            return read_regular(path, _FILE_BYTES_MAX)
        except FileNotFoundError:
            return None
        except OSError as error:
            where = shlex.quote(str(path))
            raise wire.KeysDamaged(
                f"the file {name} with the member key can't be read: {error.strerror}",
                hint=f"ls -ld {where}; restore the file from a backup, or move it away",
            ) from None

    def read_keys(self, mode: str) -> KeyPair | None:
        """Return the member key; None before the first start. Raises StoreLost if the key that
        `mode` needs was lost."""
        text = self.read(KEYPAIR)
        if text is not None:
            return keys.read_keys(text)
        if mode == "persistent" and IDENTITY in manifest.read(self._datadir).stores:
            raise StoreLost(IDENTITY)
        return None

    def read_host(self) -> HostFingerprint | None:
        """Return the machine that the key belongs to; None if unknown."""
        return meta.decode(self.read(HOST), HostFingerprint)

    def write(self, name: str, value: Any) -> None:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self._datadir.write_private(self.folder / name, keys.text_of(value))

    def remove(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)

    def put_aside(self, name: str, now_ms: int) -> str:
        other = f"{name}.malformed-{now_ms}"
        (self.folder / name).rename(self.folder / other)
        return other


def read_view(datadir: DataDir, settings: IdentitySettings) -> wire.IdentityView:
    """Return the identity as stored. Raises NoKeys, or StoreLost if the next start refuses to
    make a new key."""
    files = IdentityFiles(datadir)
    key_pair = files.read_keys(choose(settings.mode, os.environ).mode)
    if key_pair is None:
        raise wire.NoKeys
    return view_of(key_pair, settings, host.measure(os.environ), files)


def view_of(
    key_pair: KeyPair,
    settings: IdentitySettings,
    current_host: HostFingerprint,
    files: IdentityFiles | None,
) -> wire.IdentityView:
    """Describe a key pair. `files`: None for an ephemeral key."""
    stored = current_host if files is None else files.read_host()
    return wire.IdentityView(
        pubkey=key_pair.ed25519_pubkey,
        key_id=key_pair.key_id,
        mode="ephemeral" if files is None else "persistent",
        created_at=key_pair.created_at,
        host_fingerprint=None if stored is None else stored.fingerprint,
        host=host.compare(stored, current_host),
        clone_policy=settings.clone_policy,
        rotation_unfinished=files is not None and files.read(NEXT) is not None,
        archived=[] if files is None else _list_archived(files),
    )


def accept_host(datadir: DataDir, settings: IdentitySettings) -> wire.IdentityView:
    """Keep the key, and store this machine's fingerprint."""
    read_view(datadir, settings)  # refuses a lost key as a start does
    IdentityFiles(datadir).write(HOST, host.measure(os.environ))
    return read_view(datadir, settings)


def remint(datadir: DataDir, settings: IdentitySettings, clock: Clock) -> wire.IdentityView:
    """Replace the key and delete the archive: brokers see a new member.

    Only while the appliance is stopped, because a running process keeps using the old key.
    """
    files = IdentityFiles(datadir)
    files.write(KEYPAIR, keys.make(iso(clock.now_ms())))
    files.remove(NEXT)
    files.remove(ARCHIVE)
    files.write(HOST, host.measure(os.environ))
    return read_view(datadir, settings)


def put_agents_aside(datadir: DataDir, clock: Clock) -> Path | None:
    """Move a copied workspace's network agents away, and return the new folder. Return None without
    agents, or with a damaged member key: then the workspace may be the only one."""
    agents = datadir.dir / AGENTS
    try:
        keys.read_keys(IdentityFiles(datadir).read(KEYPAIR) or b"")
    except wire.KeysDamaged:
        return None
    if not any(agents.glob("*/agent.json")):
        return None
    aside = datadir.dir / f"{AGENTS}.copied" / str(clock.now_ms())
    aside.parent.mkdir(mode=0o700, exist_ok=True)
    agents.rename(aside)
    manifest.forget(datadir, AGENTS)
    return aside


def _list_archived(files: IdentityFiles) -> list[wire.ArchivedKey]:
    text = files.read(ARCHIVE)
    try:
        archive = KeyArchive() if text is None else keys.read_archive(text)
    except wire.KeysDamaged:  # put aside by the next start
        return []
    return [
        wire.ArchivedKey(key.key_id, key.ed25519_pubkey, key.rotated_out_at, key.expires_at)
        for key in archive.keys
    ]
