"""Changes endpoints and accepts deliveries, inside their transactions."""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import json

from appliance.hub import attachments
from appliance.hub import writes as hub_writes
from appliance.hub.addressing import Addressing
from appliance.hub.events import encode
from appliance.hub.incoming import wire
from appliance.hub.incoming.event import DeliveredEvent
from appliance.hub.incoming.queries import COLUMNS, PRINCIPAL
from appliance.hub.rows import IncomingRow
from appliance.hub.wire import AddAttachment, MessageChanged, NoSuchTopic
from appliance.kernel.batch import Tx
from appliance.kernel.idempotency import KeyedRequest, Reply, reply_once

KIND = "webhook"  # the attachment with the event's fields has this kind
_posted = json.Decoder(MessageChanged).decode


def create(tx: Tx, command: wire.CreateEndpoint, secret: str) -> Reply:
    (count,) = tx.execute("SELECT count(*) FROM x_incoming").fetchone()
    if count >= wire.ENDPOINTS_MAX:
        raise wire.TooManyEndpoints(details={"limit": wire.ENDPOINTS_MAX})
    topic = command.topic_id
    if topic and not tx.execute("SELECT 1 FROM topics WHERE id = ?", (topic,)).fetchone():
        raise NoSuchTopic(details={"topic_id": topic})
    row = IncomingRow(
        command.name, command.template, secret, command.signature_header, topic,
        command.stream, encode(command.to).decode(), tx.now,
    )  # fmt: skip
    marks = ", ".join("?" * len(row))
    try:
        tx.execute(f"INSERT INTO x_incoming ({COLUMNS}) VALUES ({marks})", row)
    except sqlite3.IntegrityError:
        raise wire.EndpointExists(details={"name": command.name}) from None
    return Reply(201, encode(wire.EndpointCreated(to_wire(row), secret)))


def delete(tx: Tx, name: str) -> Reply:
    if not tx.execute("DELETE FROM x_incoming WHERE name = ?", (name,)).rowcount:
        raise wire.NoSuchEndpoint(details={"name": name})
    return Reply(200, encode(wire.EndpointDeleted(name)))


def accept_once(
    tx: Tx, identities: Sequence[KeyedRequest], function: Callable[..., Reply], *args: Any
) -> Reply:
    """Return the reply that is stored for one of the keys. Otherwise store `function`'s reply for
    all of them."""
    if not identities:
        return function(tx, *args)
    first, *others = identities
    return reply_once(tx, first, accept_once, others, function, *args)


def post(tx: Tx, row: IncomingRow, event: DeliveredEvent, text: str) -> Reply:
    """Post the message to its recipients, and attach the event's fields to its topic."""
    assert row.topic_id is not None, "the endpoint has no stream"
    to = tuple(json.decode(row.to_json, type=list[str]))
    reply = hub_writes.create_message(
        tx, row.topic_id, row.name, text, PRINCIPAL,
        addressed=Addressing(to) if to else None, is_agent=True,
    )  # fmt: skip
    posted = _posted(reply.body)
    command = AddAttachment(KIND, attachment_of(row, event), row.name, None, posted.message.id)
    attachments.add(tx, row.topic_id, command, posted.message.id, PRINCIPAL)
    accepted = wire.DeliveryAccepted(row.name, posted.message.id, posted.event_id)
    return Reply(201, encode(accepted))


def record(_tx: Tx, row: IncomingRow, envelope_id: str) -> Reply:
    """Return the reply for an envelope that the courier has."""
    return Reply(201, encode(wire.DeliveryAccepted(row.name, envelope_id=envelope_id)))


def prune(tx: Tx, count: int) -> int:
    """Delete the oldest delivery ids."""
    return tx.execute(
        "DELETE FROM x_idempotency WHERE principal = ?1 AND (method, route, key) IN"
        " (SELECT method, route, key FROM x_idempotency WHERE principal = ?1"
        "  ORDER BY created_ms LIMIT ?2)",
        (PRINCIPAL, count),
    ).rowcount


def attachment_of(row: IncomingRow, event: DeliveredEvent) -> dict[str, str]:
    url = {"url": event.url} if event.url else {}
    return {"template": row.template, "title": event.title, **event.fields, **url}


def to_wire(row: IncomingRow) -> wire.IncomingEndpoint:
    """Return the endpoint without its secret."""
    return wire.IncomingEndpoint(
        row.name, row.template, f"/api/v1/incoming/{row.name}", row.topic_id, row.stream,
        json.decode(row.to_json, type=list[str]), row.signature_header, row.created_at,
    )  # fmt: skip
