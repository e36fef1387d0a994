"""The broker's reads. `reader` is a Reader or a Tx: both execute; every list has a limit."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from itertools import chain
from typing import Any

import msgspec

from appliance.broker import hookwire, wire
from appliance.broker.directory import KEY_EPOCHS_MAX, Directory, HookRow, MemberRow, MeshRow
from appliance.broker.phase import RANKS, Known
from appliance.kernel.auth import Executor
from appliance.kernel.clock import iso
from appliance.kernel.page import ROW_BYTES, take_page, text_bytes
from appliance.kernel.reader import Reader

_meta = msgspec.json.Decoder(dict[str, Any]).decode

HOOK_COLUMNS = ", ".join(HookRow.__struct_fields__)
LOWEST = max(RANKS.values())
MESSAGE = (
    "coalesce(t.client_message_id, q.client_message_id), t.topic,"
    " coalesce(q.destination_kind, 'topic'), coalesce(t.topic, q.destination_ref),"
    " coalesce(t.sender_pubkey, q.sender_pubkey), coalesce(t.sender_name, q.sender_name),"
    " coalesce(t.priority, q.priority), coalesce(t.meta, q.meta), coalesce(t.body, q.body),"
    " coalesce(t.reply_to_id, q.reply_to_id),"
    " coalesce(t.created_ms + t.skew_ms, q.created_ms + q.skew_ms)"
)
JOINED = (
    " LEFT JOIN topic_message AS t ON t.id = {0}.broker_message_id"
    " LEFT JOIN message_queue AS q ON q.id = {0}.broker_message_id"
)


def push_of(mesh: str, message_id: str, row: Sequence[Any]) -> wire.Push:
    """`row`: the columns of MESSAGE."""
    client_id, topic, kind, ref, pubkey, name, priority, meta, body, reply_to, created_ms = row
    return wire.Push(
        message_id, client_id, mesh, topic, kind, ref, pubkey, name, priority,
        None if meta is None else _meta(meta), body, reply_to, iso(created_ms),
    )  # fmt: skip


# -- the picture in memory -------------------------------------------------------------------


def directory(reader: Executor, meshes_max: int, members_max: int) -> Directory:
    meshes = reader.execute(
        "SELECT id, slug, dedupe_mode, dedupe_retention_days, message_retention_days,"
        " concurrency, created_ms FROM mesh ORDER BY slug LIMIT ?",
        (meshes_max,),
    )
    members = reader.execute(
        "SELECT mesh_id, pubkey, name, added_ms, revoked_ms, successor FROM member"
        " ORDER BY mesh_id, name, pubkey LIMIT ?",
        (members_max,),
    )
    queues = reader.execute(
        "SELECT mesh_id, name, subscriber FROM subscription WHERE kind = 'queue'"
        " ORDER BY mesh_id, name LIMIT ?",
        (members_max * 10,),
    )
    hooks = reader.execute(
        f"SELECT {HOOK_COLUMNS} FROM webhook ORDER BY id LIMIT ?", (members_max,)
    )
    return Directory(
        [MeshRow(*row) for row in meshes.fetchall()],
        [MemberRow(*row) for row in members.fetchall()],
        queues.fetchall(),
        [HookRow(*row) for row in hooks.fetchall()],
    )


def last_history(reader: Executor) -> str | None:
    row = reader.execute("SELECT max(id) FROM message_history").fetchone()
    return None if row is None else row[0]


def broker_id(reader: Executor) -> str:
    """What members sign for; made with the store."""
    row = reader.execute("SELECT value FROM meta WHERE key = 'broker_id'").fetchone()
    return str(row[0])


def used_nonces(reader: Executor, now_ms: int, limit: int) -> list[tuple[int, str, bytes]]:
    """(expires_ms, member, digest) of those that can still be replayed, in the order of expiry."""
    return reader.execute(
        "SELECT expires_ms, member, digest FROM used_nonce WHERE expires_ms >= ?"
        " ORDER BY expires_ms LIMIT ?",
        (now_ms, limit),
    ).fetchall()


def noted_ms(reader: Executor, key: str) -> int | None:
    """When that was done last."""
    row = reader.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else int(row[0])


# -- accepting -------------------------------------------------------------------------------


def known(reader: Executor, mesh_id: str, client_message_id: str) -> Known | None:
    row = reader.execute(
        "SELECT d.broker_message_id, d.history_id, d.request_fingerprint, d.history_available,"
        " d.first_seen_ms, coalesce(d.sender_pubkey, (SELECT h.sender_pubkey"
        " FROM message_history AS h WHERE h.broker_message_id = d.broker_message_id))"
        " FROM client_message_dedupe AS d WHERE d.mesh_id = ? AND d.client_message_id = ?",
        (mesh_id, client_message_id),
    ).fetchone()
    if row is None:
        return None
    sender = row[5] and (current_key(reader, mesh_id, row[5]) or row[5])
    return Known(row[0], row[1], bytes(row[2]), bool(row[3]), row[4], sender)


def known_many(reader: Executor, ids: Iterable[tuple[str, str]]) -> list[Known | None]:
    return [known(reader, *one) for one in ids]


def has_place(reader: Executor, mesh_id: str, kind: str, name: str) -> bool:
    sql = "SELECT 1 FROM place WHERE mesh_id = ? AND kind = ? AND name = ?"
    return reader.execute(sql, (mesh_id, kind, name)).fetchone() is not None


def is_active(reader: Executor, mesh_id: str, pubkey: str) -> bool:
    sql = "SELECT 1 FROM member WHERE mesh_id = ? AND pubkey = ? AND revoked_ms IS NULL"
    return reader.execute(sql, (mesh_id, pubkey)).fetchone() is not None


def current_key(reader: Executor, mesh_id: str, pubkey: str) -> str | None:
    """The key under which that member is reached now; None: nobody is."""
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


def subscribers(
    reader: Executor, mesh_id: str, kind: str, name: str, limit: int
) -> tuple[str, ...]:
    rows = reader.execute(
        "SELECT subscriber FROM subscription WHERE mesh_id = ? AND kind = ? AND name = ?"
        " ORDER BY subscriber LIMIT ?",
        (mesh_id, kind, name, limit),
    ).fetchall()
    return tuple([row[0] for row in rows])


def mentioned(reader: Executor, mesh_id: str, named: Sequence[str]) -> list[str]:
    """Keys of the active members that go by these keys or names."""
    found = []
    for one in named:
        row = reader.execute(
            "SELECT pubkey FROM member WHERE mesh_id = ? AND (pubkey = ? OR name = ?)"
            " AND revoked_ms IS NULL",
            (mesh_id, one, one),
        ).fetchone()
        if row is not None and row[0] not in found:
            found.append(row[0])
    return found


# -- delivering ------------------------------------------------------------------------------


def ready(
    reader: Executor, mesh_id: str, recipient: str, rank_max: int, now_ms: int, limit: int
) -> list[tuple[int, str, str, int]]:
    """(id, message, kind, attempts) of deliveries nobody has, urgent and old ones first."""
    return reader.execute(
        "SELECT id, broker_message_id, kind, attempts FROM delivery_queue"
        " WHERE mesh_id = ? AND recipient = ? AND lease_owner IS NULL AND rank <= ?"
        " AND ready_ms <= ? ORDER BY rank, id LIMIT ?",
        (mesh_id, recipient, rank_max, now_ms, limit),
    ).fetchall()


def message(reader: Executor, mesh: str, message_id: str, kind: str) -> wire.Push | None:
    """By its id; `kind` says in which table it is."""
    if kind == "topic":
        row = reader.execute(
            "SELECT client_message_id, topic, 'topic', topic, sender_pubkey, sender_name,"
            " priority, meta, body, reply_to_id, created_ms + skew_ms"
            " FROM topic_message WHERE id = ?",
            (message_id,),
        ).fetchone()
    else:
        row = reader.execute(
            "SELECT client_message_id, NULL, destination_kind, destination_ref, sender_pubkey,"
            " sender_name, priority, meta, body, reply_to_id, created_ms + skew_ms"
            " FROM message_queue WHERE id = ?",
            (message_id,),
        ).fetchone()
    return None if row is None else push_of(mesh, message_id, row)


def has_leases(reader: Executor) -> bool:
    sql = "SELECT 1 FROM delivery_queue WHERE lease_owner IS NOT NULL LIMIT 1"
    return reader.execute(sql).fetchone() is not None


def outstanding(reader: Executor) -> int:
    return int(reader.execute("SELECT count(*) FROM delivery_queue").fetchone()[0])


def hooks_with_work(reader: Executor, hooks: Sequence[HookRow], now_ms: int) -> list[HookRow]:
    """Those of `hooks` for which something is ready; a step in an index for each."""
    return [
        hook
        for hook in hooks
        if ready(reader, hook.mesh_id, f"webhook:{hook.id}", LOWEST, now_ms, 1)
    ]


# -- looking ---------------------------------------------------------------------------------


def history(
    reader: Reader, mesh_id: str, mesh: str, member: str | None, after: str, limit: int
) -> tuple[list[wire.Past], bool]:
    """In the order of acceptance, and whether there is more; for a member what it may see, for
    None everything."""
    seen = ""
    parameters: list[Any] = [mesh_id, after]
    if member is not None:
        seen = (
            " AND (h.sender_pubkey = ? OR (h.destination_kind = 'dm' AND h.destination_ref = ?)"
            " OR EXISTS (SELECT 1 FROM subscription AS s WHERE s.mesh_id = h.mesh_id"
            " AND s.kind = h.destination_kind AND s.name = h.destination_ref"
            " AND s.subscriber = ? AND h.destination_kind = 'topic'))"
        )
        parameters += [member] * 3
    return reader.page(
        "SELECT h.id, h.broker_message_id, " + MESSAGE + " FROM message_history AS h"
        + JOINED.format("h") + " WHERE h.mesh_id = ? AND h.id > ?" + seen
        + " ORDER BY h.id LIMIT ?",
        (*parameters, limit + 1),
        limit=limit,
        make=lambda row: wire.Past(row[0], push_of(mesh, row[1], row[2:])),
        size=_past_bytes,
    )  # fmt: skip


def _past_bytes(past: wire.Past) -> int:
    meta = past.message.meta
    return (
        ROW_BYTES
        + text_bytes(past.message.body)
        + (0 if meta is None else len(msgspec.json.encode(meta)))
    )


def members(
    reader: Reader, mesh_id: str, after: str, limit: int
) -> tuple[list[MemberRow], bool, str]:
    """By name, behind `after`: `next` of the page before."""
    name, _, pubkey = after.partition(":")
    page, more = reader.page(
        "SELECT mesh_id, pubkey, name, added_ms, revoked_ms, successor FROM member"
        " WHERE mesh_id = ? AND (name, pubkey) > (?, ?) ORDER BY name, pubkey LIMIT ?",
        (mesh_id, name, pubkey, limit + 1),
        limit=limit,
        make=lambda row: MemberRow(*row),
        size=lambda _row: ROW_BYTES,
    )
    return page, more, f"{page[-1].name}:{page[-1].pubkey}" if page else after


def places(
    reader: Reader, mesh_id: str, kind: str, after: str, limit: int, subscribers_max: int
) -> tuple[list[wire.Place], bool]:
    """By name, behind that of `after`."""
    return reader.page(
        "SELECT name, created_ms FROM place WHERE mesh_id = ? AND kind = ? AND name > ?"
        " ORDER BY name LIMIT ?",
        (mesh_id, kind, after, limit + 1),
        limit=limit,
        make=lambda row: wire.Place(
            kind,  # type: ignore[arg-type]
            row[0],
            iso(row[1]),
            list(subscribers(reader, mesh_id, kind, row[0], subscribers_max)),
        ),
        size=lambda place: ROW_BYTES + sum(len(one) + 3 for one in place.subscribers),
    )


def place(reader: Executor, mesh_id: str, kind: str, name: str, limit: int) -> wire.Place:
    row = reader.execute(
        "SELECT created_ms FROM place WHERE mesh_id = ? AND kind = ? AND name = ?",
        (mesh_id, kind, name),
    ).fetchone()
    if row is None:
        raise wire.NoSuchDestination(details={"kind": kind, "name": name[:100]})
    found = list(subscribers(reader, mesh_id, kind, name, limit))
    return wire.Place(kind, name, iso(row[0]), found)  # type: ignore[arg-type]


def hooks(reader: Reader, mesh_id: str, after: str, limit: int) -> tuple[list[HookRow], bool]:
    """In the order of ids, behind `after`."""
    return reader.page(
        f"SELECT {HOOK_COLUMNS} FROM webhook WHERE mesh_id = ? AND id > ? ORDER BY id LIMIT ?",
        (mesh_id, after, limit + 1),
        limit=limit,
        make=lambda row: HookRow(*row),
        size=lambda row: ROW_BYTES + text_bytes(row.url) + text_bytes(row.disabled_because),
    )


def hook(reader: Executor, mesh_id: str, hook_id: str) -> HookRow:
    """Raises NoSuchHook."""
    row = reader.execute(
        f"SELECT {HOOK_COLUMNS} FROM webhook WHERE mesh_id = ? AND id = ?", (mesh_id, hook_id)
    ).fetchone()
    if row is None:
        raise hookwire.NoSuchHook(details={"webhook_id": hook_id[:100]})
    return HookRow(*row)


def hook_deliveries(
    reader: Reader, mesh_id: str, hook_id: str, owner: str, after: str, limit: int
) -> tuple[list[hookwire.HookDelivery], bool, str]:
    """What a webhook has not taken yet: what is being called first, then as it will go. `after`
    is the position of the last row seen: whether it waits, the key of the order, the row."""
    position = tuple(map(int, after.split("."))) if after else (0, -1, -1)
    columns = (
        "v.broker_message_id, v.attempts, v.ready_ms, v.lease_until_ms, v.created_ms, v.last_error"
    )
    rows: list[Any] = []
    with reader.snapshot():  # a delivery that is claimed meanwhile is in one of both
        if not position[0]:
            rows = reader.execute(
                f"SELECT 0, v.lease_until_ms, v.id, {columns} FROM delivery_queue AS v"
                " WHERE v.lease_owner IS NOT NULL AND v.lease_owner = ?"
                " AND (v.lease_until_ms, v.id) > (?, ?) ORDER BY v.lease_until_ms, v.id LIMIT ?",
                (owner, *position[1:], limit + 1),
            ).fetchall()
            position = (1, -1, -1)
        waiting = reader.execute(
            f"SELECT 1, v.rank, v.id, {columns} FROM delivery_queue AS v"
            " WHERE v.lease_owner IS NULL AND v.mesh_id = ? AND v.recipient = ?"
            " AND (v.rank, v.id) > (?, ?) ORDER BY v.rank, v.id LIMIT ?",
            (mesh_id, f"webhook:{hook_id}", *position[1:], limit + 1),
        )
        with closing(waiting):
            page, more = take_page(
                chain(rows, waiting),
                limit,
                reader.limit.page_bytes_max,
                lambda row: ROW_BYTES + text_bytes(row[-1]),
            )
    last = ".".join(map(str, page[-1][:3])) if page else after
    return [_hook_delivery(*row[3:]) for row in page], more, last


def _hook_delivery(
    message_id: str,
    attempts: int,
    ready_ms: int,
    lease_ms: int | None,
    created_ms: int,
    last_error: str | None,
) -> hookwire.HookDelivery:
    return hookwire.HookDelivery(
        message_id,
        "waiting" if lease_ms is None else "leased",
        attempts,
        iso(created_ms),
        iso(ready_ms) if lease_ms is None else None,
        last_error,
    )


def counts(reader: Executor) -> dict[str, int]:
    found = {}
    for name, sql in (
        ("messages", "SELECT count(*) FROM message_history"),
        ("dedupe", "SELECT count(*) FROM client_message_dedupe"),
        ("waiting", "SELECT count(*) FROM delivery_queue WHERE lease_owner IS NULL"),
        ("leased", "SELECT count(*) FROM delivery_queue WHERE lease_owner IS NOT NULL"),
    ):
        found[name] = int(reader.execute(sql).fetchone()[0])
    return found
