"""The size of a store's write-ahead log."""

from collections.abc import Iterator

from doctor.check import Finding, Severity
from doctor.context import Context

_MIB = 1 << 20


def find_large_log(context: Context) -> Iterator[Finding]:
    limits = context.settings
    for store in context.stores:
        database = context.datadir.database(store)
        try:
            size = database.with_name(database.name + "-wal").stat().st_size
        except OSError:
            continue
        if size > limits.wal_warning_bytes:
            yield Finding(
                Severity.ERROR if size > limits.wal_error_bytes else Severity.WARNING,
                store,
                f"the write-ahead log has grown to {size / _MIB:.0f} MiB",
                f"agentlip doctor --checkpoint # a reader may keep it: fuser -v {database}",
                problem="large",
            )
