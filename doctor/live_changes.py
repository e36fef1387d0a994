"""LIVE: the changes of a store that a running appliance makes itself, and how its writer makes one.

A change is one transaction of the store's writer, without other writes. So it is ordered with all
of them, and an end of the process undoes it or leaves it done. Applying it twice has the result of
once. The writer's process imports this module, so it imports few others.
"""

import sqlite3
from collections.abc import Callable

import msgspec

from appliance.kernel.batch import Tx
from appliance.kernel.clock import Clock, SystemClock
from appliance.kernel.datadir import STORES
from appliance.kernel.readlimit import ReadLimit, is_interrupt
from appliance.kernel.store_errors import sqlite_name
from doctor import store_actions
from doctor.store_actions import Arguments, CannotRepair
from doctor.wire import StepTooLong

# Errors of the change itself. Others, such as a full disk, are the writer's to report.
_OWN_ERRORS = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_CONSTRAINT", "SQLITE_ERROR")
_STEPS_BETWEEN_CHECKS = 4_000


class LiveChange(msgspec.Struct, frozen=True, kw_only=True):
    """change  makes the change in an open transaction, and says what it did
    stores     the stores that it can change
    takes      the names of its arguments
    """

    change: Callable[[sqlite3.Connection, Arguments, Clock], str]
    stores: tuple[str, ...] = STORES
    takes: frozenset[str] = frozenset({"store"})


LIVE: dict[str, LiveChange] = {
    "reindex": LiveChange(change=store_actions.reindex),
    "recreate-object": LiveChange(
        change=store_actions.recreate_object, takes=frozenset({"store", "object"})
    ),
    "rebuild-fts": LiveChange(change=store_actions.restart_fts, stores=("hub",)),
    "fill-event-scopes": LiveChange(change=store_actions.fill_event_scopes, stores=("hub",)),
}
"""By the name of the action."""


def apply(tx: Tx, action: str, arguments: dict[str, str], seconds_max: float) -> str:
    """Makes the change in the writer's transaction and says what it did.

    Raises StepTooLong, CannotRepair, or the error of a disk that can't be written. An error of the
    change does not stop the store."""
    connection = tx.execute("SELECT 1").connection
    clock = SystemClock()
    limit = ReadLimit(clock, seconds_max, 0)
    limit.start()
    limit.watch(connection, _STEPS_BETWEEN_CHECKS)
    try:
        return LIVE[action].change(connection, arguments, clock)
    except sqlite3.Error as error:
        if is_interrupt(error):
            raise StepTooLong from None
        if sqlite_name(error).startswith(_OWN_ERRORS):
            raise CannotRepair(str(error)) from None
        raise
    finally:
        connection.set_progress_handler(None, 0)
