"""The size of a store's write-ahead log."""

from collections.abc import Iterator
from pathlib import Path

from doctor.check import Finding, Severity
from doctor.context import Context

_MIB = 1 << 20


def log_of(database: Path) -> Path:
    return database.with_name(f"{database.name}-wal")


def log_bytes(database: Path) -> int:
    """0 if there is none."""
    try:
        return log_of(database).stat().st_size
    except OSError:
        return 0


def find_large_log(context: Context) -> Iterator[Finding]:
    limits = context.settings
    for store in context.stores:
        database = context.datadir.database(store)
        size = log_bytes(database)
        if size > limits.wal_warning_bytes:
            yield Finding(
                Severity.ERROR if size > limits.wal_error_bytes else Severity.WARNING,
                store,
                f"the write-ahead log has grown to {size / _MIB:.0f} MiB",
                f"agentlip doctor --checkpoint # a reader may keep it: fuser -v {database}",
                problem="large",
            )
