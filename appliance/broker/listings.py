"""The broker's listings: messages of the past, members, places, webhooks and what they wait for."""

from contextlib import closing
from functools import cache
from itertools import chain
from typing import Any

import msgspec
from peewee import JOIN, SQL, Tuple, fn

from appliance.broker import webhook_wire, wire
from appliance.broker.directory import HookRow, MemberRow
from appliance.broker.model import (
    Delivery,
    History,
    Member,
    Place,
    QueuedMessage,
    Subscription,
    TopicMessage,
    Webhook,
)
from appliance.broker.queries import push_of, subscribers
from appliance.kernel.clock import iso
from appliance.kernel.model import fields, given, literal, statement
from appliance.kernel.page import ROW_BYTES, take_page, text_bytes
from appliance.kernel.reader import Reader

_ROWS = given("rows")


def _either(name: str) -> Any:
    """Of a message: it is in one of the two tables."""
    return fn.COALESCE(getattr(TopicMessage, name), getattr(QueuedMessage, name))


@cache
def _history(of_member: bool) -> str:
    query = (
        History.select(
            History.id, History.broker_message_id,
            # The rest as `push_of` takes it.
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
    subscribed = Subscription.select(SQL("1")).where(
        Subscription.mesh_id == History.mesh_id,
        Subscription.kind == History.destination_kind,
        Subscription.name == History.destination_ref,
        Subscription.subscriber == member,
        History.destination_kind == literal("topic"),
    )
    to_it = (History.destination_kind == literal("dm")) & (History.destination_ref == member)
    return (History.sender_pubkey == member) | to_it | fn.EXISTS(subscribed)


_MEMBERS = statement(
    Member.select(*fields(Member, MemberRow.__struct_fields__))
    .where(
        Member.mesh_id == given("mesh"),
        Tuple(Member.name, Member.pubkey) > Tuple(given("name"), given("pubkey")),
    )
    .order_by(Member.name, Member.pubkey)
    .limit(_ROWS)
)
_PLACES = statement(
    Place.select(Place.name, Place.created_ms)
    .where(Place.mesh_id == given("mesh"), Place.kind == given("kind"), Place.name > given("after"))
    .order_by(Place.name)
    .limit(_ROWS)
)
_WEBHOOKS = statement(
    Webhook.select(*fields(Webhook, HookRow.__struct_fields__))
    .where(Webhook.mesh_id == given("mesh"), Webhook.id > given("after"))
    .order_by(Webhook.id)
    .limit(_ROWS)
)


def _deliveries(part: int, order: Any, *conditions: Any) -> str:
    """One part of the deliveries of a webhook, behind the row where the page begins."""
    query = Delivery.select(
        SQL(str(part)), order, Delivery.id,
        Delivery.broker_message_id, Delivery.attempts, Delivery.ready_ms, Delivery.lease_until_ms,
        Delivery.created_ms, Delivery.last_error,
    ).where(*conditions, Tuple(order, Delivery.id) > Tuple(given("key"), given("row")))  # fmt: skip
    return statement(query.order_by(order, Delivery.id).limit(_ROWS))


_LEASED = _deliveries(
    0,
    Delivery.lease_until_ms,
    Delivery.lease_owner.is_null(False),
    Delivery.lease_owner == given("owner"),
)
_WAITING = _deliveries(
    1,
    Delivery.rank,
    Delivery.lease_owner.is_null(),
    Delivery.mesh_id == given("mesh"),
    Delivery.recipient == given("recipient"),
)


def history(
    reader: Reader, mesh_id: str, mesh: str, member: str | None, after: str, limit: int
) -> tuple[list[wire.Past], bool]:
    """In the order of acceptance, and whether there is more; for a member what it may see, for
    None everything."""
    return reader.page(
        _history(member is not None),
        {"mesh": mesh_id, "after": after, "member": member, "rows": limit + 1},
        limit=limit,
        make=lambda row: wire.Past(row[0], push_of(mesh, row[1], row[2:])),
        size=_past_bytes,
    )


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
        _MEMBERS,
        {"mesh": mesh_id, "name": name, "pubkey": pubkey, "rows": limit + 1},
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
        _PLACES,
        {"mesh": mesh_id, "kind": kind, "after": after, "rows": limit + 1},
        limit=limit,
        make=lambda row: wire.Place(
            kind,  # type: ignore[arg-type]
            row[0],
            iso(row[1]),
            list(subscribers(reader, mesh_id, kind, row[0], subscribers_max)),
        ),
        size=lambda place: ROW_BYTES + sum(len(one) + 3 for one in place.subscribers),
    )


def hooks(reader: Reader, mesh_id: str, after: str, limit: int) -> tuple[list[HookRow], bool]:
    """In the order of ids, behind `after`."""
    return reader.page(
        _WEBHOOKS,
        {"mesh": mesh_id, "after": after, "rows": limit + 1},
        limit=limit,
        make=lambda row: HookRow(*row),
        size=lambda row: ROW_BYTES + text_bytes(row.url) + text_bytes(row.disabled_because),
    )


def hook_deliveries(
    reader: Reader, mesh_id: str, hook_id: str, owner: str, after: str, limit: int
) -> tuple[list[webhook_wire.HookDelivery], bool, str]:
    """What a webhook has not taken yet: what is being called first, then as it will go. `after`
    is the position of the last row seen: whether it waits, the key of the order, the row."""
    position = tuple(map(int, after.split("."))) if after else (0, -1, -1)
    values = {"owner": owner, "mesh": mesh_id, "recipient": f"webhook:{hook_id}"}
    rows: list[Any] = []
    with reader.snapshot():  # a delivery that is claimed meanwhile is in one of both
        if not position[0]:
            rows = reader.rows(_LEASED, _behind(position, values, limit), limit=limit + 1)
            position = (1, -1, -1)
        waiting = reader.execute(_WAITING, _behind(position, values, limit))
        with closing(waiting):
            page, more = take_page(
                chain(rows, waiting),
                limit,
                reader.limit.page_bytes_max,
                lambda row: ROW_BYTES + text_bytes(row[-1]),
            )
    last = ".".join(map(str, page[-1][:3])) if page else after
    return [_hook_delivery(*row[3:]) for row in page], more, last


def _behind(position: tuple[int, ...], values: dict[str, Any], limit: int) -> dict[str, Any]:
    return {**values, "key": position[1], "row": position[2], "rows": limit + 1}


def _hook_delivery(
    message_id: str,
    attempts: int,
    ready_ms: int,
    lease_ms: int | None,
    created_ms: int,
    last_error: str | None,
) -> webhook_wire.HookDelivery:
    return webhook_wire.HookDelivery(
        message_id,
        "waiting" if lease_ms is None else "leased",
        attempts,
        iso(created_ms),
        iso(ready_ms) if lease_ms is None else None,
        last_error,
    )
