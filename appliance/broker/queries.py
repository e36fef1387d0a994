"""The broker's reads. `reader` is a Reader or a Tx; every list has a limit."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from appliance.broker import webhook_wire, wire
from appliance.broker.directory import KEY_EPOCHS_MAX, Directory
from appliance.broker.rows import MemberRow, MeshRow, UsedNonceRow, WebhookRow
from appliance.broker.validation import RANKS, DedupeRecord
from appliance.kernel import meta
from appliance.kernel.clock import iso
from appliance.kernel.meta import Executor
from appliance.mesh.push import Push

R = TypeVar("R", bound=NamedTuple)
_meta = msgspec.json.Decoder(dict[str, Any]).decode

EPOCH = "epoch"
LOWEST = max(RANKS.values())


def push_of(mesh: str, message_id: str, row: Sequence[Any]) -> Push:
    """Return a push. `row`: the message's columns, from client_message_id to created_ms."""
    client_id, topic, kind, ref, pubkey, name, priority, meta, body, reply_to, created_ms = row
    return Push(
        message_id, client_id, mesh, topic, kind, ref, pubkey, name, priority,
        None if meta is None else _meta(meta), body, reply_to, iso(created_ms),
    )  # fmt: skip


MESHES_MAX = 1_000  # kept in memory with their members
MEMBERS_MAX = 10_000  # in all meshes together; kept in memory too
DESTINATIONS_MAX = 10_000  # topics or queues in one mesh; all meshes' webhooks, which are in memory
SUBSCRIBERS_MAX = 2_000  # a message to a topic or queue makes a row for each


# -- meshes and members ---------------------------------------------------------------------


def directory(reader: Executor) -> Directory:
    def rows(table: str, kind: type[R], order: str, limit: int) -> list[R]:
        columns = ", ".join(kind._fields)
        sql = f"SELECT {columns} FROM {table} ORDER BY {order} LIMIT ?"
        return [kind(*row) for row in reader.execute(sql, (limit,)).fetchall()]

    queues = reader.execute(
        "SELECT mesh_id, name, subscriber FROM subscription WHERE kind = 'queue'"
        " ORDER BY mesh_id, name LIMIT ?",
        (MEMBERS_MAX * 10,),
    )
    return Directory(
        rows("mesh", MeshRow, "slug", MESHES_MAX),
        rows("member", MemberRow, "mesh_id, name, pubkey", MEMBERS_MAX),
        queues.fetchall(),
        rows("webhook", WebhookRow, "id", DESTINATIONS_MAX),
    )


def last_history(reader: Executor) -> str | None:
    row = reader.execute("SELECT max(id) FROM message_history").fetchone()
    return None if row is None else row[0]


def broker_id(reader: Executor) -> str:
    """Return the id that members sign requests for; created with the store."""
    return str(meta.value(reader, "broker_id"))


def epoch(reader: Executor) -> str:
    """Return the epoch, another one after each restore. A broker that was never restored has its id
    as its epoch."""
    return meta.value(reader, EPOCH) or broker_id(reader)


def signed_after(reader: Executor) -> int:
    """Return the time in ms that signatures must be newer than: a restore that could not keep the
    nonces that were used since the backup sets it. 0: no limit."""
    text = meta.value(reader, "signed_after_ms") or ""
    return int(text) if text.isdecimal() else 0


def used_nonces(reader: Executor, now_ms: int, limit: int) -> list[UsedNonceRow]:
    """Return nonces that have not expired, ordered by expiry."""
    rows = reader.execute(
        "SELECT expires_ms, digest, member FROM used_nonce WHERE expires_ms >= ?"
        " ORDER BY expires_ms LIMIT ?",
        (now_ms, limit),
    )
    return [UsedNonceRow(*row) for row in rows.fetchall()]


def noted_ms(reader: Executor, key: str) -> int | None:
    """Return the time stored under `key` by `retention_writes.note_time`."""
    text = meta.value(reader, key)
    return None if text is None else int(text)


# -- accepting -------------------------------------------------------------------------------


def dedupe_record(reader: Executor, mesh_id: str, client_message_id: str) -> DedupeRecord | None:
    row = reader.execute(
        "SELECT d.broker_message_id, d.history_id, d.request_fingerprint, d.history_available,"
        " d.first_seen_ms, d.sender_pubkey"
        " FROM client_message_dedupe AS d WHERE d.mesh_id = ? AND d.client_message_id = ?",
        (mesh_id, client_message_id),
    ).fetchone()
    if row is None:
        return None
    sender = row[5] and (current_key(reader, mesh_id, row[5]) or row[5])
    return DedupeRecord(row[0], row[1], bytes(row[2]), bool(row[3]), row[4], sender)


def unknown_ids(reader: Executor, mesh_id: str, ids: Iterable[str]) -> list[str]:
    """Return the client_message_ids that this broker has not accepted, or has forgotten."""
    return [
        row[0]
        for row in reader.execute(
            "SELECT j.value FROM json_each(?) AS j WHERE NOT EXISTS (SELECT 1"
            " FROM client_message_dedupe AS d WHERE d.mesh_id = ?"
            " AND d.client_message_id = j.value)",
            (msgspec.json.encode(list(ids)).decode(), mesh_id),
        )
    ]


def destination_exists(reader: Executor, mesh_id: str, kind: str, name: str) -> bool:
    sql = "SELECT 1 FROM place WHERE mesh_id = ? AND kind = ? AND name = ?"
    return reader.execute(sql, (mesh_id, kind, name)).fetchone() is not None


def is_active(reader: Executor, mesh_id: str, pubkey: str) -> bool:
    sql = "SELECT 1 FROM member WHERE mesh_id = ? AND pubkey = ? AND revoked_ms IS NULL"
    return reader.execute(sql, (mesh_id, pubkey)).fetchone() is not None


def current_key(reader: Executor, mesh_id: str, pubkey: str) -> str | None:
    """Return the member's key in force, given a current or former one; None: it is not a member."""
    for _ in range(KEY_EPOCHS_MAX):
        row = reader.execute(
            "SELECT revoked_ms, successor FROM member WHERE mesh_id = ? AND pubkey = ?",
            (mesh_id, pubkey),
        ).fetchone()
        if row is None:
            return None
        if row[0] is None:
            return pubkey
        if row[1] is None:
            return None
        pubkey = row[1]
    return None


def subscribers(reader: Executor, mesh_id: str, kind: str, name: str) -> tuple[str, ...]:
    rows = reader.execute(
        "SELECT subscriber FROM subscription WHERE mesh_id = ? AND kind = ? AND name = ?"
        " ORDER BY subscriber LIMIT ?",
        (mesh_id, kind, name, SUBSCRIBERS_MAX),
    ).fetchall()
    return tuple([row[0] for row in rows])


def find_mentioned(reader: Executor, mesh_id: str, named: Sequence[str]) -> list[str]:
    """Return the keys of active members with these keys or names."""
    keys: list[str] = []
    for key_or_name in named:
        row = reader.execute(
            "SELECT pubkey FROM member WHERE mesh_id = ? AND (pubkey = ? OR name = ?)"
            " AND revoked_ms IS NULL",
            (mesh_id, key_or_name, key_or_name),
        ).fetchone()
        if row is not None and row[0] not in keys:
            keys.append(row[0])
    return keys


# -- delivering ------------------------------------------------------------------------------


def ready(
    reader: Executor, mesh_id: str, recipient: str, rank_max: int, limit: int
) -> list[tuple[int, str, str, int]]:
    """Return (id, message, kind, attempts) for deliveries without a lease, by priority and age."""
    return reader.execute(
        "SELECT id, broker_message_id, kind, attempts FROM delivery_queue"
        " WHERE mesh_id = ? AND recipient = ? AND lease_owner IS NULL AND rank <= ?"
        " ORDER BY rank, id LIMIT ?",
        (mesh_id, recipient, rank_max, limit),
    ).fetchall()


def message(reader: Executor, mesh: str, message_id: str, kind: str) -> Push | None:
    """Return a message by its id; `kind` names its table."""
    table, columns = "message_queue", "NULL, destination_kind, destination_ref"
    if kind == "topic":
        table, columns = "topic_message", "topic, 'topic', topic"
    row = reader.execute(
        f"SELECT client_message_id, {columns}, sender_pubkey, sender_name, priority, meta,"
        f" body, reply_to_id, created_ms + skew_ms FROM {table} WHERE id = ?",
        (message_id,),
    ).fetchone()
    return None if row is None else push_of(mesh, message_id, row)


def outstanding(reader: Executor) -> int:
    return int(reader.execute("SELECT count(*) FROM delivery_queue").fetchone()[0])


def webhooks_with_work(reader: Executor, webhooks: Sequence[WebhookRow]) -> list[WebhookRow]:
    """Return the webhooks that have ready deliveries: one index lookup for each."""
    return [
        webhook
        for webhook in webhooks
        if ready(reader, webhook.mesh_id, f"webhook:{webhook.id}", LOWEST, 1)
    ]


# -- showing ---------------------------------------------------------------------------------


def destination(
    reader: Executor, mesh_id: str, kind: wire.TopicOrQueue, name: str
) -> wire.Destination:
    row = reader.execute(
        "SELECT created_ms FROM place WHERE mesh_id = ? AND kind = ? AND name = ?",
        (mesh_id, kind, name),
    ).fetchone()
    if row is None:
        raise wire.NoSuchDestination(details={"kind": kind, "name": name[:100]})
    keys = list(subscribers(reader, mesh_id, kind, name))
    return wire.Destination(kind, name, iso(row[0]), keys)


def webhook(reader: Executor, mesh_id: str, webhook_id: str) -> WebhookRow:
    """Return a webhook. Raises NoSuchHook."""
    columns = ", ".join(WebhookRow._fields)
    row = reader.execute(
        f"SELECT {columns} FROM webhook WHERE mesh_id = ? AND id = ?", (mesh_id, webhook_id)
    ).fetchone()
    if row is None:
        raise webhook_wire.WebhookNotFound(details={"webhook_id": webhook_id[:100]})
    return WebhookRow(*row)


def counts(reader: Executor) -> dict[str, int]:
    totals = {}
    for name, sql in (
        ("messages", "SELECT count(*) FROM message_history"),
        ("dedupe", "SELECT count(*) FROM client_message_dedupe"),
        ("waiting", "SELECT count(*) FROM delivery_queue WHERE lease_owner IS NULL"),
        ("leased", "SELECT count(*) FROM delivery_queue WHERE lease_owner IS NOT NULL"),
    ):
        totals[name] = int(reader.execute(sql).fetchone()[0])
    return totals
