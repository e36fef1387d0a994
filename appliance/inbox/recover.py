"""Replaces a damaged inbox by what can be read of it, at the start, before the file is opened.

The damaged file is kept next to the new one. Messages that can't be read are lost, because they
were acked; brokers deliver unacked messages again. The hub's store is never recovered this way.
"""

from appliance.inbox import metrics
from appliance.inbox.settings import InboxSettings
from appliance.kernel.clock import Clock
from appliance.kernel.datadir import DataDir, suspect_marker
from appliance.kernel.integrity import is_damaged
from appliance.kernel.log import Log
from appliance.kernel.recovery import recover_file

STORE = "inbox"


def recover(datadir: DataDir, settings: InboxSettings, clock: Clock, log: Log) -> str | None:
    """The new name of the damaged file; None if the file is not damaged. Call it with the lock."""
    database = datadir.database(STORE)
    mark = suspect_marker(database)
    if not database.exists() or (not mark.exists() and not _is_damaged(datadir, settings)):
        return None
    kept, report = recover_file(datadir, STORE, clock, log)
    metrics.recovered.inc()
    log.error(
        "inbox_corruption_recovered",
        kept_as=kept,
        messages=report["inbox"].rows,
        messages_lost=report["inbox"].rows_lost,
        hint="brokers deliver unacked messages again; the damaged file is kept",
    )
    return kept


def _is_damaged(datadir: DataDir, settings: InboxSettings) -> bool:
    """The full check, or the quick one for a large file."""
    database = datadir.database(STORE)
    return is_damaged(database, quick=database.stat().st_size > settings.check_bytes_max)
