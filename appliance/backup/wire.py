"""Defines the structs and errors for the backup HTTP API. A restore is not possible over HTTP."""

from msgspec import Struct

from appliance.backup.manifest import StoreFacts, Verification
from appliance.kernel.errors import Conflict
from appliance.kernel.scopes import Scopes
from appliance.workspace.restoring import NoticeKind

READ = "backup:read"
CREATE = "backup:create"
ADMIN = "admin"  # a plan names rows from every store
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


class PlannedLoss(Struct, frozen=True, kw_only=True):
    """Rows with one fate in a restore. `first`: the id and a text for each of the first rows."""

    store: str
    kind: NoticeKind
    noun: str
    count: int
    first: list[list[str]]


class PlannedRestore(Struct, frozen=True, kw_only=True):
    """A restore's losses, revocations and repeated sends. `agentlip backup restore --plan` shows
    the files too. `uncompared`: stores whose losses are unknown."""

    name: str
    cut_at: str
    notices: list[PlannedLoss]
    uncompared: list[str]
    migrations: dict[str, str]
    bytes_needed: int
    bytes_free: int


class PlanRefused(Conflict):
    code = "BACKUP_PLAN_REFUSED"
    default_message = "a restore of this backup can't be planned"
    default_hint = "agentlip backup restore NAME --plan"


class BackupAccepted(Struct, frozen=True, kw_only=True):
    """The work was accepted. GET /api/v1/backups shows the result."""
