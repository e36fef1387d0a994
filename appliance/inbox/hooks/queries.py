"""Reads the waiting hook runs."""

from typing import NamedTuple

import msgspec

from appliance.inbox import queries
from appliance.inbox.wire import InboxMessage
from appliance.kernel.reader import Reader


class WaitingRun(NamedTuple):
    """A waiting run for a message. `command` is its position in the settings."""

    number: int
    id: str
    hook: str
    command: int
    message: InboxMessage


_COLUMNS = queries.COLUMNS.replace(", ", ", inbox.")
_WAITING = (
    f"SELECT inbox.{_COLUMNS}, run.number, run.id, run.hook, run.command FROM hook_runs AS run"
    " JOIN inbox ON inbox.id = run.inbox_id WHERE run.outcome = 'waiting' AND run.number > ?"
    " ORDER BY run.number LIMIT ?"
)


def waiting(reader: Reader, after: int, limit: int) -> list[WaitingRun]:
    """Return at most `limit` message runs, oldest first, after the number `after`."""
    rows = reader.execute(_WAITING, (after, limit)).fetchall()
    return [
        WaitingRun(number, id_, hook, command, _decode_meta(queries.message_of(message)))
        for *message, number, id_, hook, command in rows
    ]


def has_runs(reader: Reader, outcome: str) -> bool:
    sql = "SELECT EXISTS (SELECT 1 FROM hook_runs WHERE outcome = ?)"
    return bool(reader.execute(sql, (outcome,)).fetchone()[0])


def _decode_meta(message: InboxMessage) -> InboxMessage:
    """Return the message with its meta as hooks read it."""
    if message.meta is None:
        return message
    return msgspec.structs.replace(message, meta=msgspec.json.decode(message.meta))


def count_waiting(reader: Reader, after: int) -> int:
    """Count the runs that wait after the number `after`."""
    sql = "SELECT count(*) FROM hook_runs WHERE outcome = 'waiting' AND number > ?"
    return int(reader.execute(sql, (after,)).fetchone()[0])
