"""`.agentlip/identity/`: what lies there, and what may be done with it while nothing runs."""

import os
from typing import Any

import msgspec

from appliance.identity import host, keys, wire
from appliance.identity.host import Fingerprint
from appliance.identity.keys import Archive, BadKeys, Keys
from appliance.identity.settings import ARCHIVE_DAYS_MAX, IdentitySettings
from appliance.kernel import manifest
from appliance.kernel.clock import Clock, iso
from appliance.kernel.datadir import DataDir
from appliance.kernel.manifest import IDENTITY

DIRECTORY = "identity"
KEYPAIR, NEXT, ARCHIVE, HOST = (
    "keypair.json",
    "keypair-next.json",
    "keypair-archive.json",
    "host_fingerprint.json",
)
SECRETS = (KEYPAIR, NEXT, ARCHIVE, HOST)
_FILE_BYTES_MAX = 256 * 1024
DAY_MS = 86_400_000


class Files:
    """`.agentlip/identity/`: what is there, and writing it whole."""

    def __init__(self, datadir: DataDir) -> None:
        self._datadir = datadir
        self.folder = datadir.dir / DIRECTORY

    def read(self, name: str) -> bytes | None:
        try:
            with (self.folder / name).open("rb") as file:
                return file.read(_FILE_BYTES_MAX)
        except FileNotFoundError:
            return None

    @property
    def remembered(self) -> bool:
        """Whether this workspace had a member key before."""
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
        """Names of files that `put_aside` made of `name` before that time, oldest first."""
        stem = f"{name}.malformed-"
        times = [path.name.removeprefix(stem) for path in self.folder.glob(f"{stem}*")]
        old = sorted(int(text) for text in times if text.isdecimal() and int(text) < before_ms)
        return [f"{stem}{time}" for time in old]

    def open_to_others(self) -> list[str]:
        """Names of secret files that somebody else may read."""
        return [
            name
            for name in SECRETS
            if (path := self.folder / name).exists() and path.stat().st_mode & 0o077
        ]


def shown_of(datadir: DataDir, settings: IdentitySettings) -> wire.IdentityShown:
    """What the files say; raises NoKeys when there are none."""
    files = Files(datadir)
    text = files.read(KEYPAIR)
    if text is None:
        raise wire.NoKeys
    held = key_in(text)
    here = host.measure(settings.host_id, os.environ)
    stored = stored_host(files)
    archive = files.read(ARCHIVE)
    try:
        entries = Archive() if archive is None else keys.read_archive(archive)
    except BadKeys:
        entries = Archive()
    return wire.IdentityShown(
        pubkey=held.ed25519_pubkey,
        key_id=held.key_id,
        mode="persistent",
        created_at=held.created_at,
        host_fingerprint=None if stored is None else stored.fingerprint,
        host="unknown" if stored is None else host.compare(stored, here),
        clone_policy=settings.clone_policy,
        rotation_unfinished=files.read(NEXT) is not None,
        archived=told(entries),
    )


def accept_host(datadir: DataDir, settings: IdentitySettings) -> wire.IdentityShown:
    """Keep the key, and take this machine for its home."""
    files = Files(datadir)
    if files.read(KEYPAIR) is None:
        raise wire.NoKeys
    files.write(HOST, host.measure(settings.host_id, os.environ))
    return shown_of(datadir, settings)


def remint(datadir: DataDir, settings: IdentitySettings, clock: Clock) -> wire.IdentityShown:
    """Another key and no memory of the old one: to brokers this is a new member.

    Only while nothing runs: the running process holds the old key.
    """
    files = Files(datadir)
    files.write(KEYPAIR, keys.make(iso(clock.now_ms())))
    files.remove(NEXT)
    files.remove(ARCHIVE)
    files.write(HOST, host.measure(settings.host_id, os.environ))
    return shown_of(datadir, settings)


def clean_archive(
    datadir: DataDir, settings: IdentitySettings, older_days: float, clock: Clock, *, do: bool
) -> wire.ArchiveCleaned:
    """Forgets archived keys that nothing needs: past their grace, and out for `older_days`.

    Archives that were put aside go once the longest grace is over. Under the writer lock.
    Without `do` nothing is removed.
    """
    files = Files(datadir)
    if files.read(KEYPAIR) is None:
        raise wire.NoKeys
    now_ms = clock.now_ms()
    before = iso(now_ms - int(older_days * DAY_MS))
    text = files.read(ARCHIVE)
    try:
        archive = Archive() if text is None else keys.read_archive(text)
    except BadKeys as error:
        raise wire.ArchiveDamaged(details={"problem": str(error)}) from None
    gone = [key for key in archive.keys if key.expires_at <= iso(now_ms)]
    gone = [key for key in gone if key.rotated_out_at <= before]
    kept = tuple(key for key in archive.keys if key not in gone)
    aside_days = max(older_days, ARCHIVE_DAYS_MAX)
    aside = files.put_aside_before(ARCHIVE, now_ms - int(aside_days * DAY_MS))
    if do and gone:
        files.write(ARCHIVE, Archive(kept, settings.archive_max))
    for name in aside if do else ():
        files.remove(name)
    return wire.ArchiveCleaned(not do, told(Archive(tuple(gone))), aside, told(Archive(kept)))


def key_in(text: bytes) -> Keys:
    try:
        return keys.read_keys(text)
    except BadKeys as error:
        raise wire.KeysDamaged(details={"problem": str(error)}) from None


def stored_host(files: Files) -> Fingerprint | None:
    text = files.read(HOST)
    try:
        return None if text is None else msgspec.json.decode(text, type=Fingerprint)
    except msgspec.DecodeError:
        return None


def told(archive: Archive) -> list[wire.ArchivedKey]:
    return [
        wire.ArchivedKey(key.key_id, key.ed25519_pubkey, key.rotated_out_at, key.expires_at)
        for key in archive.keys
    ]
