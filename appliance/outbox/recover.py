"""A damaged outbox: refused at the start, before anything opens it, and recovered by a command.

It is never put aside by itself: what was accepted and not delivered is nowhere else. An id that
was accepted is never given out again: where its send is lost, an aborted one takes its place.
Contract §8.
"""

from pathlib import Path

import msgspec

from appliance.kernel.clock import Clock
from appliance.kernel.datadir import DataDir, suspect_mark
from appliance.kernel.ids import IdFactory
from appliance.kernel.integrity import is_damaged
from appliance.kernel.log import Log
from appliance.kernel.recovery import Connection, Damaged, Report, recover_file
from appliance.kernel.schema import StoreDamaged
from appliance.outbox.columns import COLUMNS, Row
from appliance.outbox.settings import OutboxSettings
from appliance.outbox.writes import ID_PREFIX

STORE = "outbox"
CLIENT_ID = Row._fields.index("client_message_id")
INDEX_OF_CLIENT_IDS = "sqlite_autoindex_outbox_2"
LOST = "its send was lost with a damaged file"
_MARKS = ", ".join("?" * (len(Row._fields) + 1))
_INSERT = f"INSERT OR IGNORE INTO outbox (rowid, {COLUMNS}) VALUES ({_MARKS})"


class OutboxDamaged(StoreDamaged):
    code = "OUTBOX_DAMAGED"
    sentence = "outbox: the file of accepted sends is damaged"
    advice = "agentlip outbox recover --yes"


class Recovered(msgspec.Struct, frozen=True):
    """What `recover` saved and what it did not.

    kept_as      name of the copy of the damaged file; None: the file is sound, nothing was done
    sends        sends that were saved
    ids_lost     sends of which only the id is known; they became aborted sends without payload
    ids_unknown  sends of which not even the id is left: clients may use these ids again
    rows_lost    lost rows of other tables: remembered answers to operators' requests
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
    """At the start, under the lock. Raises OutboxDamaged."""
    database = datadir.database(STORE)
    if database.exists() and _is_damaged(database, settings):
        raise OutboxDamaged(details={"store": STORE})


def recover(datadir: DataDir, settings: OutboxSettings, clock: Clock, log: Log) -> Recovered:
    """Copies what can be read of a damaged outbox into a new file. Under the lock.

    A sound file stays as it is. Raises OSError when the disk does not take the new file.
    """
    database = datadir.database(STORE)
    if not database.exists() or not _is_damaged(database, settings):
        suspect_mark(database).unlink(missing_ok=True)
        return Recovered(None)
    ids: list[str] = []

    def keep_ids(damaged: Damaged, target: Connection, report: Report) -> None:
        ids.extend(_keep_ids(damaged, target, report, clock))

    kept_as, report = recover_file(datadir, STORE, clock, log, keep_ids)
    sends = report.pop(STORE)
    done = Recovered(
        kept_as,
        sends=sends.rows,
        ids_lost=len(ids),
        # Numbers of rows are given in order and no row is ever deleted.
        ids_unknown=max(0, sends.highest - sends.rows - len(ids)),
        rows_lost=sum(table.rows_lost for table in report.values()),
    )
    log.warning("the outbox was recovered", **msgspec.to_builtins(done))
    return done


def _is_damaged(database: Path, settings: OutboxSettings) -> bool:
    """All of a file that is small enough is looked through; of a larger one what is quick."""
    return is_damaged(database, quick=database.stat().st_size > settings.check_bytes_max)


def _keep_ids(damaged: Damaged, target: Connection, report: Report, clock: Clock) -> list[str]:
    """Aborted sends for ids whose sends are lost; the ids."""
    taken = {number for (number,) in target.execute("SELECT rowid FROM outbox")}
    lost: dict[int, str] = {}
    for number, values in report[STORE].broken.items():
        if len(values) > CLIENT_ID and isinstance(values[CLIENT_ID], str):
            lost[number] = values[CLIENT_ID]
    for text, number in damaged.texts_in_index(INDEX_OF_CLIENT_IDS):
        # On pages that no tree reaches, entries of the other index of one text look the same.
        if number not in lost or lost[number].startswith(ID_PREFIX):
            lost[number] = text
    ids, now_ms = IdFactory(clock), clock.now_ms()
    ids.seed(target.execute("SELECT max(id) FROM outbox").fetchone()[0])
    kept = []
    for number in sorted(lost.keys() - taken):
        row = _aborted(ids.new(ID_PREFIX), lost[number], now_ms)
        if target.execute(_INSERT, (number, *row)).rowcount:
            kept.append(lost[number])
    return kept


def _aborted(row_id: str, client_message_id: str, now_ms: int) -> Row:
    """A send that keeps its id taken and is never delivered."""
    return Row(
        id=row_id,
        client_message_id=client_message_id,
        request_fingerprint=bytes(32),
        payload=b"",
        enqueued_at=now_ms,
        attempts=0,
        next_attempt_at=now_ms,
        status="aborted",
        last_error=LOST,
        delivered_at=None,
        broker_message_id=None,
        aborted_at=now_ms,
        aborted_by="recover",
        superseded_by=None,
        mesh="unknown",
        target="unknown",
        route="unknown",
        destination_kind="topic",
        destination_ref="unknown",
        reply_to_id=None,
        priority="next",
        meta=None,
        history_id=None,
        died_at=None,
        payload_dropped_at=now_ms,
    )
