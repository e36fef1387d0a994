"""Reads and writes backup manifests: the copied files, the moment, and hashes for each byte.

`manifest.json` is written last. The manifest's hash is in the last field, so any changed byte in a
backup is noticed. Sizes are in bytes, times in UTC with milliseconds, hashes are SHA-256 in
hexadecimal.

The hash is not a signature: anybody who can write to a target can forge a manifest. So a manifest
is only accepted if all paths belong to files that backups contain, and the text is printable.
"""

import hashlib
import re
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from appliance.backup.errors import BackupDamaged, VersionRefused
from appliance.kernel.clock import utc
from appliance.kernel.store_declaration import path_of
from appliance.workspace import blobs
from appliance.workspace.contents import CONTENTS, Kind

FILE, VERIFICATION = "manifest.json", "verification.json"
"""The names that a backup's further files have, here and at targets."""
BYTES_MAX = 64 * 1024 * 1024  # about 150,000 files; a larger manifest is damaged
FORMAT = 1
VERIFICATION_BYTES_MAX = 1024 * 1024
_STAMP_CHARACTERS = len("20261120T101112Z")
_STORE = re.compile(r"\.?[\w-]+(/[\w-]+)*\.\w+")  # also a newer version's manifest
_MODES: dict[Kind, int] = {
    "store": 0o640, "secret": 0o600, "record": 0o640, "settings": 0o644, "blob": 0o644,
}  # fmt: skip
Reason = Literal["manual", "schedule", "before-migration", "before-restore"]


class BackupFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file in a backup.

    name   the name in the backup's directory, with .zst and .age where they apply
    path   the restored path, relative to the workspace, with /
    bytes, sha256                for the content
    stored_bytes, stored_sha256  for the file in the backup, compressed and encrypted
    """

    name: str
    path: str
    kind: Kind
    mode: int
    bytes: int
    sha256: str
    stored_bytes: int
    stored_sha256: str

    @property
    def restored_mode(self) -> int:
        """Return the file's mode, but never executable, and for other users only what the kind
        allows."""
        return self.mode & _MODES[self.kind] | 0o600


class StoreFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A store at the cut. `rows`: each table's row count, without full-text indexes and tables
    that SQLite manages. `last_event_id`: 0 for stores without events. `held_by_other`: another
    program was writing to a shared store, which was then read separately. `missing_blobs`: how
    many files named in rows were missing or damaged. `head`: the number and hash of a chain's
    newest record, as `NUMBER:HASH`."""

    file: str
    store_id: str
    schema: int
    rows: dict[str, int]
    last_event_id: int = 0
    held_by_other: bool | msgspec.UnsetType = msgspec.UNSET  # not in other stores' manifests
    missing_blobs: int | msgspec.UnsetType = msgspec.UNSET  # this store without blobs
    head: str | msgspec.UnsetType = msgspec.UNSET  # this store without a chain


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    """A backup's manifest. `pause_ms`: how long no store could write. `principals`: the tokens
    and plugins that created messages, sorted, at most 1,000. `identity`: the member's public
    key, "" without a key. `last_event_id`: the highest id ever given out."""

    format: int = FORMAT
    name: str
    reason: Reason
    created_at: str
    cut_at: str
    seconds: float
    pause_ms: float
    app_version: str
    db_id: str
    epoch: str
    last_event_id: int
    identity: str = ""
    compression: Literal["zstd"] = "zstd"
    recipients: tuple[str, ...] = ()
    stores: dict[str, StoreFacts]
    principals: tuple[str, ...] = ()
    files: tuple[BackupFile, ...]
    sha256: str = ""

    @property
    def cut_ms(self) -> int:
        return moment_ms(self.cut_at, self.name)

    @property
    def encrypted(self) -> bool:
        return bool(self.recipients)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def stored_bytes(self) -> int:
        return sum(file.stored_bytes for file in self.files)


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """The last restore check's result, in `verification.json` beside the manifest.

    inconclusive  the check could not be finished (no key, no space, no time) and proves nothing
    """

    result: Literal["good", "bad", "inconclusive"]
    checked_at: str
    seconds: float
    app_version: str
    problems: tuple[str, ...] = ()


def encode(manifest: BackupManifest) -> bytes:
    """Return the text for `manifest.json`, sealed with the manifest's hash without `sha256`."""
    sealed = msgspec.structs.replace(manifest, sha256=_seal(manifest))
    return msgspec.json.format(msgspec.json.encode(sealed)) + b"\n"


def decode(text: bytes, name: str) -> BackupManifest:
    """Return the manifest for the backup `name`. Raises BackupDamaged if any byte changed, and
    VersionRefused for a newer format."""
    try:
        head = msgspec.json.decode(text, type=_FormatOnly)
        if head.format > FORMAT:
            raise VersionRefused(
                f"the backup has format {head.format}; this version reads {FORMAT}"
            )
        manifest = msgspec.json.decode(text, type=BackupManifest)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise BackupDamaged(f"{FILE} can't be decoded: {error}") from None
    if text != encode(manifest):
        raise BackupDamaged(f"{FILE} has been changed since it was written")
    if not _is_printable(msgspec.to_builtins(manifest)):
        raise BackupDamaged(f"{FILE} contains control characters")
    if manifest.name != name:
        raise BackupDamaged(f"the manifest of {name} belongs to another backup, {manifest.name}")
    for file in manifest.files:
        if not _is_plain(file.name) or not is_contained(file.path, file.kind, manifest.stores):
            raise BackupDamaged(f"{FILE} names a file that backups don't contain: {file.path}")
        if file.kind == "blob" and not file.path.endswith(file.sha256):
            raise BackupDamaged(f"{FILE} names a blob that has another content: {file.path}")
    if len({file.name for file in manifest.files}) < len(manifest.files):
        raise BackupDamaged(f"{FILE} names a file twice")
    return manifest


def is_contained(path: str, kind: Kind, stores: Collection[str] = ()) -> bool:
    """Return whether backups contain files of this kind at this path, relative to the workspace."""
    if kind == "store":
        return path in map(path_of, stores) and _STORE.fullmatch(path) is not None
    folder, _, name = path.rpartition("/")
    if kind == "blob":
        return folder in map(blobs.folder_of, stores) and blobs.NAME.fullmatch(name) is not None
    return any(row.kind == kind and row.matches(path) for row in CONTENTS)


def moment_ms(cut_at: str, name: str) -> int:
    """Return when a cut was made; for an unreadable time, when the backup's name was given."""
    try:
        moment = datetime.fromisoformat(utc(cut_at))
    except ValueError:
        moment = datetime.strptime(name[:_STAMP_CHARACTERS], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


class _FormatOnly(msgspec.Struct):
    format: int


def _seal(manifest: BackupManifest) -> str:
    bare = msgspec.structs.replace(manifest, sha256="")
    return hashlib.sha256(msgspec.json.encode(bare)).hexdigest()


def _is_plain(name: str) -> bool:
    taken = ("", ".", "..", FILE, VERIFICATION)
    return name not in taken and "/" not in name and "\0" not in name


def _is_printable(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_printable(half) for pair in value.items() for half in pair)
    if isinstance(value, (list, tuple)):
        return all(map(_is_printable, value))
    return not isinstance(value, str) or value.isprintable()
