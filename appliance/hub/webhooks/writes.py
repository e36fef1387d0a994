"""Changes webhooks, inside their transactions. Writes no events."""

from collections.abc import Sequence

from appliance.hub.events import encode
from appliance.hub.rows import EventWebhookRow
from appliance.hub.webhooks import queries, views, wire
from appliance.kernel.batch import Tx
from appliance.kernel.delivery import CallOutcome
from appliance.kernel.idempotency import Reply
from appliance.kernel.registered_webhook import Columns, note_outcome, rotate

WEBHOOKS_MAX = 100  # each round reads all that are behind


def create(tx: Tx, command: wire.CreateWebhook, secret: str, cursor: int) -> Reply:
    (count,) = tx.execute("SELECT count(*) FROM x_webhooks").fetchone()
    if count >= WEBHOOKS_MAX:
        raise wire.TooManyWebhooks(details={"limit": WEBHOOKS_MAX})
    row = EventWebhookRow(
        id=tx.new_id("hook_"),
        url=command.url,
        description=command.description,
        wanted_json=encode(command.events).decode(),
        enabled=int(command.enabled),
        cursor=cursor,
        secret=secret,
        former_secret=None,
        former_until_ms=None,
        created_at=tx.now,
        updated_at=tx.now,
        generation=0,
        failing_since_ms=None,
        disabled_because=None,
    )
    marks = ", ".join("?" * len(row))
    tx.execute(f"INSERT INTO x_webhooks ({queries.COLUMNS}) VALUES ({marks})", row)
    return Reply(201, encode(wire.WebhookChanged(views.to_wire(row, tx.now_ms), secret)))


def change(tx: Tx, webhook_id: str, command: wire.ChangeWebhook, secret: str | None) -> Reply:
    row = queries.require(tx, webhook_id)
    given: Columns = {
        name: value
        for name in ("url", "description", "enabled", "cursor")
        if (value := getattr(command, name)) is not None
    }
    if command.cursor is not None and command.cursor < row.cursor:
        given["generation"] = row.generation + 1
    if command.enabled:
        given |= {"failing_since_ms": None, "disabled_because": None}
    if command.events is not None:
        given["wanted_json"] = encode(command.events).decode()
    _set(tx, webhook_id, given | rotate(row, secret, tx.now_ms) | {"updated_at": tx.now})
    changed = views.to_wire(queries.require(tx, webhook_id), tx.now_ms)
    return Reply(200, encode(wire.WebhookChanged(changed, secret)))


def delete(tx: Tx, webhook_id: str) -> Reply:
    queries.require(tx, webhook_id)
    tx.execute("DELETE FROM x_webhooks WHERE id = ?", (webhook_id,))
    return Reply(200, encode(wire.WebhookDeleted(webhook_id)))


def advance(tx: Tx, moves: Sequence[tuple[str, int, int, int]]) -> None:
    """Move cursors: (id, generation, from, to). A webhook that was changed or disabled meanwhile
    keeps its cursor."""
    for webhook_id, generation, before, after in moves:
        tx.execute(
            "UPDATE x_webhooks SET cursor = ? WHERE id = ? AND generation = ? AND cursor = ?"
            " AND enabled = 1",
            (after, webhook_id, generation, before),
        )


def note_attempt(tx: Tx, webhook_id: str, outcome: CallOutcome) -> str | None:
    """Record an attempt's outcome. If it disables the webhook, return the cause."""
    row = queries.find(tx, webhook_id)
    if row is None:
        return None
    columns, cause = note_outcome(row, outcome, tx.now_ms)
    _set(tx, webhook_id, columns)
    return cause


def _set(tx: Tx, webhook_id: str, columns: Columns) -> None:
    if columns:
        marks = ", ".join(f"{name} = ?" for name in columns)
        tx.execute(f"UPDATE x_webhooks SET {marks} WHERE id = ?", (*columns.values(), webhook_id))
