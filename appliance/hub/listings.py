"""Lists the hub's channels, topics and attachments in pages."""

from functools import cache
from typing import Any, cast

from msgspec import Raw, json
from peewee import SQL, Tuple

from appliance.hub import wire
from appliance.hub.attachments import attachment_of
from appliance.hub.model import Attachment, Channel, Topic
from appliance.kernel.model import fields, given, statement
from appliance.kernel.page import ROW_BYTES, text_bytes
from appliance.kernel.reader import Reader

_ANCHOR = Tuple(given("at"), given("id"))  # the previous page's last row


def channels(
    reader: Reader, limit: int, after_name: str | None, only: frozenset[str] | None
) -> wire.ChannelList:
    """List channels by name, after `after_name`. That channel need not exist any more."""
    values: dict[str, Any] = {"after": after_name, "rows": limit + 1}
    if only is not None:
        values["only"] = json.encode(sorted(only)).decode()
    page, has_more = reader.page(
        _channels(after_name is not None, only is not None),
        values,
        limit=limit,
        make=lambda row: wire.Channel(*row),
        size=lambda channel: ROW_BYTES + text_bytes(channel.description),
    )
    return wire.ChannelList(page, has_more)


@cache
def _channels(after: bool, limited: bool) -> str:
    query = Channel.select(*fields(Channel, wire.Channel.__struct_fields__))
    if after:
        query = query.where(Channel.name > given("after"))
    if limited:
        query = query.where(Channel.id.in_(SQL("(SELECT value FROM json_each(:only))")))
    return statement(query.order_by(Channel.name).limit(given("rows")))


def topics(
    reader: Reader,
    channel_id: str | None,
    query: wire.TopicsQuery,
    only: frozenset[str] | None = None,
) -> wire.TopicList:
    """List topics in a channel, or in all channels in `only`: newest activity first, starting below
    the topic `query.before_id`."""
    before_id, limit = query.before_id, min(query.limit, wire.PAGE_MAX)
    values: dict[str, Any] = {"rows": limit + 1}
    if channel_id is not None:
        values["channel"] = channel_id
    if only is not None:
        values["only"] = json.encode(sorted(only)).decode()
    if before_id is not None:
        sql = "SELECT updated_at, id, channel_id FROM topics WHERE id = ?"
        anchor = reader.row(sql, (before_id,))
        readable = only if channel_id is None else {channel_id}
        if anchor is None or (readable is not None and anchor[2] not in readable):
            raise wire.UnknownCursor("before_id", before_id)
        values |= {"at": anchor[0], "id": anchor[1]}
    page, has_more = reader.page(
        _topics(tuple(sorted(values))),
        values,
        limit=limit,
        make=lambda row: wire.Topic(*row),
        size=lambda topic: ROW_BYTES + text_bytes(topic.title),
    )
    exists = "SELECT 1 FROM channels WHERE id = ?"
    if not page and channel_id and not reader.row(exists, (channel_id,)):
        raise wire.NoSuchChannel(details={"channel_id": channel_id})
    return wire.TopicList(page, has_more)


@cache
def _topics(names: tuple[str, ...]) -> str:
    query = Topic.select(*fields(Topic, wire.Topic.__struct_fields__))
    if "channel" in names:
        query = query.where(Topic.channel_id == given("channel"))
    if "only" in names:
        query = query.where(Topic.channel_id.in_(SQL("(SELECT value FROM json_each(:only))")))
    if "at" in names:
        query = query.where(Tuple(Topic.updated_at, Topic.id) < _ANCHOR)
    query = query.order_by(Topic.updated_at.desc(), Topic.id.desc())
    return statement(query.limit(given("rows")))


def attachments(reader: Reader, topic_id: str, query: wire.AttachmentsQuery) -> wire.AttachmentList:
    """List attachments, newest first, starting below the attachment `before_id`."""
    values: dict[str, Any] = {"topic": topic_id, "kind": query.kind, "rows": query.limit + 1}
    if query.before_id is not None:
        anchor = reader.row(
            "SELECT created_at, id FROM topic_attachments WHERE id = ? AND topic_id = ?",
            (query.before_id, topic_id),
        )
        if anchor is None:
            raise wire.UnknownCursor("before_id", query.before_id)
        values |= {"at": anchor[0], "id": anchor[1]}
    page, has_more = reader.page(
        _attachments(query.kind is not None, query.before_id is not None),
        values,
        limit=query.limit,
        make=attachment_of,
        size=lambda attachment: (
            ROW_BYTES + len(cast(Raw, attachment.value_json)) + text_bytes(attachment.dedupe_key)
        ),
    )
    if not page and not reader.row("SELECT 1 FROM topics WHERE id = ?", (topic_id,)):
        raise wire.NoSuchTopic(details={"topic_id": topic_id})
    return wire.AttachmentList(page, has_more, page[-1].id if page else None)


@cache
def _attachments(of_kind: bool, below: bool) -> str:
    query = Attachment.select(*fields(Attachment, wire.Attachment.__struct_fields__))
    query = query.where(Attachment.topic_id == given("topic"))
    if of_kind:
        query = query.where(Attachment.kind == given("kind"))
    if below:
        query = query.where(Tuple(Attachment.created_at, Attachment.id) < _ANCHOR)
    query = query.order_by(Attachment.created_at.desc(), Attachment.id.desc())
    return statement(query.limit(given("rows")))
