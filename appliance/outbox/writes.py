"""What each change does inside its transaction. Rows are never deleted.

Every function takes a Tx and plain values, so that a writer in another process can run it.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from appliance.kernel.batch import Tx
from appliance.kernel.idempotency import Reply
from appliance.outbox import queries, states, wire
from appliance.outbox.columns import COLUMNS, Row
from appliance.outbox.views import shown

ID_PREFIX = "out_"
_encode = msgspec.json.Encoder().encode


class New(NamedTuple):
    """A send as it was asked for, ready to be stored."""

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


class Found(NamedTuple):
    """What was there: `state` None is a new row, `full` says that there was no room for one."""

    state: str | None
    same: bool
    broker_message_id: str | None = None
    history_id: str | None = None
    last_error: str | None = None
    full: bool = False


_NEW, _FULL = Found(None, True), Found(None, True, full=True)


def accept(tx: Tx, sends: Sequence[New], room: int) -> list[Found]:
    """Look each up and store those that are new, while there is `room`; one answer each.

    One transaction with the writer's other work, under the lock that BEGIN IMMEDIATE takes, so
    two requests with one id never both find nothing.
    """
    found = []
    for send in sends:
        row = tx.execute(
            "SELECT request_fingerprint, status, broker_message_id, history_id, last_error,"
            " mesh, target FROM outbox WHERE client_message_id = ?",
            (send.client_message_id,),
        ).fetchone()
        if row is not None:
            found.append(_compared(send, row))
        elif room <= 0:
            found.append(_FULL)
        else:
            room -= 1
            _insert(tx, send)
            found.append(_NEW)
    return found


def _compared(send: New, row: Any) -> Found:
    """The fingerprint speaks of one mesh; the id is used up for all of them."""
    same = row[0] == send.fingerprint and row[5] == send.mesh and row[6] == send.target
    return Found(row[1], same, row[2], row[3], row[4])


def _insert(tx: Tx, send: New) -> str:
    row_id = tx.new_id(ID_PREFIX)
    tx.execute(
        "INSERT INTO outbox (id, client_message_id, request_fingerprint, payload, enqueued_at,"
        " next_attempt_at, status, mesh, target, route, destination_kind, destination_ref,"
        " reply_to_id, priority, meta, principal)"
        " VALUES (?, ?, ?, ?, ?, ?, 'pending', ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (row_id, *send[:3], tx.now_ms, tx.now_ms, *send[3:]),
    )
    return row_id


# -- delivering ------------------------------------------------------------------------


def reset_inflight(tx: Tx, pause_ms: int, reason: str, held: Sequence[str] = ()) -> int:
    """Sends in flight that nobody holds, after a restart or a doubtful write: nobody knows what
    became of them, so they are tried again."""
    return tx.execute(
        "UPDATE outbox SET status = 'pending', attempts = attempts + 1, next_attempt_at = ?,"
        " last_error = ? WHERE status = 'inflight'"
        " AND id NOT IN (SELECT value FROM json_each(?))",
        (tx.now_ms + pause_ms, reason, json.dumps(list(held))),
    ).rowcount


def claim(
    tx: Tx, route: str, now_ms: int, too_old_ms: int, limit: int, bytes_max: int
) -> list[Row]:
    """Take what is due on a route; what became too old meanwhile is left to the sweep."""
    rows = tx.execute(
        f"SELECT {COLUMNS} FROM outbox WHERE status = 'pending' AND route = ?"
        " AND next_attempt_at <= ? AND enqueued_at > ? ORDER BY next_attempt_at, rowid LIMIT ?",
        (route, now_ms, too_old_ms, limit),
    ).fetchall()
    return _take(tx, [Row(*row) for row in rows], bytes_max)


def claim_in_order(
    tx: Tx, route: str, now_ms: int, too_old_ms: int, limit: int, bytes_max: int, after: Any
) -> tuple[list[Row], Any]:
    """Take the oldest of each destination, where it is due and nothing before it is on its way.
    Goes round the destinations, from `after`, a bounded number a round."""
    found: list[Row] = []
    kind, ref = after or ("", "")
    for _ in range(limit):
        row = tx.execute(
            f"SELECT {COLUMNS} FROM outbox WHERE status IN ('pending', 'inflight') AND route = ?"
            " AND (destination_kind, destination_ref) > (?, ?)"
            " ORDER BY destination_kind, destination_ref, rowid LIMIT 1",
            (route, kind, ref),
        ).fetchone()
        if row is None:
            kind = ref = ""
            break
        head = Row(*row)
        kind, ref = head.destination_kind, head.destination_ref
        due = head.next_attempt_at <= now_ms and head.enqueued_at > too_old_ms
        if head.status == states.PENDING and due:
            found.append(head)
    return _take(tx, found, bytes_max), ((kind, ref) if kind else None)


def _take(tx: Tx, rows: list[Row], bytes_max: int) -> list[Row]:
    taken: list[Row] = []
    total = 0
    for row in rows:
        total += len(row.payload) + len(row.meta or "")
        if taken and total > bytes_max:
            break
        taken.append(row)
    tx.executemany(
        "UPDATE outbox SET status = 'inflight' WHERE id = ? AND status = 'pending'",
        [(row.id,) for row in taken],
    )
    return taken


class Settled(NamedTuple):
    """What became of one delivery. `next_attempt_at` is for those that go back."""

    id: str
    event: str
    broker_message_id: str | None = None
    history_id: str | None = None
    reason: str | None = None
    next_attempt_at: int = 0


def settle(tx: Tx, results: Sequence[Settled]) -> int:
    """Each from in flight to where it goes; a second time it changes nothing."""
    now = tx.now_ms
    delivered = [
        (one.broker_message_id, one.history_id, now, one.id)
        for one in results
        if one.event == states.DELIVERED
    ]
    refused = [(one.reason, now, one.id) for one in results if one.event == states.REFUSED]
    later = [
        (one.reason, one.next_attempt_at, one.id) for one in results if one.event == states.LATER
    ]
    changed = 0
    for sql, rows in (
        (
            "UPDATE outbox SET status = 'done', broker_message_id = ?, history_id = ?,"
            " delivered_at = ?, last_error = NULL WHERE id = ? AND status = 'inflight'",
            delivered,
        ),
        (
            "UPDATE outbox SET status = 'dead', attempts = attempts + 1, last_error = ?,"
            " died_at = ? WHERE id = ? AND status = 'inflight'",
            refused,
        ),
        (
            "UPDATE outbox SET status = 'pending', attempts = attempts + 1, last_error = ?,"
            " next_attempt_at = ? WHERE id = ? AND status = 'inflight'",
            later,
        ),
    ):
        if rows:
            changed += tx.executemany(sql, rows).rowcount
    return changed


def let_die(
    tx: Tx, too_old_ms: dict[str, int], default_ms: int, after: str, most: int
) -> tuple[int, str]:
    """Give up pending sends that were accepted before their mesh's time, or before `default_ms`.

    Looks at `most` of them after the id `after`, whatever their ids say about time: ids go on
    rising after the clock was set back. Returns how many died and the id to go on from; "" at
    the end.
    """
    rows = tx.execute(
        "SELECT id, enqueued_at, mesh FROM outbox INDEXED BY outbox_waiting"
        " WHERE status = 'pending' AND id > ? ORDER BY id LIMIT ?",
        (after, most),
    ).fetchall()
    old = [
        (tx.now_ms, id_)
        for id_, enqueued_at, mesh in rows
        if enqueued_at <= too_old_ms.get(mesh, default_ms)
    ]
    if old:
        tx.executemany(
            "UPDATE outbox SET status = 'dead', died_at = ?, last_error ="
            " 'older than max_age_hours' || ifnull('; before that: ' || last_error, '')"
            " WHERE id = ?",
            old,
        )
    return len(old), rows[-1][0] if len(rows) == most else ""


# -- clocks that are set ------------------------------------------------------------------


def move_times(tx: Tx, jump_ms: int, _wait_ms_max: int) -> int:
    """Move the times of all sends that have not ended, as the clock was moved; a time before 1970
    is one as any other."""
    return tx.execute(
        "UPDATE outbox SET enqueued_at = enqueued_at + ?, next_attempt_at = next_attempt_at + ?"
        " WHERE status IN ('pending', 'inflight')",
        (jump_ms, jump_ms),
    ).rowcount


def end_impossible_waits(tx: Tx, now_ms: int, wait_ms_max: int) -> int:
    """Sends that were accepted in the future, or wait for longer than any send does, are due."""
    return tx.execute(
        "UPDATE outbox SET enqueued_at = min(enqueued_at, ?), next_attempt_at ="
        " min(next_attempt_at, ?) WHERE status = 'pending'"
        " AND (enqueued_at > ? OR next_attempt_at > ?)",
        (now_ms, now_ms, now_ms, now_ms + 2 * wait_ms_max),
    ).rowcount


def forget_payloads(tx: Tx, before_ms: int, most: int) -> int:
    """Payloads of sends delivered before that time go; id, fingerprint and receipt stay."""
    return tx.execute(
        "UPDATE outbox SET payload = x'', meta = NULL, payload_dropped_at = ? WHERE id IN"
        " (SELECT id FROM outbox WHERE status = 'done' AND payload_dropped_at IS NULL"
        "  AND delivered_at <= ? ORDER BY delivered_at LIMIT ?)",
        (tx.now_ms, before_ms, most),
    ).rowcount


# -- the operator ----------------------------------------------------------------------


class Successor(NamedTuple):
    """What a requeue makes of a send; None for what stays as it was."""

    client_message_id: str
    fingerprint: bytes | None = None
    payload: bytes | None = None
    meta: str | None = None
    patched: bool = False


def answered(tx: Tx, function: Callable[..., Struct], *args: Any) -> Reply:
    """What `function` answers, as it is told and kept."""
    return Reply(200, _encode(function(tx, *args)))


def requeue(
    tx: Tx, plan: Sequence[tuple[str, Successor]], by: str, more: bool
) -> wire.RequeueResult:
    """All of `plan`, or nothing: each send is retired and a new one put in its place."""
    done = [_requeue(tx, row_id, successor, by) for row_id, successor in plan]
    return wire.RequeueResult(done, False, more)


def _requeue(tx: Tx, row_id: str, successor: Successor, by: str) -> wire.Requeued:
    old = _retirable(tx, row_id)
    taken = tx.execute(
        "SELECT id FROM outbox WHERE client_message_id = ?", (successor.client_message_id,)
    ).fetchone()
    if taken is not None:
        raise wire.IdTaken(details={"id": taken[0]})
    if old.payload_dropped_at is not None and successor.payload is None:
        raise wire.PayloadGone(details={"id": old.id})
    new_id = _insert(
        tx,
        New(
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
        ),
    )
    tx.execute(
        "UPDATE outbox SET status = 'aborted', aborted_at = ?, aborted_by = ?, superseded_by = ?"
        " WHERE id = ?",
        (tx.now_ms, by, new_id, old.id),
    )
    return wire.Requeued(old.id, old.client_message_id, new_id, successor.client_message_id)


def drop(tx: Tx, any_id: str, by: str) -> wire.Dropped:
    """Retire a send without a successor and drop its payload."""
    row = queries.find(tx, any_id)
    if row is None:
        raise wire.NoSuchSend(details={"id": any_id})
    if row.status == states.INFLIGHT:
        raise wire.WrongState("the send is being delivered", details=_told(row))
    if row.status in states.RETIRABLE:
        tx.execute(
            "UPDATE outbox SET status = 'aborted', aborted_at = ?, aborted_by = ? WHERE id = ?",
            (tx.now_ms, by, row.id),
        )
    tx.execute(
        "UPDATE outbox SET payload = x'', meta = NULL, payload_dropped_at ="
        " ifnull(payload_dropped_at, ?) WHERE id = ?",
        (tx.now_ms, row.id),
    )
    again = queries.find(tx, row.id)
    assert again is not None
    return wire.Dropped(shown(again))


def prune(tx: Tx, dead: bool, before_ms: int, by: str, most: int) -> wire.Pruned:
    """Drop payloads of ended sends; `dead` retires dead ones with theirs."""
    pruned = 0
    for condition, column in (
        ("status = 'done'", "delivered_at"),
        ("status = 'aborted'", "aborted_at"),
    ):
        pruned += tx.execute(
            "UPDATE outbox SET payload = x'', meta = NULL, payload_dropped_at = ? WHERE id IN"
            f" (SELECT id FROM outbox WHERE {condition} AND payload_dropped_at IS NULL"
            f"  AND {column} <= ? LIMIT ?)",
            (tx.now_ms, before_ms, most - pruned),
        ).rowcount
    if dead and pruned < most:
        pruned += tx.execute(
            "UPDATE outbox SET payload = x'', meta = NULL, payload_dropped_at = ?1,"
            " status = 'aborted', aborted_at = ?1, aborted_by = ?2 WHERE id IN"
            " (SELECT id FROM outbox WHERE status = 'dead' AND died_at <= ?3 LIMIT ?4)",
            (tx.now_ms, by, before_ms, most - pruned),
        ).rowcount
    return wire.Pruned(pruned, more=pruned >= most)


def _retirable(tx: Tx, any_id: str) -> Row:
    row = queries.find(tx, any_id)
    if row is None:
        raise wire.NoSuchSend(details={"id": any_id})
    if row.status not in states.RETIRABLE:
        raise wire.WrongState(f"a send that is {row.status} can't be requeued", details=_told(row))
    return row


def _told(row: Row) -> dict[str, str | None]:
    return {"id": row.id, "status": row.status, "superseded_by": row.superseded_by}
