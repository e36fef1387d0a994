"""Structs and errors of maintenance mode."""

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from appliance.kernel.errors import Conflict, Invalid
from appliance.kernel.scopes import Scopes

READ, WRITE = "metrics:read", "maintenance:write"
SCOPES = Scopes(frozenset({WRITE}))
FILE_BYTES_MAX = 4096


class BeginMaintenance(Struct, frozen=True):
    """`until`: within the next 7 days; without a zone, UTC."""

    until: Annotated[datetime, Meta(examples=["2026-12-24T18:00:00Z"])]
    reason: Annotated[str, Meta(max_length=200)] = ""


class MaintenanceState(Struct, frozen=True):
    """`until`: None if it is off."""

    on: bool
    until: str | None = None
    reason: str = ""


class MaintenanceRecord(msgspec.Struct, frozen=True):
    """The content of `.agentlip/maintenance.json`."""

    until_ms: int = 0
    reason: str = ""


class BadEndOfMaintenance(Invalid):
    code = "BAD_END_OF_MAINTENANCE"
    default_message = "until: must be within the next 7 days"
    default_hint = "agentlip maintenance on --for 30m"


class MigrationForbidden(Conflict):
    code = "MIGRATION_FORBIDDEN"
    default_message = "the stores are older than this program, and a start may not migrate them"
    default_hint = "agentlip migrate --plan; agentlip migrate --apply; then agentlipd up"


def refuse_older(migrates: bool, find: Callable[[], Sequence[str]]) -> None:
    """`find` returns the older stores. Raises MigrationForbidden if a start may not migrate."""
    if not migrates and (stores := find()):
        raise MigrationForbidden(
            f"{', '.join(stores)}: older than this program, and store.migrate_at_start is false",
            details={"stores": list(stores)},
        )


def read_record(file: Path) -> MaintenanceRecord:
    """Off if the file is missing or can't be decoded."""
    try:
        with file.open("rb") as stream:
            return msgspec.json.decode(stream.read(FILE_BYTES_MAX), type=MaintenanceRecord)
    except (OSError, msgspec.DecodeError):
        return MaintenanceRecord()
