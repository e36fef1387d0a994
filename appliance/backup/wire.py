"""Structs and errors of the HTTP API of backups. A restore is not possible over HTTP."""

from msgspec import Struct

from appliance.backup.manifest import StoreFacts, Verification
from appliance.kernel.scopes import Scopes

READ = "backup:read"
CREATE = "backup:create"
SCOPES = Scopes(frozenset({READ, CREATE}), {READ: (CREATE,)})


class Backup(Struct, frozen=True, kw_only=True):
    """A backup in a list. `problem`: why it can't be read; then the other fields are empty.

    cut_at    the moment whose state it contains
    seconds   how long it took to make; `pause_ms` of it no store could write
    bytes     size of its content; `stored_bytes` on disk
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
    """The work was accepted. GET /api/v1/backups shows its result."""
