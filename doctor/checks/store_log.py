"""The size of a store's write-ahead log."""

from collections.abc import Iterator
from pathlib import Path

from appliance.checks.check import Finding, Problem, Severity
from appliance.checks.context import Context, size_of
from appliance.workspace.datadir import SHARED_STORES

_MIB = 1 << 20
ERROR_BYTES = 500 * _MIB  # hub specification, section 6.5
LARGE = Problem("large")


def log_of(database: Path) -> Path:
    return database.with_name(f"{database.name}-wal")


def log_bytes(database: Path) -> int:
    """Return the log's size in bytes, or 0 without a log."""
    return size_of(log_of(database))


def find_large_log(context: Context) -> Iterator[Finding]:
    for store in (*context.stores, *SHARED_STORES):
        database = context.datadir.database(store)
        size = log_bytes(database)
        if size > context.settings.wal_warning_bytes:
            yield LARGE.finding(
                store,
                f"the write-ahead log has grown to {size / _MIB:.0f} MiB",
                f"agentlip doctor --checkpoint # a reader may keep it: fuser -v {database}",
                severity=Severity.ERROR if size > ERROR_BYTES else Severity.WARNING,
            )
