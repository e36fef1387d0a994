"""At the start, before anything opens it: a damaged inbox is put aside, and a new one begun.

What brokers were told is stored is lost then, but what they still hold comes; an appliance that
does not start would lose more. The hub's store is never treated so.
"""

from appliance.kernel import manifest
from appliance.kernel.clock import Clock
from appliance.kernel.datadir import DataDir, suspect_mark
from appliance.kernel.log import Log
from appliance.kernel.soundness import is_damaged
from appliance.outbox.inbox import metrics
from appliance.outbox.inbox.settings import InboxSettings

STORE = "inbox"
_BESIDE = ("", "-wal", "-shm", "-journal")


def recover(datadir: DataDir, settings: InboxSettings, clock: Clock, log: Log) -> str | None:
    """The name under which the damaged file was kept; None when all is well. Under the lock."""
    database = datadir.database(STORE)
    mark = suspect_mark(database)
    if not database.exists() or (not mark.exists() and not _is_damaged(datadir, settings)):
        return None
    manifest.forget(datadir, STORE)
    kept = f"{database.name}.corrupt-{clock.now_ms()}"
    for suffix in _BESIDE:
        part = database.with_name(database.name + suffix)
        if part.exists():
            part.rename(database.with_name(kept + suffix))
    mark.unlink(missing_ok=True)
    metrics.recovered.inc()
    log.error(
        "inbox_corruption_recovered",
        kept_as=kept,
        hint="what brokers still hold comes again; look into the old file with sqlite3",
    )
    return kept


def _is_damaged(datadir: DataDir, settings: InboxSettings) -> bool:
    """The whole check for a file that is small enough, else the quick one."""
    database = datadir.database(STORE)
    return is_damaged(database, quick=database.stat().st_size > settings.check_bytes_max)
