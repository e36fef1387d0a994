"""Checks of the outbox: dead letters, old sends, times, chains and fingerprints."""

import sqlite3
from collections.abc import Iterator
from typing import Any

import msgspec

from appliance.kernel.clock import iso
from appliance.kernel.errors import ApplianceError
from appliance.mesh.fingerprint import fingerprint
from doctor.check import Check, Cost, Finding, Problem, Severity
from doctor.checks.clock import recent_clock_change
from doctor.context import Context

_PIECE_ROWS = 500
FUTURE_MS = 60_000
LONGEST_WAIT_MS = 3 * 3_600_000  # the default of outbox.retry_after_max_ms is one hour


def _dead(context: Context) -> Iterator[Finding]:
    for _, connection in _opened(context):
        (count,) = connection.execute(
            "SELECT count(*) FROM outbox WHERE status = 'dead'"
        ).fetchone()
        if count:
            yield Finding(
                Severity.WARNING,
                "outbox",
                f"{count} sends are dead letters and will not be retried",
                "agentlip outbox list --failed; agentlip outbox requeue --failed --auto --dry-run",
                problem="dead-letters",
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
                f"{count} sends are undelivered, the oldest for {hours:.1f} hours",
                f"agentlip outbox status; agentlip outbox list --mesh {mesh} --status pending",
                problem="waiting",
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
                " the clock was ahead when they were accepted or retried",
                "agentlipd restart",
                problem="future",
            )
        yield from recent_clock_change(context, connection, "outbox", "waiting sends")


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
                f"its successor {successor} does not exist",
                problem="broken-chain",
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
                        "the send was changed after acceptance: its fingerprint doesn't match",
                        f"agentlip outbox inspect {row[0]}; agentlip outbox drop {row[0]}",
                        problem="altered",
                    )


def _agrees(
    digest: bytes,
    payload: bytes,
    kind: Any,
    ref: str,
    reply_to_id: str | None,
    priority: Any,
    meta: str | None,
) -> bool:
    try:
        decoded = None if meta is None else msgspec.json.decode(meta)
        return digest == fingerprint(
            kind,
            ref,
            payload,
            reply_to_id=reply_to_id,
            priority=priority,
            meta=decoded,
        )
    except (msgspec.DecodeError, ApplianceError):
        return False


def _opened(context: Context) -> Iterator[tuple[str, sqlite3.Connection]]:
    """The outbox database, if it has the table; another check reports a missing one."""
    for store, connection in context.opened("outbox"):
        table = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'outbox'"
        if connection.execute(table).fetchone() is not None:
            yield store, connection


CHECKS = (
    Check(
        name="outbox.dead",
        inspects="there are no dead letters",
        find=_dead,
        reads="the sends with the status `dead`",
        problems=(
            Problem(
                "dead-letters",
                "These sends failed finally and are never delivered.",
                "See why: `agentlip outbox list --failed`. Send them again with `agentlip outbox"
                " requeue`.",
            ),
        ),
    ),
    Check(
        name="outbox.waiting",
        inspects="no send is undelivered for hours",
        find=_waiting,
        reads="the sends with the status `pending`",
        problems=(
            Problem(
                "waiting",
                "The broker of a mesh has not accepted these sends for a long time.",
                "See why: `agentlip outbox status`. The outbox retries by itself.",
            ),
        ),
    ),
    Check(
        name="outbox.clock",
        inspects="pending sends have plausible times",
        find=_clock,
        reads="the times of waiting sends, and the last clock change that the outbox noted",
        problems=(
            Problem(
                "future",
                "Sends wait until a time that is too far away, because the clock was ahead.",
                "Restart the appliance, which moves the times: `agentlipd restart`.",
            ),
            Problem(
                "jumped",
                "The clock was set within the last day.",
                "Nothing to do: the times of waiting sends were moved with it.",
            ),
        ),
    ),
    Check(
        name="outbox.chain",
        inspects="every requeued send has its successor",
        find=_chain,
        reads="the sends that were requeued, and their successors",
        problems=(
            Problem(
                "broken-chain",
                "The history of a requeued send is incomplete.",
                "There is no automatic repair. Deliveries are unaffected.",
            ),
        ),
    ),
    Check(
        name="outbox.fingerprints",
        inspects="every stored send matches its fingerprint",
        cost=Cost.EXPENSIVE,
        find=_fingerprints,
        reads="all sends whose payload is still stored",
        problems=(
            Problem(
                "altered",
                "Another program changed the send after it was accepted. The broker may refuse it.",
                "Look at it: `agentlip outbox inspect ID`. Drop it if it is wrong: `agentlip"
                " outbox drop ID`.",
            ),
        ),
    ),
)
