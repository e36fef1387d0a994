"""The files of `.agentlip/identity/`, and the operations on them while the appliance is stopped."""

import os
import shlex
from typing import Any

import msgspec

from appliance.identity import host, keys, wire
from appliance.identity.host import HostFingerprint
from appliance.identity.keys import BadKeys, KeyArchive, KeyPair
from appliance.identity.mode import choose
from appliance.identity.settings import IdentitySettings
from appliance.kernel.clock import DAY_MS, Clock, iso
from appliance.kernel.ownership import read_regular
from appliance.workspace import manifest
from appliance.workspace.datadir import DataDir
from appliance.workspace.manifest import IDENTITY, StoreLost

DIRECTORY = "identity"
KEYPAIR, NEXT, ARCHIVE, HOST = (
    "keypair.json",
    "keypair-next.json",
    "keypair-archive.json",
    "host_fingerprint.json",
)
SECRETS = (KEYPAIR, NEXT, ARCHIVE, HOST)
PUT_ASIDE_DAYS_MIN = 30  # a damaged archive that was put aside may be needed for so long
_FILE_BYTES_MAX = 256 * 1024


class IdentityFiles:
    """Reads the files of `.agentlip/identity/`, and writes them atomically."""

    def __init__(self, datadir: DataDir) -> None:
        self._datadir = datadir
        self.folder = datadir.dir / DIRECTORY

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is none. Raises KeysDamaged if it can't be read."""
        path = self.folder / name
        try:
            return read_regular(path, _FILE_BYTES_MAX)
        except FileNotFoundError:
            return None
        except OSError as error:
            where = shlex.quote(str(path))
            raise wire.KeysDamaged(
                f"the file {name} of the member key can't be read: {error.strerror}",
                hint=f"ls -ld {where}; restore the file from a backup, or move it away",
            ) from None

    def read_keys(self, settings: IdentitySettings) -> bytes:
        """The member key's file. Raises NoKeys, or StoreLost if the next start refuses to make a
        new key."""
        text = self.read(KEYPAIR)
        if text is not None:
            return text
        if self.had_keys and choose(settings.mode, os.environ).mode == "persistent":
            raise StoreLost(IDENTITY)
        raise wire.NoKeys

    @property
    def had_keys(self) -> bool:
        """Whether this workspace ever had a member key."""
        return IDENTITY in manifest.read(self._datadir).stores

    def write(self, name: str, value: Any) -> None:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self._datadir.write_private(self.folder / name, keys.text_of(value))

    def remove(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)

    def put_aside(self, name: str, now_ms: int) -> str:
        other = f"{name}.malformed-{now_ms}"
        (self.folder / name).rename(self.folder / other)
        return other

    def put_aside_before(self, name: str, before_ms: int) -> list[str]:
        """Names of files that `put_aside` made from `name` before that time, oldest first."""
        stem = f"{name}.malformed-"
        times = [path.name.removeprefix(stem) for path in self.folder.glob(f"{stem}*")]
        old = sorted(int(text) for text in times if text.isdecimal() and int(text) < before_ms)
        return [f"{stem}{time}" for time in old]

    def readable_by_others(self) -> list[str]:
        """Names of secret files that other users can read."""
        return [
            name
            for name in SECRETS
            if (path := self.folder / name).exists() and path.stat().st_mode & 0o077
        ]


def read_view(datadir: DataDir, settings: IdentitySettings) -> wire.IdentityView:
    """The identity as stored; raises NoKeys without a key."""
    files = IdentityFiles(datadir)
    text = files.read(KEYPAIR)
    if text is None:
        raise wire.NoKeys
    key_pair = parse_key_pair(text)
    current = host.measure(os.environ)
    stored = read_host(files)
    archive = files.read(ARCHIVE)
    try:
        entries = KeyArchive() if archive is None else keys.read_archive(archive)
    except BadKeys:
        entries = KeyArchive()
    return wire.IdentityView(
        pubkey=key_pair.ed25519_pubkey,
        key_id=key_pair.key_id,
        mode="persistent",
        created_at=key_pair.created_at,
        host_fingerprint=None if stored is None else stored.fingerprint,
        host="unknown" if stored is None else host.compare(stored, current),
        clone_policy=settings.clone_policy,
        rotation_unfinished=files.read(NEXT) is not None,
        archived=archived_view(entries),
    )


def accept_host(datadir: DataDir, settings: IdentitySettings) -> wire.IdentityView:
    """Keep the key, and store this machine's fingerprint."""
    files = IdentityFiles(datadir)
    files.read_keys(settings)
    files.write(HOST, host.measure(os.environ))
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


def clean_archive(
    datadir: DataDir, settings: IdentitySettings, older_days: float, clock: Clock, *, apply: bool
) -> wire.ArchiveCleaned:
    """Remove archived keys past their grace period that were rotated out `older_days` ago.

    Malformed archives that were put aside are removed after the longest grace period. Called
    under the writer lock. Without `apply` nothing is removed.
    """
    files = IdentityFiles(datadir)
    files.read_keys(settings)
    now_ms = clock.now_ms()
    before = iso(now_ms - int(older_days * DAY_MS))
    text = files.read(ARCHIVE)
    try:
        archive = KeyArchive() if text is None else keys.read_archive(text)
    except BadKeys as error:
        raise wire.ArchiveDamaged(details={"problem": str(error)}) from None
    removed = [key for key in archive.keys if key.expires_at <= iso(now_ms)]
    removed = [key for key in removed if key.rotated_out_at <= before]
    kept = tuple(key for key in archive.keys if key not in removed)
    aside_days = max(older_days, PUT_ASIDE_DAYS_MIN)
    put_aside_names = files.put_aside_before(ARCHIVE, now_ms - int(aside_days * DAY_MS))
    if apply and removed:
        files.write(ARCHIVE, KeyArchive(kept))
    for name in put_aside_names if apply else ():
        files.remove(name)
    return wire.ArchiveCleaned(
        not apply,
        archived_view(KeyArchive(tuple(removed))),
        put_aside_names,
        archived_view(KeyArchive(kept)),
    )


def parse_key_pair(text: bytes) -> KeyPair:
    try:
        return keys.read_keys(text)
    except BadKeys as error:
        raise wire.KeysDamaged(details={"problem": str(error)}) from None


def read_host(files: IdentityFiles) -> HostFingerprint | None:
    text = files.read(HOST)
    try:
        return None if text is None else msgspec.json.decode(text, type=HostFingerprint)
    except msgspec.DecodeError:
        return None


def archived_view(archive: KeyArchive) -> list[wire.ArchivedKey]:
    return [
        wire.ArchivedKey(key.key_id, key.ed25519_pubkey, key.rotated_out_at, key.expires_at)
        for key in archive.keys
    ]
