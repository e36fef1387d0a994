"""Defines the structs and errors for the backup HTTP API. A restore is not possible over HTTP."""

from msgspec import Struct

from appliance.backup.manifest import StoreFacts, Verification
from appliance.kernel.scopes import Scopes

READ = "backup:read"
CREATE = "backup:create"
SCOPES = Scopes(frozenset({READ, CREATE}), {READ: (CREATE,)})


class Backup(Struct, frozen=True, kw_only=True):
    """A backup in a list. `problem`: why the backup can't be read; then all further fields are
    empty.

    cut_at    the moment of the contained state
    seconds   how long the backup took; for `pause_ms` no store could write
    bytes     the content's size; `stored_bytes` on disk
    """

    name: str
    reason: str = ""
    created_at: str = ""
    cut_at: str = ""
    seconds: float = 0.0
    pause_ms: float = 0.0
    bytes: int = 0
    stored_bytes: int = 0
    encrypted: bool = False
    app_version: str = ""
    epoch: str = ""
    last_event_id: int = 0
    verification: Verification | None = None
    problem: str = ""


class BackupList(Struct, frozen=True, kw_only=True):
    """The newest backups, newest first."""

    backups: list[Backup]


class BackupDetails(Struct, frozen=True, kw_only=True):
    backup: Backup
    db_id: str
    identity: str
    recipients: tuple[str, ...]
    stores: dict[str, StoreFacts]


class BackupAccepted(Struct, frozen=True, kw_only=True):
    """The work was accepted. GET /api/v1/backups shows the result."""
