"""Handles keys for encrypted backups: recipients to write them, identities to read them.

The formats are the `age` program's formats: `age-keygen -o FILE` makes an identity file, which
names the recipient in a comment.
"""

import os
from pathlib import Path
from typing import Any

from appliance.backup import stored
from appliance.backup.encoding import age
from appliance.backup.errors import KeyRefused, RecipientRefused
from appliance.backup.manifest import BackupManifest
from appliance.backup.settings import BackupSettings

_FILE_BYTES_MAX = 64 * 1024
_PREFIX = "AGE-SECRET-KEY-"


Identities = tuple[Any, ...]
"""Secret keys, at least one. Neither a key's text nor the tuple's text shows them."""


def recipients(settings: BackupSettings) -> list[Any]:
    """Return the public keys in `backup.recipients`. Raises RecipientRefused for an invalid key."""
    keys = []
    for text in settings.recipients:
        try:
            keys.append(age().x25519.Recipient.from_str(text.strip()))
        except age().RecipientError as error:
            shown = "a secret key" if text.strip().upper().startswith(_PREFIX) else repr(text[:80])
            raise RecipientRefused(
                f"backup.recipients: {shown} is not an age public key: {error}"
            ) from None
    return keys


def load(settings: BackupSettings, file: Path | None = None) -> Identities | None:
    """Return the keys in `file`, otherwise in `backup.identity_file`; None if neither is given.

    Raises KeyRefused for a file that can't be read or has no key.
    """
    path = file or (Path(settings.identity_file).expanduser() if settings.identity_file else None)
    if path is None:
        return None
    try:
        with path.open("rb") as opened:
            text = opened.read(_FILE_BYTES_MAX).decode("utf-8", "replace")
    except OSError as error:
        reason = error.strerror or os.strerror(error.errno or 0)
        name = "backup.identity_file" if file is None else "--identity"
        raise KeyRefused(f"{name}: {path} can't be read: {reason.lower()}") from None
    lines = [line.strip() for line in text.splitlines()]
    keys = [_identity(line) for line in lines if line and not line.startswith("#")]
    if not keys:
        raise KeyRefused("the identity file contains no age secret key")
    return tuple(keys)


def single_use(settings: BackupSettings) -> Identities | None:
    """Return a new key pair for one backup whose secret key is elsewhere. The backup is also
    encrypted for this key and verified in this process, and then the key is forgotten. None if
    not needed."""
    if not settings.verify or not settings.recipients or settings.identity_file:
        return None
    return (age().x25519.Identity.generate(),)


def check(path: Path, manifest: BackupManifest, identities: Identities | None) -> None:
    """Decode the smallest file in the backup at `path`. Writes nothing.

    Raises KeyRefused if the backup is encrypted and no key opens the file, BackupDamaged if the
    file has changed.
    """
    if not manifest.encrypted or not manifest.files:
        return
    smallest = min(manifest.files, key=lambda file: file.stored_bytes)
    stored.read(path, smallest, stored.Nowhere(), keys_of(manifest, identities))


def keys_of(manifest: BackupManifest, identities: Identities | None) -> Identities | None:
    """Return the keys for a backup's files; None if the files are not encrypted. Raises
    KeyRefused."""
    if not manifest.encrypted:
        return None
    if identities is None:
        raise KeyRefused(f"the backup is encrypted for {manifest.recipients[0]}; name its key")
    return identities


def _identity(line: str) -> Any:
    try:
        return age().x25519.Identity.from_str(line)
    except age().IdentityError as error:
        raise KeyRefused(f"the identity file has a line without a secret key: {error}") from None
