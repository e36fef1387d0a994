"""A damaged outbox: the start refuses it, before anything opens it; a command recovers it.

It is never replaced automatically, because accepted sends exist nowhere else. The id of a lost send
stays used: an aborted send takes its place. Contract §8.
"""

from pathlib import Path

import msgspec

from appliance.kernel.clock import Clock
from appliance.kernel.datadir import DataDir, suspect_marker
from appliance.kernel.ids import IdFactory
from appliance.kernel.integrity import is_damaged
from appliance.kernel.log import Log
from appliance.kernel.recovery import Connection, DamagedFile, Report, recover_file
from appliance.kernel.schema import StoreDamaged
from appliance.outbox.columns import COLUMNS, SendRow
from appliance.outbox.settings import OutboxSettings
from appliance.outbox.writes import ID_PREFIX

STORE = "outbox"
CLIENT_ID = SendRow._fields.index("client_message_id")
INDEX_OF_CLIENT_IDS = "sqlite_autoindex_outbox_2"
LOST = "the send was lost in a damaged file"
_MARKS = ", ".join("?" * (len(SendRow._fields) + 1))
_INSERT = f"INSERT OR IGNORE INTO outbox (rowid, {COLUMNS}) VALUES ({_MARKS})"


class OutboxDamaged(StoreDamaged):
    code = "OUTBOX_DAMAGED"
    default_message = "the outbox database is damaged"
    default_hint = "agentlip outbox recover --yes"


class OutboxRecovery(msgspec.Struct, frozen=True):
    """What `recover` saved and what is lost.

    kept_as      name of the copy of the damaged file; None: the file is intact, nothing was done
    sends        saved sends
    ids_lost     sends of which only the id is left; they became aborted sends without payload
    ids_unknown  lost sends whose ids are lost too: clients can use these ids again
    rows_lost    lost rows of other tables: stored replies to admin requests
    """

    kept_as: str | None
    sends: int = 0
    ids_lost: int = 0
    ids_unknown: int = 0
    rows_lost: int = 0

    @property
    def is_complete(self) -> bool:
        return not (self.ids_lost or self.ids_unknown or self.rows_lost)


def refuse_damaged(datadir: DataDir, settings: OutboxSettings) -> None:
    """Called at the start, under the lock. Raises OutboxDamaged."""
    database = datadir.database(STORE)
    if database.exists() and _is_damaged(database, settings):
        raise OutboxDamaged(details={"store": STORE})


def recover(datadir: DataDir, settings: OutboxSettings, clock: Clock, log: Log) -> OutboxRecovery:
    """Copy what is readable in a damaged outbox into a new file. Called under the lock.

    An intact file is left as it is. Raises OSError if the new file can't be written.
    """
    database = datadir.database(STORE)
    if not database.exists() or not _is_damaged(database, settings):
        suspect_marker(database).unlink(missing_ok=True)
        return OutboxRecovery(None)
    ids: list[str] = []

    def keep_ids(damaged: DamagedFile, target: Connection, report: Report) -> None:
        ids.extend(_keep_ids(damaged, target, report, clock))

    kept_as, report = recover_file(datadir, STORE, clock, log, keep_ids)
    sends = report.pop(STORE)
    result = OutboxRecovery(
        kept_as,
        sends=sends.rows,
        ids_lost=len(ids),
        # Row numbers have no gaps, because no row is ever deleted.
        ids_unknown=max(0, sends.highest - sends.rows - len(ids)),
        rows_lost=sum(table.rows_lost for table in report.values()),
    )
    log.warning("the outbox was recovered", **msgspec.to_builtins(result))
    return result


def _is_damaged(database: Path, settings: OutboxSettings) -> bool:
    """A full check, or the quick one for files larger than outbox.check_bytes_max."""
    return is_damaged(database, quick=database.stat().st_size > settings.check_bytes_max)


def _keep_ids(damaged: DamagedFile, target: Connection, report: Report, clock: Clock) -> list[str]:
    """Insert an aborted send for each lost send whose id is readable; returns these ids."""
    row_ids = {number for (number,) in target.execute("SELECT rowid FROM outbox")}
    lost: dict[int, str] = {}
    for number, values in report[STORE].broken.items():
        if len(values) > CLIENT_ID and isinstance(values[CLIENT_ID], str):
            lost[number] = values[CLIENT_ID]
    for text, number in damaged.texts_in_index(INDEX_OF_CLIENT_IDS):
        # On unreachable pages, entries of the index of row ids look the same.
        if number not in lost or lost[number].startswith(ID_PREFIX):
            lost[number] = text
    ids, now_ms = IdFactory(clock), clock.now_ms()
    ids.seed(target.execute("SELECT max(id) FROM outbox").fetchone()[0])
    kept_ids = []
    for number in sorted(lost.keys() - row_ids):
        row = _aborted(ids.new(ID_PREFIX), lost[number], now_ms)
        if target.execute(_INSERT, (number, *row)).rowcount:
            kept_ids.append(lost[number])
    return kept_ids


def _aborted(row_id: str, client_message_id: str, now_ms: int) -> SendRow:
    """A send that reserves its id and is never delivered."""
    return SendRow(
        id=row_id,
        client_message_id=client_message_id,
        request_fingerprint=bytes(32),
        payload=b"",
        enqueued_at=now_ms,
        attempts=0,
        next_attempt_at=now_ms,
        status="aborted",
        last_error=LOST,
        aborted_at=now_ms,
        aborted_by="recover",
        mesh="unknown",
        target="unknown",
        route="unknown",
        destination_kind="topic",
        destination_ref="unknown",
        priority="next",
        payload_dropped_at=now_ms,
    )
