"""What each change of a webhook does inside its transaction. No events: it is configuration."""

import msgspec

from appliance.hub.events import encode
from appliance.hub.webhooks import queries, wire
from appliance.hub.webhooks.queries import Row
from appliance.hub.writes import Reply
from appliance.kernel.batch import Tx


def create(tx: Tx, command: wire.CreateWebhook, secret: str, cursor: int, most: int) -> Reply:
    (count,) = tx.execute("SELECT count(*) FROM x_webhooks").fetchone()
    if count >= most:
        raise wire.TooManyWebhooks(details={"limit": most})
    row = Row(
        id=tx.new_id("hook_"),
        url=command.url,
        description=command.description,
        wanted_json=encode(command.events).decode(),
        format=command.format,
        enabled=int(command.enabled),
        cursor=cursor,
        secret=secret,
        former_secret=None,
        former_until_ms=None,
        created_at=tx.now,
        updated_at=tx.now,
    )
    values = msgspec.structs.astuple(row)
    marks = ", ".join("?" * len(values))
    tx.execute(f"INSERT INTO x_webhooks ({queries.COLUMNS}) VALUES ({marks})", values)
    return Reply(201, encode(wire.WebhookChanged(row.shown(tx.now_ms), secret)))


def change(
    tx: Tx, webhook_id: str, command: wire.ChangeWebhook, secret: str | None, grace_ms: int
) -> Reply:
    row = queries.one(tx, webhook_id)
    given = {
        name: value
        for name in ("url", "description", "format", "enabled", "cursor")
        if (value := getattr(command, name)) is not None
    }
    if command.events is not None:
        given["wanted_json"] = encode(command.events).decode()
    if secret is not None and secret != row.secret:
        given |= {
            "secret": secret,
            "former_secret": row.secret if grace_ms else None,
            "former_until_ms": tx.now_ms + grace_ms if grace_ms else None,
        }
    given["updated_at"] = tx.now
    marks = ", ".join(f"{name} = ?" for name in given)
    tx.execute(f"UPDATE x_webhooks SET {marks} WHERE id = ?", (*given.values(), webhook_id))
    changed = queries.one(tx, webhook_id).shown(tx.now_ms)
    return Reply(200, encode(wire.WebhookChanged(changed, secret)))


def delete(tx: Tx, webhook_id: str) -> Reply:
    queries.one(tx, webhook_id)
    tx.execute("DELETE FROM x_webhooks WHERE id = ?", (webhook_id,))
    return Reply(200, encode(wire.WebhookDeleted(webhook_id)))
