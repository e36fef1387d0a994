"""The outbox: nothing died unseen, nothing waits for too long, rows are what they say."""

import sqlite3
from collections.abc import Iterator

import msgspec

from appliance.kernel.clock import iso
from appliance.kernel.errors import ApplianceError
from appliance.mesh.fingerprint import fingerprint
from doctor.check import Check, Context, Cost, Finding, Severity
from doctor.checks.clock import set_lately

_PIECE_ROWS = 500
FUTURE_MS = 60_000
LONGEST_WAIT_MS = 3 * 3_600_000  # receivers ask for an hour at most by default


def _dead(context: Context) -> Iterator[Finding]:
    for _, connection in _opened(context):
        (count,) = connection.execute(
            "SELECT count(*) FROM outbox WHERE status = 'dead'"
        ).fetchone()
        if count:
            yield Finding(
                Severity.WARNING,
                "outbox",
                f"{count} sends are dead and will not be tried again",
                "agentlip outbox list --failed; agentlip outbox requeue --failed --auto --dry-run",
            )


def _waiting(context: Context) -> Iterator[Finding]:
    seconds = context.settings.send_waiting_warning_seconds
    before_ms = context.clock.now_ms() - int(seconds * 1000)
    for _, connection in _opened(context):
        rows = connection.execute(
            "SELECT mesh, count(*), min(enqueued_at) FROM outbox WHERE status = 'pending'"
            " AND enqueued_at <= ? GROUP BY mesh ORDER BY mesh",
            (before_ms,),
        ).fetchmany(context.settings.findings_max + 1)
        for mesh, count, oldest_ms in rows:
            hours = (context.clock.now_ms() - oldest_ms) / 3_600_000
            yield Finding(
                Severity.WARNING,
                f"mesh {mesh}",
                f"{count} sends are not delivered, the oldest for {hours:.1f} hours",
                f"agentlip outbox status; agentlip outbox list --mesh {mesh} --status pending",
            )


def _clock(context: Context) -> Iterator[Finding]:
    now_ms = context.clock.now_ms()
    for _, connection in _opened(context):
        (count, latest_ms) = connection.execute(
            "SELECT count(*), max(max(enqueued_at, next_attempt_at)) FROM outbox"
            " WHERE status = 'pending' AND (enqueued_at > ? OR next_attempt_at > ?)",
            (now_ms + FUTURE_MS, now_ms + LONGEST_WAIT_MS),
        ).fetchone()
        if count:
            yield Finding(
                Severity.WARNING,
                "outbox",
                f"{count} waiting sends have times in the future, up to {iso(latest_ms)}:"
                " the clock was ahead when they were accepted or tried",
                "agentlipd restart",
            )
        yield from set_lately(context, connection, "outbox", "waiting sends")


def _chain(context: Context) -> Iterator[Finding]:
    for _, connection in _opened(context):
        rows = connection.execute(
            "SELECT id, superseded_by FROM outbox AS old WHERE superseded_by IS NOT NULL AND"
            " NOT EXISTS (SELECT 1 FROM outbox AS new WHERE new.id = old.superseded_by)"
        ).fetchmany(context.settings.findings_max + 1)
        for send_id, successor in rows:
            yield Finding(
                Severity.ERROR,
                f"send {send_id}",
                f"its successor {successor} is not there",
                "stop the appliance and put a snapshot back; see .agentlip/backups",
            )


def _fingerprints(context: Context) -> Iterator[Finding]:
    last = ""
    for _, connection in _opened(context):
        while rows := connection.execute(
            "SELECT id, request_fingerprint, payload, destination_kind, destination_ref,"
            " reply_to_id, priority, meta FROM outbox WHERE id > ?"
            " AND payload_dropped_at IS NULL ORDER BY id LIMIT ?",
            (last, _PIECE_ROWS),
        ).fetchall():
            last = rows[-1][0]
            for row in rows:
                if not _agrees(*row[1:]):
                    yield Finding(
                        Severity.ERROR,
                        f"send {row[0]}",
                        "it is not the send that was accepted: its fingerprint is another",
                        f"agentlip outbox inspect {row[0]}; agentlip outbox drop {row[0]}",
                    )


def _agrees(
    digest: bytes,
    payload: bytes,
    kind: str,
    ref: str,
    reply_to_id: str | None,
    priority: str,
    meta: str | None,
) -> bool:
    try:
        decoded = None if meta is None else msgspec.json.decode(meta)
        return digest == fingerprint(
            kind,  # type: ignore[arg-type]
            ref,
            payload,
            reply_to_id=reply_to_id,
            priority=priority,  # type: ignore[arg-type]
            meta=decoded,
        )
    except (msgspec.DecodeError, ApplianceError):
        return False


def _opened(context: Context) -> Iterator[tuple[str, sqlite3.Connection]]:
    """The outbox's file, when it holds the table; that it does not is said elsewhere."""
    for store, connection in context.opened("outbox"):
        table = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'outbox'"
        if connection.execute(table).fetchone() is not None:
            yield store, connection


CHECKS = (
    Check(name="outbox.dead", inspects="no send is dead", find=_dead),
    Check(name="outbox.waiting", inspects="no send waits for hours", find=_waiting),
    Check(name="outbox.clock", inspects="waiting sends have plausible times", find=_clock),
    Check(name="outbox.chain", inspects="every requeued send has its successor", find=_chain),
    Check(
        name="outbox.fingerprints",
        inspects="every kept send is the one that was accepted",
        cost=Cost.EXPENSIVE,
        find=_fingerprints,
    ),
)
