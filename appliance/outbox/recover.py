"""A damaged outbox: refused at the start, before anything opens it, and mended by a command.

It is never put aside by itself, as an inbox is: what was accepted and not delivered is nowhere
else. Contract §8.
"""

import shutil
from pathlib import Path

import msgspec

from appliance.kernel import salvage, schema
from appliance.kernel.clock import Clock
from appliance.kernel.datadir import DataDir, suspect_mark, sync_directory
from appliance.kernel.ids import IdFactory
from appliance.kernel.log import Log
from appliance.kernel.schema import StoreDamaged
from appliance.kernel.soundness import is_damaged
from appliance.outbox.columns import COLUMNS, Row
from appliance.outbox.settings import OutboxSettings
from appliance.outbox.writes import ID_PREFIX

STORE, ID = "outbox", "client_message_id"
LOST = "its send was lost with a damaged file"
_BESIDE = ("-wal", "-shm", "-journal")
_MARKS = ", ".join("?" * len(Row._fields))
_INSERT = f"INSERT INTO outbox ({COLUMNS}) VALUES ({_MARKS})"


class OutboxDamaged(StoreDamaged):
    code = "OUTBOX_DAMAGED"
    sentence = "outbox: the file of accepted sends is damaged"
    advice = "agentlip outbox recover --yes"


class Recovered(msgspec.Struct, frozen=True):
    """`kept_as` None: the file is whole, and nothing was done. `ids_lost` of them stay used up,
    as aborted sends without a payload."""

    kept_as: str | None
    sends: int = 0
    ids_lost: int = 0


def refuse_damaged(datadir: DataDir, settings: OutboxSettings) -> None:
    """At the start, under the lock. Raises OutboxDamaged."""
    database = datadir.database(STORE)
    if database.exists() and _is_damaged(database, settings):
        raise OutboxDamaged(details={"store": STORE})


def recover(datadir: DataDir, settings: OutboxSettings, clock: Clock, log: Log) -> Recovered:
    """Keeps a copy of the damaged file and puts a new one in its place, with all of it that can
    be read. Under the lock. A whole file stays as it is.

    Until the last step the old file is what a start finds, and refuses.
    """
    database = datadir.database(STORE)
    if not database.exists() or not _is_damaged(database, settings):
        suspect_mark(database).unlink(missing_ok=True)
        return Recovered(None)
    kept = database.with_name(f"{database.name}.corrupt-{clock.now_ms()}")
    for suffix in ("", *_BESIDE):
        part = database.with_name(database.name + suffix)
        if part.exists():
            shutil.copy2(part, kept.with_name(kept.name + suffix))
    made = database.with_name(f".{database.name}.recovered")
    for suffix in ("", *_BESIDE):
        made.with_name(made.name + suffix).unlink(missing_ok=True)
    schema.migrate(made, STORE, clock=clock, backups=datadir.backups, log=log)
    done = _fill(made, database, clock)
    for suffix in _BESIDE:  # a log of the old file must not meet the new one
        database.with_name(database.name + suffix).unlink(missing_ok=True)
    made.rename(database)
    sync_directory(database.parent)
    suspect_mark(database).unlink(missing_ok=True)
    log.warning("the outbox was recovered", kept_as=kept.name, sends=done[0], ids_lost=done[1])
    return Recovered(kept.name, *done)


def _is_damaged(database: Path, settings: OutboxSettings) -> bool:
    """All of a file that is small enough is looked through; of a larger one what is quick."""
    return is_damaged(database, quick=database.stat().st_size > settings.check_bytes_max)


def _fill(made: Path, damaged: Path, clock: Clock) -> tuple[int, int]:
    """How many sends could be saved, and of how many only the id."""
    saved: set[str] = set()
    with salvage.opened(damaged, made) as (ruin, new):
        there = ruin.columns(
            STORE, Row._fields
        )  # a file from before the newest migration has fewer
        for found in ruin.rows(STORE, there, ID):
            row = Row(**dict(zip(there, found, strict=True)))
            if new.add(_INSERT, row):
                saved.add(row.client_message_id)
        lost = sorted(set(ruin.values(STORE, ID)) - saved)
        ids, now_ms = IdFactory(clock), clock.now_ms()
        ids.seed(new.execute("SELECT max(id) FROM outbox").fetchone()[0])
        for one in lost:
            new.add(_INSERT, _tombstone(ids.new(ID_PREFIX), one, now_ms))
    return len(saved), len(lost)


def _tombstone(row_id: str, client_message_id: str, now_ms: int) -> Row:
    """An id that stays used up."""
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
