"""Lists broker rows that are not in memory: history and destinations."""

from functools import cache
from typing import Any

import msgspec
from peewee import JOIN, SQL, fn

from appliance.broker import wire
from appliance.broker.model import (
    Destination,
    DestinationSubscription,
    History,
    QueuedMessage,
    TopicMessage,
)
from appliance.broker.queries import push_of, subscribers
from appliance.kernel.clock import iso
from appliance.kernel.model import given, literal, statement
from appliance.kernel.page import ROW_BYTES, text_bytes
from appliance.kernel.reader import Reader

_ROWS = given("rows")


def _either(name: str) -> Any:
    """Return a message column, from whichever table has the message."""
    return fn.COALESCE(getattr(TopicMessage, name), getattr(QueuedMessage, name))


@cache
def _history(of_member: bool) -> str:
    query = (
        History.select(
            History.id, History.broker_message_id,
            # The rest is what `push_of` expects.
            _either("client_message_id"), TopicMessage.topic,
            fn.COALESCE(QueuedMessage.destination_kind, literal("topic")),
            fn.COALESCE(TopicMessage.topic, QueuedMessage.destination_ref),
            _either("sender_pubkey"), _either("sender_name"), _either("priority"),
            _either("meta"), _either("body"), _either("reply_to_id"),
            fn.COALESCE(
                TopicMessage.created_ms + TopicMessage.skew_ms,
                QueuedMessage.created_ms + QueuedMessage.skew_ms,
            ),
        )
        .join(TopicMessage, JOIN.LEFT_OUTER, on=TopicMessage.id == History.broker_message_id)
        .switch(History)
        .join(QueuedMessage, JOIN.LEFT_OUTER, on=QueuedMessage.id == History.broker_message_id)
        .where(History.mesh_id == given("mesh"), History.id > given("after"))
        .order_by(History.id)
        .limit(_ROWS)
    )  # fmt: skip
    return statement(query.where(_seen_by(given("member"))) if of_member else query)


def _seen_by(member: Any) -> Any:
    subscribed = DestinationSubscription.select(SQL("1")).where(
        DestinationSubscription.mesh_id == History.mesh_id,
        DestinationSubscription.kind == History.destination_kind,
        DestinationSubscription.name == History.destination_ref,
        DestinationSubscription.subscriber == member,
        History.destination_kind == literal("topic"),
    )
    to_it = (History.destination_kind == literal("dm")) & (History.destination_ref == member)
    return (History.sender_pubkey == member) | to_it | fn.EXISTS(subscribed)


_DESTINATIONS = statement(
    Destination.select(Destination.name, Destination.created_ms)
    .where(
        Destination.mesh_id == given("mesh"),
        Destination.kind == given("kind"),
        Destination.name > given("after"),
    )
    .order_by(Destination.name)
    .limit(_ROWS)
)


def history(
    reader: Reader, mesh_id: str, mesh: str, member: str | None, after: str, limit: int
) -> tuple[list[wire.HistoryEntry], bool]:
    """Return messages in acceptance order, and whether there is another page. A member sees its
    own messages; None sees all."""
    return reader.page(
        _history(member is not None),
        {"mesh": mesh_id, "after": after, "member": member, "rows": limit + 1},
        limit=limit,
        make=lambda row: wire.HistoryEntry(row[0], push_of(mesh, row[1], row[2:])),
        size=_entry_bytes,
    )


def _entry_bytes(entry: wire.HistoryEntry) -> int:
    meta = entry.message.meta
    return (
        ROW_BYTES
        + text_bytes(entry.message.body)
        + (0 if meta is None else len(msgspec.json.encode(meta)))
    )


def destinations(
    reader: Reader, mesh_id: str, kind: wire.TopicOrQueue, after: str, limit: int
) -> tuple[list[wire.Destination], bool]:
    """Return destinations ordered by name, after the name `after`."""
    return reader.page(
        _DESTINATIONS,
        {"mesh": mesh_id, "kind": kind, "after": after, "rows": limit + 1},
        limit=limit,
        make=lambda row: wire.Destination(
            kind, row[0], iso(row[1]), list(subscribers(reader, mesh_id, kind, row[0]))
        ),
        size=lambda destination: (
            ROW_BYTES + sum(len(subscriber) + 3 for subscriber in destination.subscribers)
        ),
    )
