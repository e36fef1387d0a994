"""Structs and errors of the HTTP API of backups. A restore is not possible over HTTP."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from appliance.backup.manifest import StoreFacts, Verification
from appliance.kernel.scopes import Scopes

READ = "backup:read"
CREATE = "backup:create"
SCOPES = Scopes(frozenset({READ, CREATE}), {READ: (CREATE,)})
NAME = r"^\d{8}T\d{6}Z-[0-9a-f]{6}$"


Work = Literal["create", "verify"]


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
    files: int = 0
    encrypted: bool = False
    app_version: str = ""
    epoch: str = ""
    last_event_id: int = 0
    verification: Verification | None = None
    problem: str = ""


class BackupFailure(Struct, frozen=True, kw_only=True):
    """The last failure of a phase, until that phase succeeds."""

    phase: Literal["create", "verify", "prune", "upload"]
    failed_at: str
    code: str
    error: str
    hint: str = ""


class BackupState(Struct, frozen=True, kw_only=True):
    """What the appliance does about backups now.

    running         the phase that runs; None: none. `backup` is the name of its backup, if known
    next_at         when the next scheduled backup is due; None: the schedule is off, or there is
                    nothing to back up yet
    """

    enabled: bool
    running: Literal["create", "verify", "prune", "upload"] | None = None
    backup: str | None = None
    started_at: str | None = None
    next_at: str | None = None
    failures: tuple[BackupFailure, ...] = ()


class BackupList(Struct, frozen=True, kw_only=True):
    """Newest first. While `has_more` is true, continue with `after` set to `next`."""

    backups: list[Backup]
    state: BackupState
    has_more: bool = False
    next: str | None = None


class BackupsQuery(Struct, frozen=True):
    """`after` is `next` of the previous page."""

    limit: Annotated[int, Meta(ge=1)] = 20
    after: Annotated[str, Meta(pattern=NAME)] | None = None


class BackupDetails(Struct, frozen=True, kw_only=True):
    backup: Backup
    db_id: str
    identity: str
    recipients: tuple[str, ...]
    stores: dict[str, StoreFacts]


class BackupAccepted(Struct, frozen=True, kw_only=True):
    """The work was accepted. GET /api/v1/backups shows its progress and its result."""

    accepted: Work
    backup: str | None
    state: BackupState
