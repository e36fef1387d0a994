"""The hub's listings: pages of channels, topics and attachments, composed by what was asked for."""

from typing import cast

import msgspec
from peewee import Tuple

from appliance.hub import wire
from appliance.hub.attachments import attachment_of
from appliance.hub.model import Attachment, Channel, Topic
from appliance.kernel.page import ROW_BYTES, text_bytes
from appliance.kernel.reader import Reader


def channels(
    reader: Reader, limit: int, after_name: str | None, only: frozenset[str] | None
) -> wire.ChannelList:
    """By name; `after_name` continues behind the last of an earlier page, there or gone."""
    query = Channel.select(Channel.id, Channel.name, Channel.description, Channel.created_at)
    if after_name is not None:
        query = query.where(Channel.name > after_name)
    if only is not None:
        query = query.where(Channel.id.in_(sorted(only)))
    page, has_more = reader.page(
        *query.order_by(Channel.name).limit(limit + 1).sql(),
        limit=limit,
        make=lambda row: wire.Channel(*row),
        size=lambda channel: ROW_BYTES + text_bytes(channel.description),
    )
    return wire.ChannelList(page, has_more)


def topics(reader: Reader, channel_id: str, limit: int, before_id: str | None) -> wire.TopicList:
    """Newest activity first; `before_id` continues below a topic of an earlier page."""
    query = Topic.select(
        Topic.id, Topic.channel_id, Topic.title, Topic.created_at, Topic.updated_at
    ).where(Topic.channel_id == channel_id)
    if before_id is not None:
        anchor = reader.row(
            "SELECT updated_at, id FROM topics WHERE id = ? AND channel_id = ?",
            (before_id, channel_id),
        )
        if anchor is None:
            raise wire.NoSuchTopic(details={"before_id": before_id})
        query = query.where(Tuple(Topic.updated_at, Topic.id) < anchor)
    page, has_more = reader.page(
        *query.order_by(Topic.updated_at.desc(), Topic.id.desc()).limit(limit + 1).sql(),
        limit=limit,
        make=lambda row: wire.Topic(*row),
        size=lambda topic: ROW_BYTES + text_bytes(topic.title),
    )
    if not page and not reader.row("SELECT 1 FROM channels WHERE id = ?", (channel_id,)):
        raise wire.NoSuchChannel(details={"channel_id": channel_id})
    return wire.TopicList(page, has_more)


def attachments(reader: Reader, topic_id: str, asked: wire.AttachmentsQuery) -> wire.AttachmentList:
    """Newest first; `before_id` goes on below an attachment of an earlier page."""
    query = Attachment.select(
        Attachment.id, Attachment.topic_id, Attachment.kind, Attachment.key,
        Attachment.value_json, Attachment.dedupe_key, Attachment.source_message_id,
        Attachment.created_at,
    ).where(Attachment.topic_id == topic_id)  # fmt: skip
    if asked.kind is not None:
        query = query.where(Attachment.kind == asked.kind)
    if asked.before_id is not None:
        anchor = reader.row(
            "SELECT created_at, id FROM topic_attachments WHERE id = ? AND topic_id = ?",
            (asked.before_id, topic_id),
        )
        if anchor is None:
            raise wire.NoSuchAttachment(details={"before_id": asked.before_id})
        query = query.where(Tuple(Attachment.created_at, Attachment.id) < anchor)
    query = query.order_by(Attachment.created_at.desc(), Attachment.id.desc())
    found, has_more = reader.page(
        *query.limit(asked.limit + 1).sql(),
        limit=asked.limit,
        make=attachment_of,
        size=lambda attachment: (
            ROW_BYTES
            + len(cast(msgspec.Raw, attachment.value_json))
            + text_bytes(attachment.dedupe_key)
        ),
    )
    if not found and not reader.row("SELECT 1 FROM topics WHERE id = ?", (topic_id,)):
        raise wire.NoSuchTopic(details={"topic_id": topic_id})
    return wire.AttachmentList(found, has_more, found[-1].id if found else None)
