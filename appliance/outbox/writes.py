"""Changes the outbox, each change in one transaction. Rows are never deleted.

Functions take a Tx and plain values, so that the writer process can run them.
"""

import json
from collections.abc import Sequence
from itertools import takewhile
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from appliance.kernel import meta
from appliance.kernel.batch import Tx
from appliance.kernel.idempotency import Reply
from appliance.outbox import log_writes, queries, states, wire
from appliance.outbox.log_writes import SendEvent
from appliance.outbox.queries import COLUMNS, LOST
from appliance.outbox.rows import SendRow
from appliance.outbox.views import to_wire

ID_PREFIX = "out_"
TOO_OLD = "older than max_age_hours"
BY_OPERATOR = "operator"  # `aborted_by` of retired sends
DESTINATIONS_MAX = 1000  # visited by one claim; the next one continues
_DUE = "status = 'pending' AND next_attempt_at <= ? AND accepted_steady_ms > ?"
_encode = msgspec.json.Encoder().encode


class NewSend(NamedTuple):
    """A validated send, ready to be stored."""

    client_message_id: str
    fingerprint: bytes
    payload: bytes
    mesh: str
    target: str
    route: str
    destination_kind: str
    destination_ref: str
    reply_to_id: str | None
    priority: str
    meta: str | None
    principal: str | None = None
    traceparent: str | None = None


class Acceptance(NamedTuple):
    """One accepted send's result: `state` is the existing row's, None if there was none; `full`:
    there was no capacity for a new row."""

    state: str | None
    same: bool
    broker_message_id: str | None = None
    history_id: str | None = None
    last_error: str | None = None
    full: bool = False


_NEW, _FULL = Acceptance(None, True), Acceptance(None, True, full=True)


def accept(tx: Tx, sends: Sequence[NewSend], free_sends: int) -> list[Acceptance]:
    """Store up to `free_sends` sends, and look up the others; return one result for each.

    Runs under the BEGIN IMMEDIATE lock, so two requests can't both store one id.
    """
    results, accepted = [], []
    for send in sends:
        if free_sends > 0 and (row_id := _insert(tx, send)):
            free_sends -= 1
            accepted.append(SendEvent(row_id, log_writes.ACCEPTED))
            results.append(_NEW)
            continue
        row = tx.execute(
            "SELECT request_fingerprint, status, broker_message_id, history_id, last_error,"
            " mesh, target FROM outbox WHERE client_message_id = ?",
            (send.client_message_id,),
        ).fetchone()
        results.append(_FULL if row is None else _compare(send, row))
    log_writes.log_events(tx, accepted)
    return results


def _compare(send: NewSend, row: Any) -> Acceptance:
    """Compare a send with the stored row. The fingerprint doesn't include mesh and target, but
    an id is used for all of them."""
    same = row[0] == send.fingerprint and row[5] == send.mesh and row[6] == send.target
    return Acceptance(row[1], same, row[2], row[3], row[4])


def _insert(tx: Tx, send: NewSend) -> str:
    """Return the new row's id; empty if there is a send with this client_message_id."""
    row_id = tx.new_id(ID_PREFIX)
    inserted = tx.execute(
        "INSERT INTO outbox (id, client_message_id, request_fingerprint, payload, enqueued_at,"
        " next_attempt_at, status, mesh, target, route, destination_kind, destination_ref,"
        " reply_to_id, priority, meta, principal, traceparent, accepted_steady_ms)"
        " VALUES (?, ?, ?, ?, ?, ?, 'pending', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (client_message_id) DO NOTHING",
        (row_id, *send[:3], tx.now_ms, tx.steady_ms, *send[3:], tx.steady_ms),
    )
    return row_id if inserted.rowcount else ""


# -- delivery ------------------------------------------------------------------------


def reset_inflight(tx: Tx, delay_ms: int, reason: str, in_flight: Sequence[str]) -> int:
    """Make sends pending that are in flight but not in `in_flight`: after a restart or a failed
    write their outcome is unknown. Counts an attempt."""
    log_writes.log_interrupted(tx, reason, in_flight)
    return tx.execute(
        "UPDATE outbox SET status = 'pending', attempts = attempts + 1, next_attempt_at = ?,"
        " last_error = ? WHERE status = 'inflight'"
        " AND id NOT IN (SELECT value FROM json_each(?))",
        (tx.steady_ms + delay_ms, reason, json.dumps(list(in_flight))),
    ).rowcount


def claim(
    tx: Tx, route: str, now_ms: int, too_old_ms: int, limit: int, bytes_max: int
) -> list[SendRow]:
    """Claim a route's due sends. Sends that are too old are left to the pruner."""
    rows = tx.execute(
        f"SELECT {COLUMNS} FROM outbox WHERE status = 'pending' AND route = ?"
        " AND next_attempt_at <= ? AND accepted_steady_ms > ?"
        " ORDER BY next_attempt_at, rowid LIMIT ?",
        (route, now_ms, too_old_ms, limit),
    ).fetchall()
    return _claim_rows(tx, [SendRow(*row) for row in rows], bytes_max)


def claim_in_order(
    tx: Tx, route: str, now_ms: int, too_old_ms: int, limit: int, bytes_max: int, after: Any
) -> tuple[list[SendRow], Any]:
    """Claim a run of each destination: its oldest sends, up to the first that is not due or in
    flight. Visits destinations from `after` on, until there are `limit` sends; also returns the
    cursor to continue from."""
    rows: list[SendRow] = []
    kind, ref = after or ("", "")
    for _ in range(DESTINATIONS_MAX):
        row = tx.execute(
            f"SELECT destination_kind, destination_ref, {_DUE} FROM outbox"
            " WHERE status IN ('pending', 'inflight') AND route = ?"
            " AND (destination_kind, destination_ref) > (?, ?)"
            " ORDER BY destination_kind, destination_ref, rowid LIMIT 1",
            (now_ms, too_old_ms, route, kind, ref),
        ).fetchone()
        if row is None:
            kind = ref = ""
            if rows or after is None:
                break
            after = None  # once more from the beginning
            continue
        kind, ref, is_due = row
        if not is_due:
            continue
        run = tx.execute(
            f"SELECT {_DUE}, {COLUMNS} FROM outbox WHERE status IN ('pending', 'inflight')"
            " AND route = ? AND destination_kind = ? AND destination_ref = ? ORDER BY rowid"
            " LIMIT ?",
            (now_ms, too_old_ms, route, kind, ref, limit - len(rows)),
        ).fetchall()
        rows += [SendRow(*row[1:]) for row in takewhile(itemgetter(0), run)]
        if len(rows) >= limit:
            break
    return _claim_rows(tx, rows, bytes_max), ((kind, ref) if kind else None)


def _claim_rows(tx: Tx, rows: list[SendRow], bytes_max: int) -> list[SendRow]:
    claimed: list[SendRow] = []
    total = 0
    for row in rows:
        total += len(row.payload) + len(row.meta or "")
        if claimed and total > bytes_max:
            break
        claimed.append(row)
    tx.executemany(
        "UPDATE outbox SET status = 'inflight' WHERE id = ? AND status = 'pending'",
        [(row.id,) for row in claimed],
    )
    return claimed


class DeliveryOutcome(NamedTuple):
    """One delivery's outcome. `next_attempt_at` applies to retries."""

    id: str
    event: str
    broker_message_id: str | None = None
    history_id: str | None = None
    reason: str | None = None
    next_attempt_at: int = 0


_IN_FLIGHT = "WHERE id = :id AND status = 'inflight'"
_CHANGES = {
    states.DELIVERED: "UPDATE outbox SET status = 'done', broker_message_id = :broker_message_id,"
    f" history_id = :history_id, delivered_at = :now_ms, last_error = NULL {_IN_FLIGHT}",
    states.REJECTED: "UPDATE outbox SET status = 'dead', attempts = attempts + 1,"
    f" last_error = :reason, died_at = :now_ms {_IN_FLIGHT}",
    states.RETRY: "UPDATE outbox SET status = 'pending', attempts = attempts + 1,"
    f" last_error = :reason, next_attempt_at = :next_attempt_at {_IN_FLIGHT}",
    states.RELEASE: f"UPDATE outbox SET status = 'pending' {_IN_FLIGHT}",
}


def record_outcomes(tx: Tx, outcomes: Sequence[DeliveryOutcome]) -> int:
    """Apply each outcome to its send in flight. Idempotent."""
    log_writes.log_attempts(tx, [event for outcome in outcomes for event in _events_of(outcome)])
    changed = 0
    for event, sql in _CHANGES.items():
        rows = [
            {**outcome._asdict(), "now_ms": tx.now_ms}
            for outcome in outcomes
            if outcome.event == event
        ]
        if rows:
            changed += tx.executemany(sql, rows).rowcount
    return changed


def _events_of(outcome: DeliveryOutcome) -> list[SendEvent]:
    if outcome.event == states.RELEASE:
        return []
    if outcome.event == states.DELIVERED:
        receipt = outcome.broker_message_id
        return [SendEvent(outcome.id, log_writes.DELIVERED, 1, receipt)]
    failed = SendEvent(outcome.id, log_writes.FAILED, 1, error=outcome.reason)
    if outcome.event == states.RETRY:
        return [failed]
    return [failed, SendEvent(outcome.id, log_writes.DIED, error=outcome.reason)]


def expire(
    tx: Tx, too_old_ms: dict[str, int], default_ms: int, after: str, limit: int
) -> tuple[int, str]:
    """Dead-letter pending sends accepted before their mesh's limit, or before `default_ms`, both
    by the steady clock.

    Checks `limit` of them after the id `after`. Ids don't imply times, because they keep rising
    after the clock was set back. Returns how many expired and the id to continue from; "" at the
    end.
    """
    rows = tx.execute(
        "SELECT id, accepted_steady_ms, mesh FROM outbox INDEXED BY outbox_waiting"
        " WHERE status = 'pending' AND id > ? ORDER BY id LIMIT ?",
        (after, limit),
    ).fetchall()
    old = [
        (tx.now_ms, id_)
        for id_, accepted_ms, mesh in rows
        if accepted_ms <= too_old_ms.get(mesh, default_ms)
    ]
    if old:
        log_writes.log_events(
            tx, [SendEvent(id_, log_writes.DIED, error=TOO_OLD) for _, id_ in old]
        )
        tx.executemany(
            f"UPDATE outbox SET status = 'dead', died_at = ?, last_error = '{TOO_OLD}' || "
            " ifnull('; before that: ' || last_error, '')"
            " WHERE id = ?",
            old,
        )
    return len(old), rows[-1][0] if len(rows) == limit else ""


def cap_waits(tx: Tx, wait_ms_max: int) -> int:
    """Make sends due that would wait longer than any retry does; how many."""
    now_ms = tx.steady_ms
    return tx.execute(
        "UPDATE outbox SET next_attempt_at = ? WHERE status = 'pending' AND next_attempt_at > ?",
        (now_ms, now_ms + wait_ms_max),
    ).rowcount


def make_due(tx: Tx, route: str, ref: str) -> int:
    """Make the sends waiting for one destination due; return how many."""
    return tx.execute(
        "UPDATE outbox SET next_attempt_at = ?1 WHERE status = 'pending' AND route = ?2 AND"
        " destination_kind = 'queue' AND destination_ref = ?3 AND next_attempt_at > ?1",
        (tx.steady_ms, route, ref),
    ).rowcount


def prune_payloads(tx: Tx, before_ms: int, limit: int) -> int:
    """Prune payloads delivered before that time; id, fingerprint and receipt stay."""
    return _prune_payloads(tx, "status = 'done'", "delivered_at", before_ms, limit)


def _prune_payloads(tx: Tx, condition: str, column: str, before_ms: int, limit: int) -> int:
    return tx.execute(
        "UPDATE outbox SET payload = x'', meta = NULL, payload_dropped_at = ? WHERE id IN"
        f" (SELECT id FROM outbox WHERE {condition} AND payload_dropped_at IS NULL"
        f"  AND {column} <= ? ORDER BY {column} LIMIT ?)",
        (tx.now_ms, before_ms, limit),
    ).rowcount


def mark_lost(tx: Tx, ids: Sequence[str]) -> int:
    """Dead-letter delivered sends that their broker no longer has; return how many."""
    log_writes.log_events(tx, [SendEvent(id_, log_writes.DIED, error=LOST) for id_ in ids])
    return tx.executemany(
        "UPDATE outbox SET status = 'dead', delivered_at = NULL, died_at = ?, last_error = ?"
        " WHERE id = ? AND status = 'done'",
        [(tx.now_ms, LOST, id_) for id_ in ids],
    ).rowcount


def note_epoch(tx: Tx, mesh: str, epoch: str) -> None:
    tx.execute(meta.SET, (queries.EPOCH + mesh, epoch))


# -- administration ----------------------------------------------------------------------


class Successor(NamedTuple):
    """A redrive's changes to a send; None: copied from the old send."""

    client_message_id: str
    fingerprint: bytes | None = None
    payload: bytes | None = None
    meta: str | None = None
    patched: bool = False


def redrive(tx: Tx, plan: Sequence[tuple[str, Successor | None]], more: bool) -> Reply:
    """Retire each send in `plan` and insert its successor, or send it again under its id if
    there is none: all of them or none."""
    done = [
        _send_again(tx, row_id) if successor is None else _redrive(tx, row_id, successor)
        for row_id, successor in plan
    ]
    log_writes.log_events(tx, [event for outcome in done for event in _events_of_redrive(outcome)])
    return Reply(200, _encode(wire.RedriveResult(done, False, more)))


def _events_of_redrive(redriven: wire.Redriven) -> list[SendEvent]:
    assert redriven.new_id is not None
    events = [SendEvent(redriven.id, log_writes.REDRIVEN)]
    if redriven.new_id != redriven.id:
        events.append(SendEvent(redriven.new_id, log_writes.ACCEPTED))
    return events


def _send_again(tx: Tx, row_id: str) -> wire.Redriven:
    """Send it again with a new age: the broker remembers the id from now on."""
    changed = tx.execute(
        "UPDATE outbox SET status = 'pending', attempts = 0, last_error = NULL, died_at = NULL,"
        " next_attempt_at = ?1, accepted_steady_ms = ?1 WHERE id = ?2 AND status = 'dead'"
        " AND last_error = ?3 AND payload_dropped_at IS NULL RETURNING client_message_id",
        (tx.steady_ms, row_id, LOST),
    ).fetchone()
    if changed is None:
        raise wire.WrongState("the send is not lost any more", details={"id": row_id})
    return wire.Redriven(row_id, changed[0], row_id, changed[0])


def _redrive(tx: Tx, row_id: str, successor: Successor) -> wire.Redriven:
    old = queries.require(tx, row_id)
    check_retirable(old)
    existing = tx.execute(
        "SELECT id FROM outbox WHERE client_message_id = ?", (successor.client_message_id,)
    ).fetchone()
    if existing is not None:
        raise wire.IdTaken(details={"id": existing[0]})
    if old.payload_dropped_at is not None and successor.payload is None:
        raise wire.PayloadGone(details={"id": old.id})
    new_id = _insert(
        tx,
        NewSend(
            client_message_id=successor.client_message_id,
            fingerprint=successor.fingerprint or old.request_fingerprint,
            payload=old.payload if successor.payload is None else successor.payload,
            mesh=old.mesh,
            target=old.target,
            route=old.route,
            destination_kind=old.destination_kind,
            destination_ref=old.destination_ref,
            reply_to_id=old.reply_to_id,
            priority=old.priority,
            meta=successor.meta if successor.patched else old.meta,
            principal=old.principal,
            traceparent=old.traceparent,
        ),
    )
    tx.execute(
        "UPDATE outbox SET status = 'aborted', aborted_at = ?, aborted_by = ?, superseded_by = ?"
        " WHERE id = ?",
        (tx.now_ms, BY_OPERATOR, new_id, old.id),
    )
    return wire.Redriven(old.id, old.client_message_id, new_id, successor.client_message_id)


def drop(tx: Tx, any_id: str) -> wire.DropResult:
    """Retire a send without a successor and drop its payload."""
    row = queries.require(tx, any_id)
    if row.status == states.INFLIGHT:
        raise wire.WrongState("the send is being delivered", details=_details(row))
    if row.status in states.RETIRABLE:
        log_writes.log_events(tx, [SendEvent(row.id, log_writes.ABORTED)])
        tx.execute(
            "UPDATE outbox SET status = 'aborted', aborted_at = ?, aborted_by = ? WHERE id = ?",
            (tx.now_ms, BY_OPERATOR, row.id),
        )
    tx.execute(
        "UPDATE outbox SET payload = x'', meta = NULL, payload_dropped_at ="
        " ifnull(payload_dropped_at, ?) WHERE id = ?",
        (tx.now_ms, row.id),
    )
    return wire.DropResult(to_wire(queries.require(tx, row.id)))


def prune(tx: Tx, dead: bool, before_ms: int, limit: int) -> wire.Pruned:
    """Prune ended sends' payloads; with `dead`, also retire dead letters and prune theirs."""
    pruned = prune_payloads(tx, before_ms, limit)
    pruned += _prune_payloads(tx, "status = 'aborted'", "aborted_at", before_ms, limit - pruned)
    if dead and pruned < limit:
        ids = tx.execute(
            "SELECT id FROM outbox WHERE status = 'dead' AND died_at <= ? LIMIT ?",
            (before_ms, limit - pruned),
        ).fetchall()
        tx.executemany(
            "UPDATE outbox SET payload = x'', meta = NULL, payload_dropped_at = ?1,"
            " status = 'aborted', aborted_at = ?1, aborted_by = ?2 WHERE id = ?3",
            [(tx.now_ms, BY_OPERATOR, id_) for (id_,) in ids],
        )
        log_writes.log_events(tx, [SendEvent(id_, log_writes.ABORTED) for (id_,) in ids])
        pruned += len(ids)
    return wire.Pruned(pruned, more=pruned >= limit)


def check_retirable(row: SendRow) -> None:
    if row.status not in states.RETIRABLE:
        raise wire.WrongState(
            f"a send that is {row.status} can't be redriven", details=_details(row)
        )


def _details(row: SendRow) -> dict[str, str | None]:
    return {"id": row.id, "status": row.status, "superseded_by": row.superseded_by}
