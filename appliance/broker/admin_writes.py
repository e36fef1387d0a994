"""Changes meshes, members, destinations, subscriptions and webhooks, each in a transaction."""

from appliance.broker import queries, webhook_wire, wire, writes
from appliance.broker.log_writes import log_dead_of_recipient
from appliance.broker.rows import (
    DestinationRow,
    DestinationSubscriptionRow,
    MemberRow,
    MeshRow,
    WebhookRow,
)
from appliance.broker.writes import FREE, UNLESS_THERE, insert
from appliance.kernel.batch import Tx
from appliance.kernel.registered_webhook import rotate


def create_mesh(tx: Tx, command: wire.CreateMesh) -> MeshRow:
    if command.slug == "network":  # reserved for agent network messages
        raise wire.MeshTaken("the mesh 'network' is reserved", details={"mesh": command.slug})
    _check_limit(tx, "SELECT count(*) FROM mesh", (), queries.MESHES_MAX)
    row = MeshRow(
        tx.new_id("mesh_"),
        command.slug,
        command.dedupe_mode,
        command.dedupe_retention_days,
        command.message_retention_days,
        command.concurrency,
        tx.now_ms,
    )
    if not insert(tx, "mesh", row, UNLESS_THERE):
        raise wire.MeshTaken(details={"mesh": command.slug})
    return row


def change_mesh(tx: Tx, mesh_id: str, command: wire.ChangeMesh) -> None:
    for column in command.__struct_fields__:
        value = getattr(command, column)
        if value is not None:
            tx.execute(f"UPDATE mesh SET {column} = ? WHERE id = ?", (value, mesh_id))


def add_member(tx: Tx, mesh_id: str, pubkey: str, name: str) -> None:
    _check_limit(tx, "SELECT count(*) FROM member", (), queries.MEMBERS_MAX)
    row = MemberRow(mesh_id, pubkey, name, tx.now_ms, None, None)
    if not insert(tx, "member", row, UNLESS_THERE):
        raise wire.MemberTaken(details={"name": name})


def rename_member(tx: Tx, mesh_id: str, pubkey: str, name: str) -> None:
    taken = tx.execute(
        "SELECT 1 FROM member WHERE mesh_id = ? AND name = ? AND pubkey <> ?"
        " AND revoked_ms IS NULL",
        (mesh_id, name, pubkey),
    ).fetchone()
    if taken:
        raise wire.MemberTaken(details={"name": name})
    tx.execute(
        "UPDATE member SET name = ? WHERE mesh_id = ? AND pubkey = ?", (name, mesh_id, pubkey)
    )


def revoke_member(tx: Tx, mesh_id: str, pubkey: str) -> bool:
    """Revoke a member, and delete subscriptions and deliveries. False: revoked before."""
    done = tx.execute(
        "UPDATE member SET revoked_ms = ? WHERE mesh_id = ? AND pubkey = ? AND revoked_ms IS NULL",
        (tx.now_ms, mesh_id, pubkey),
    ).rowcount
    _remove_recipient(tx, mesh_id, pubkey)
    return done == 1


def rotate_member(tx: Tx, mesh_id: str, old: str, new: str, name: str) -> None:
    """Move the member's subscriptions and deliveries to its new key, in one commit."""
    tx.execute(
        "UPDATE member SET revoked_ms = ?, successor = ? WHERE mesh_id = ? AND pubkey = ?",
        (tx.now_ms, new, mesh_id, old),
    )
    add_member(tx, mesh_id, new, name)
    tx.execute(
        "UPDATE subscription SET subscriber = ? WHERE mesh_id = ? AND subscriber = ?",
        (new, mesh_id, old),
    )
    tx.execute(
        f"UPDATE delivery_queue SET recipient = ?, {FREE} WHERE mesh_id = ? AND recipient = ?",
        (new, mesh_id, old),
    )


def create_destination(tx: Tx, mesh_id: str, kind: wire.TopicOrQueue, name: str) -> bool:
    """Create a destination; return False if it exists already."""
    _check_limit(
        tx,
        "SELECT count(*) FROM place WHERE mesh_id = ? AND kind = ?",
        (mesh_id, kind),
        queries.DESTINATIONS_MAX,
    )
    return insert(tx, "place", DestinationRow(mesh_id, kind, name, tx.now_ms), UNLESS_THERE)


def subscribe(tx: Tx, mesh_id: str, kind: str, name: str, subscriber: str) -> bool:
    """Subscribe; return False if it was subscribed before."""
    _check_destination(tx, mesh_id, kind, name)
    if subscriber.startswith("webhook:"):
        queries.webhook(tx, mesh_id, subscriber.removeprefix("webhook:"))
    elif not queries.is_active(tx, mesh_id, subscriber):
        raise wire.NoSuchMember(details={"member": subscriber[:100]})
    _check_limit(
        tx,
        "SELECT count(*) FROM subscription WHERE mesh_id = ? AND kind = ? AND name = ?",
        (mesh_id, kind, name),
        queries.SUBSCRIBERS_MAX,
    )
    row = DestinationSubscriptionRow(mesh_id, kind, name, subscriber, tx.now_ms)
    return insert(tx, "subscription", row, UNLESS_THERE)


def unsubscribe(tx: Tx, mesh_id: str, kind: str, name: str, subscriber: str) -> bool:
    """Unsubscribe; deliveries that exist already are still made. Return False if it was not
    subscribed. Raises NoSuchDestination."""
    _check_destination(tx, mesh_id, kind, name)
    deleted = tx.execute(
        "DELETE FROM subscription WHERE mesh_id = ? AND kind = ? AND name = ? AND subscriber = ?",
        (mesh_id, kind, name, subscriber),
    )
    return deleted.rowcount == 1


def add_webhook(tx: Tx, mesh_id: str, url: str, secret: str) -> str:
    _check_limit(tx, "SELECT count(*) FROM webhook", (), queries.DESTINATIONS_MAX)
    webhook_id = tx.new_id("bhook_")
    row = WebhookRow(mesh_id, webhook_id, url, tx.now_ms, secret, None, None, 1, None, None)
    insert(tx, "webhook", row)
    return webhook_id


def change_webhook(
    tx: Tx,
    mesh_id: str,
    webhook_id: str,
    command: webhook_wire.ChangeMeshWebhook,
    secret: str | None,
) -> None:
    """Update a webhook. `secret`: a new one, or None; the former one also signs for a while."""
    changed = rotate(queries.webhook(tx, mesh_id, webhook_id), secret, tx.steady_ms)
    if command.url is not None:
        changed["url"] = command.url
    if command.enabled is not None:
        changed["enabled"] = int(command.enabled)
    if command.enabled:
        changed |= {"failing_since_ms": None, "disabled_because": None}
    writes.change_webhook(tx, mesh_id, webhook_id, changed)


def remove_webhook(tx: Tx, mesh_id: str, webhook_id: str) -> bool:
    done = tx.execute(
        "DELETE FROM webhook WHERE mesh_id = ? AND id = ?", (mesh_id, webhook_id)
    ).rowcount
    _remove_recipient(tx, mesh_id, f"webhook:{webhook_id}")
    return done == 1


def _remove_recipient(tx: Tx, mesh_id: str, recipient: str) -> None:
    log_dead_of_recipient(tx, mesh_id, recipient)
    tx.execute(
        "DELETE FROM subscription WHERE mesh_id = ? AND subscriber = ?", (mesh_id, recipient)
    )
    tx.execute(
        "DELETE FROM delivery_queue WHERE mesh_id = ? AND recipient = ?", (mesh_id, recipient)
    )


def _check_destination(tx: Tx, mesh_id: str, kind: str, name: str) -> None:
    if not queries.destination_exists(tx, mesh_id, kind, name):
        raise wire.NoSuchDestination(details={"kind": kind, "name": name[:100]})


def _check_limit(tx: Tx, sql: str, parameters: tuple[str, ...], limit: int) -> None:
    if tx.execute(sql, parameters).fetchone()[0] >= limit:
        raise wire.TooManyRows(details={"limit": limit})
