"""What each change of the broker does inside its transaction. Module-level, arguments that pickle.

The statements are those that PostgreSQL has too. One writer takes jobs one by one; where two
could race for an id, `ON CONFLICT DO NOTHING` decides, as it would there.
"""

from collections.abc import Sequence

from msgspec import Struct

from appliance.broker import queries, wire
from appliance.broker.validation import RANKS, Command, Known
from appliance.broker.webhook_caller import Outcome
from appliance.kernel.batch import Tx

GONE = "its receiver answered 410 Gone"
FAILING = "nothing could be delivered for broker.webhook_disable_after_days"


class Verdict(Struct, frozen=True):
    """What became of a send: `known` that it found or made, or nothing: no such destination."""

    known: Known | None
    first: bool = False


class Told(Struct, frozen=True):
    """Published with the commit: who has something to be delivered."""

    mesh_id: str
    recipients: tuple[str, ...]


# -- signatures ------------------------------------------------------------------------------


class UsedNonce(Struct, frozen=True):
    """A signed request that changed something, until its timestamp is too old to be accepted."""

    expires_ms: int
    member: str
    digest: bytes


def remember_nonces(tx: Tx, used: Sequence[UsedNonce]) -> None:
    """In the transaction of what the requests change, or before it. For each row that comes up to
    two that are over go, so the table never holds many of those."""
    tx.execute(
        "DELETE FROM used_nonce WHERE (expires_ms, digest) IN (SELECT expires_ms, digest"
        " FROM used_nonce WHERE expires_ms < ? ORDER BY expires_ms LIMIT ?)",
        (tx.now_ms, 2 * len(used)),
    )
    tx.executemany(
        "INSERT INTO used_nonce (expires_ms, digest, member) VALUES (?, ?, ?)"
        " ON CONFLICT DO NOTHING",
        [(one.expires_ms, one.digest, one.member) for one in used],
    )


# -- accepting (B2 and B3) -------------------------------------------------------------------


def accept_many(tx: Tx, commands: Sequence[Command], fanout_max: int) -> list[Verdict]:
    """One transaction for all. A fault of one undoes all: the caller takes them singly then."""
    return [accept(tx, command, fanout_max) for command in commands]


def accept(tx: Tx, command: Command, fanout_max: int) -> Verdict:
    """Looks before it writes, so that a refusal has nothing to undo."""
    mesh_id = command.mesh_id
    found = queries.known(tx, mesh_id, command.client_message_id)
    if found is not None:
        return Verdict(found)
    recipients = recipients_of(tx, command, fanout_max)
    if recipients is None:
        return Verdict(None)
    made = Known(tx.new_id("bmsg_"), tx.new_id("bh_"), command.fingerprint, True, tx.now_ms)
    if not _claim(tx, command, made):
        return Verdict(queries.known(tx, mesh_id, command.client_message_id))
    _store_message(tx, command, made)
    _store_deliveries(tx, command, made.broker_message_id, recipients)
    if command.mentions:
        tx.executemany(
            "INSERT INTO mention_index (mesh_id, mentioned_pubkey, broker_message_id)"
            " VALUES (?, ?, ?)",
            [
                (mesh_id, pubkey, made.broker_message_id)
                for pubkey in queries.mentioned(tx, mesh_id, command.mentions)
            ],
        )
    if recipients:
        tx.publish(Told(mesh_id, recipients))
    return Verdict(made, first=True)


def recipients_of(tx: Tx, command: Command, fanout_max: int) -> tuple[str, ...] | None:
    """Who gets it; None: the destination does not exist. Nobody hears its own words back."""
    mesh_id, kind, ref = command.mesh_id, command.kind, command.ref
    if kind == "dm":
        key = queries.current_key(tx, mesh_id, ref)
        return None if key is None else (key,)
    if not queries.has_place(tx, mesh_id, kind, ref):
        return None
    if kind == "queue":
        return (f"queue:{ref}",)
    found = queries.subscribers(tx, mesh_id, kind, ref, fanout_max)
    return tuple([one for one in found if one != command.sender_pubkey])


def _claim(tx: Tx, command: Command, made: Known) -> bool:
    keep = command.retention_ms
    cursor = tx.execute(
        "INSERT INTO client_message_dedupe (mesh_id, client_message_id, broker_message_id,"
        " history_id, request_fingerprint, destination_kind, destination_ref, first_seen_ms,"
        " expires_ms, sender_pubkey) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (mesh_id, client_message_id) DO NOTHING",
        (
            command.mesh_id,
            command.client_message_id,
            made.broker_message_id,
            made.history_id,
            command.fingerprint,
            command.kind,
            command.ref,
            tx.now_ms,
            None if keep is None else tx.now_ms - command.skew_ms + keep,
            command.sender_pubkey,
        ),
    )
    return cursor.rowcount == 1


def _store_message(tx: Tx, command: Command, made: Known) -> None:
    head = (made.broker_message_id, command.mesh_id, command.client_message_id)
    rest = (
        command.sender_pubkey,
        command.sender_name,
        command.priority,
        command.meta,
        command.body,
        command.reply_to_id,
        tx.now_ms - command.skew_ms,
        command.skew_ms,
    )
    if command.kind == "topic":
        tx.execute(
            "INSERT INTO topic_message (id, mesh_id, client_message_id, topic, sender_pubkey,"
            " sender_name, priority, meta, body, reply_to_id, created_ms, skew_ms)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*head, command.ref, *rest),
        )
    else:
        tx.execute(
            "INSERT INTO message_queue (id, mesh_id, client_message_id, destination_kind,"
            " destination_ref, sender_pubkey, sender_name, priority, meta, body, reply_to_id,"
            " created_ms, skew_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*head, command.kind, command.ref, *rest),
        )
    tx.execute(
        "INSERT INTO message_history (id, mesh_id, broker_message_id, destination_kind,"
        " destination_ref, sender_pubkey, created_ms) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            made.history_id,
            command.mesh_id,
            made.broker_message_id,
            command.kind,
            command.ref,
            command.sender_pubkey,
            tx.now_ms,
        ),
    )


def _store_deliveries(tx: Tx, command: Command, message_id: str, recipients: Sequence[str]) -> None:
    rank, now = RANKS[command.priority], tx.now_ms
    tx.executemany(
        "INSERT INTO delivery_queue (mesh_id, broker_message_id, recipient, kind, rank, ready_ms,"
        " created_ms) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (command.mesh_id, message_id, recipient, command.kind, rank, now, now)
            for recipient in recipients
        ],
    )


# -- delivering ------------------------------------------------------------------------------


class Want(Struct, frozen=True):
    """A receiver with room. `rank_max` 0: only what is urgent."""

    owner: str
    mesh_id: str
    mesh: str
    recipients: tuple[str, ...]
    room: int
    rank_max: int


class Ack(Struct, frozen=True):
    owner: str
    id: int
    broker_message_id: str


class Claim(Struct, frozen=True):
    """A leased row, with the message that is to be pushed."""

    owner: str
    id: int
    attempts: int
    push: wire.Push


def turn(
    tx: Tx, acks: Sequence[Ack], wants: Sequence[Want], lease_ms: int
) -> tuple[int, list[Claim]]:
    """Acks first, then claims: one commit for all receivers. (acks that counted, claims)"""
    done = settle(tx, acks)
    claims: list[Claim] = []
    shared: dict[str, wire.Push | None] = {}
    for want in wants:
        claims += _claim_for(tx, want, lease_ms, shared)
    return done, claims


def settle(tx: Tx, acks: Sequence[Ack]) -> int:
    """The receivers have these. An ack that comes after its lease still counts, unless another
    connection of the member holds the row now."""
    done = 0
    for ack in acks:
        done += tx.execute(
            "DELETE FROM delivery_queue WHERE id = ? AND broker_message_id = ?"
            " AND (lease_owner = ? OR lease_owner IS NULL)",
            (ack.id, ack.broker_message_id, ack.owner),
        ).rowcount
    return done


def _claim_for(
    tx: Tx, want: Want, lease_ms: int, shared: dict[str, wire.Push | None]
) -> list[Claim]:
    claims: list[Claim] = []
    room = want.room
    for recipient in want.recipients:
        if room <= 0:
            break
        rows = queries.ready(tx, want.mesh_id, recipient, want.rank_max, tx.now_ms, room)
        for id_, message_id, kind, attempts in rows:
            if message_id not in shared:
                shared[message_id] = queries.message(tx, want.mesh, message_id, kind)
            push = shared[message_id]
            if push is None:
                tx.execute("DELETE FROM delivery_queue WHERE id = ?", (id_,))
                continue
            claims.append(Claim(want.owner, id_, attempts + 1, push))
        room -= len(rows)
    tx.executemany(
        "UPDATE delivery_queue SET lease_owner = ?, lease_until_ms = ?, attempts = attempts + 1"
        " WHERE id = ? AND lease_owner IS NULL",
        [(want.owner, tx.now_ms + lease_ms, claim.id) for claim in claims],
    )
    return claims


def release(tx: Tx, owner: str, ids: Sequence[int], pause_ms: int = 0) -> int:
    """A connection ended or its receiver failed: what it held is ready again."""
    done = 0
    for id_ in ids:
        done += tx.execute(
            "UPDATE delivery_queue SET lease_owner = NULL, lease_until_ms = NULL, ready_ms = ?"
            " WHERE id = ? AND lease_owner = ?",
            (tx.now_ms + pause_ms, id_, owner),
        ).rowcount
    return done


def release_all(tx: Tx) -> int:
    """At the start: no connection is left of those that held leases."""
    return tx.execute(
        "UPDATE delivery_queue SET lease_owner = NULL, lease_until_ms = NULL"
        " WHERE lease_owner IS NOT NULL"
    ).rowcount


def expire_leases(tx: Tx, limit: int) -> list[tuple[int, str]]:
    """(id, owner) of leases that ran out: ready again, for whoever comes first."""
    rows: list[tuple[int, str]] = tx.execute(
        "SELECT id, lease_owner FROM delivery_queue"
        " WHERE lease_owner IS NOT NULL AND lease_until_ms <= ? ORDER BY lease_until_ms LIMIT ?",
        (tx.now_ms, limit),
    ).fetchall()
    tx.executemany(
        "UPDATE delivery_queue SET lease_owner = NULL, lease_until_ms = NULL WHERE id = ?",
        [(id_,) for id_, _ in rows],
    )
    return rows


class HookDone(Struct, frozen=True):
    """How a call of a webhook went. `pause_ms` is for what it did not take."""

    mesh_id: str
    hook_id: str
    owner: str
    id: int
    broker_message_id: str
    outcome: Outcome
    reason: str
    pause_ms: int


class HookTurn(Struct, frozen=True):
    """`disabled`: (webhook, cause); `changed`: some webhook's row is another now."""

    claims: list[Claim]
    disabled: list[tuple[str, str]]
    changed: bool


def hook_turn(
    tx: Tx, done: Sequence[HookDone], wants: Sequence[Want], lease_ms: int, patience_ms: int
) -> HookTurn:
    """What became of calls, what that says of their receivers, and the next claims."""
    settle(tx, [Ack(one.owner, one.id, one.broker_message_id) for one in done if _is_taken(one)])
    for one in done:
        if not _is_taken(one):
            tx.execute(
                "UPDATE delivery_queue SET lease_owner = NULL, lease_until_ms = NULL,"
                " ready_ms = ?, last_error = ? WHERE id = ? AND lease_owner = ?",
                (tx.now_ms + one.pause_ms, one.reason, one.id, one.owner),
            )
    disabled: list[tuple[str, str]] = []
    changed = False
    for mesh_id, hook_id in {(one.mesh_id, one.hook_id): None for one in done}:
        outcomes = {one.outcome for one in done if one.hook_id == hook_id}
        moved, cause = _note_calls(tx, mesh_id, hook_id, outcomes, patience_ms)
        changed = changed or moved
        if cause is not None:
            disabled.append((hook_id, cause))
    off = {f"hook-{hook_id}" for hook_id, _ in disabled}
    claims: list[Claim] = []
    shared: dict[str, wire.Push | None] = {}
    for want in wants:
        if want.owner not in off:
            claims += _claim_for(tx, want, lease_ms, shared)
    return HookTurn(claims, disabled, changed)


def _is_taken(one: HookDone) -> bool:
    return one.outcome == "delivered"


def _note_calls(
    tx: Tx, mesh_id: str, hook_id: str, outcomes: set[Outcome], patience_ms: int
) -> tuple[bool, str | None]:
    """Whether the webhook's row changed, and why it was switched off if it was. `patience_ms` of
    failures and nothing else are borne; 0: any."""
    row = tx.execute(
        "SELECT enabled, failing_since_ms FROM webhook WHERE mesh_id = ? AND id = ?",
        (mesh_id, hook_id),
    ).fetchone()
    if row is None or not row[0]:
        return False, None
    since, values = row[1], (mesh_id, hook_id)
    where = "WHERE mesh_id = ? AND id = ?"
    if "gone" in outcomes:
        return True, _switch_off(tx, mesh_id, hook_id, "gone", GONE)
    if "delivered" in outcomes:
        if since is not None:
            tx.execute(f"UPDATE webhook SET failing_since_ms = NULL {where}", values)
        return since is not None, None
    if since is None:
        tx.execute(f"UPDATE webhook SET failing_since_ms = ? {where}", (tx.now_ms, *values))
        return True, None
    if patience_ms and tx.now_ms - since >= patience_ms:
        return True, _switch_off(tx, mesh_id, hook_id, "failing", FAILING)
    return False, None


def _switch_off(tx: Tx, mesh_id: str, hook_id: str, cause: str, because: str) -> str:
    tx.execute(
        "UPDATE webhook SET enabled = 0, disabled_because = ? WHERE mesh_id = ? AND id = ?",
        (because, mesh_id, hook_id),
    )
    return cause


# -- retention -------------------------------------------------------------------------------


def sweep_messages(tx: Tx, mesh_id: str, before_ms: int, limit: int) -> int:
    """Messages older than that go, with history, mentions and deliveries; their ids stay used."""
    removed = 0
    for table in ("topic_message", "message_queue"):
        rows = tx.execute(
            f"SELECT id FROM {table} WHERE mesh_id = ? AND created_ms < ?"
            " ORDER BY created_ms LIMIT ?",
            (mesh_id, before_ms, limit - removed),
        ).fetchall()
        for (message_id,) in rows:
            tx.execute(f"DELETE FROM {table} WHERE id = ?", (message_id,))
            _remove_derived(tx, mesh_id, message_id)
        removed += len(rows)
    return removed


def _remove_derived(tx: Tx, mesh_id: str, message_id: str) -> None:
    """What speaks of a message that is gone; its id stays, and says so."""
    for table in ("message_history", "mention_index", "delivery_queue"):
        tx.execute(f"DELETE FROM {table} WHERE broker_message_id = ?", (message_id,))
    flipped = tx.execute(
        "UPDATE client_message_dedupe SET history_available = 0 WHERE broker_message_id = ?",
        (message_id,),
    ).rowcount
    if flipped:
        tx.execute(
            "INSERT INTO message_tombstone (broker_message_id, mesh_id, removed_ms)"
            " VALUES (?, ?, ?) ON CONFLICT (broker_message_id) DO NOTHING",
            (message_id, mesh_id, tx.now_ms),
        )


def sweep_dedupe(tx: Tx, now_ms: int, limit: int) -> int:
    """Ids whose time is over are forgotten, but never while a delivery of theirs is outstanding."""
    rows = tx.execute(
        "SELECT d.mesh_id, d.client_message_id, d.broker_message_id"
        " FROM client_message_dedupe AS d WHERE d.expires_ms IS NOT NULL AND d.expires_ms <= ?"
        " AND NOT EXISTS (SELECT 1 FROM delivery_queue AS v"
        " WHERE v.broker_message_id = d.broker_message_id) ORDER BY d.expires_ms LIMIT ?",
        (now_ms, limit),
    ).fetchall()
    for mesh_id, client_id, message_id in rows:
        tx.execute(
            "DELETE FROM client_message_dedupe WHERE mesh_id = ? AND client_message_id = ?",
            (mesh_id, client_id),
        )
        tx.execute("DELETE FROM message_tombstone WHERE broker_message_id = ?", (message_id,))
    return len(rows)


def note_time(tx: Tx, key: str) -> None:
    """When something was done last, for the next process too."""
    tx.execute(
        "INSERT INTO meta (key, value) VALUES (?, ?)"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (key, str(tx.now_ms)),
    )


# -- clocks that are set -----------------------------------------------------------------------


def move_times(tx: Tx, jump_ms: int, wait_ms_max: int) -> int:
    """Move pauses, leases, and what is noted of webhooks, as the clock was moved.

    Of deliveries only those that wait. A time is left alone that would then be later than any
    wait lasts: it was written after the jump.
    """
    latest_ms = tx.now_ms + wait_ms_max - jump_ms
    moved = tx.execute(
        "UPDATE delivery_queue SET ready_ms = ready_ms + ? WHERE ready_ms > ? AND ready_ms <= ?",
        (jump_ms, min(tx.now_ms, tx.now_ms - jump_ms), latest_ms),
    ).rowcount
    moved += tx.execute(
        "UPDATE delivery_queue SET lease_until_ms = lease_until_ms + ?"
        " WHERE lease_owner IS NOT NULL AND lease_until_ms <= ?",
        (jump_ms, latest_ms),
    ).rowcount
    tx.execute(
        "UPDATE webhook SET failing_since_ms = failing_since_ms + ?,"
        " former_until_ms = former_until_ms + ?",
        (jump_ms, jump_ms),
    )
    return moved


def end_impossible_waits(tx: Tx, now_ms: int, wait_ms_max: int) -> int:
    """Deliveries that were accepted in the future and not tried, or that wait for longer than any
    does, are ready."""
    return tx.execute(
        "UPDATE delivery_queue SET ready_ms = ?"
        " WHERE ready_ms > ? AND ((created_ms > ? AND attempts = 0) OR ready_ms > ?)",
        (now_ms, now_ms, now_ms, now_ms + wait_ms_max),
    ).rowcount
