"""Keeps another library's records in a topic: each record is a message with JSON."""

import hashlib
import re
from collections.abc import Iterator
from io import BytesIO
from typing import Any, NamedTuple

import msgspec

from appliance.sdk import models
from appliance.sdk.client import Client
from appliance.sdk.errors import AlreadyExists, NotFound, VersionConflict

Json = dict[str, Any]
INLINE_BYTES_MAX = 48 * 1024  # a longer record is a file; a message holds 64 KiB
PAGE = 1000
_TITLE = re.compile(r"[\w.-]{1,100}", re.ASCII)


class Change(NamedTuple):
    """A record, or None where the message was deleted."""

    message_id: str
    record: Json | None


class TopicLog:
    """The records in the topic for `name`. Not for several threads at once."""

    def __init__(self, hub: Client, channel: str, name: str, sender: str) -> None:
        self._hub = hub
        self._channel = channel
        self._title = make_title(name)
        self._sender = sender
        self._after: int | None = None

    def append(self, record: Json) -> str:
        """Post a record, and return its message's id. The first one makes channel and topic."""
        text = msgspec.json.encode(record)
        if len(text) > INLINE_BYTES_MAX:
            stored = self._hub.put_file(BytesIO(text), "application/json")
            text = msgspec.json.encode({"file": stored.blob.ref})
        try:
            return self._post(text.decode())
        except NotFound:
            self._create()
            return self._post(text.decode())

    def changes(self) -> list[Change]:
        """Return what is new since the last call; at first, and after a restore, everything."""
        changes: list[Change] = []
        if self._after is not None:
            head = self._read_events(changes)
            if head >= self._after:
                self._after = head
                return changes
        self._after = self._hub.list_events(tail=1).replay_until
        everything = [Change(*each) for each in self.newest()]
        return everything[::-1]

    def newest(self) -> Iterator[tuple[str, Json]]:
        """Yield message ids with their records, newest first, without deleted ones."""
        before: str | None = None
        while page := self._page(before):
            for message in page:
                if message.deleted_at is None:
                    yield message.id, self._decode(message.content_raw)
            before = page[-1].id

    def delete(self, message_id: str) -> bool:
        """Delete a record. Return False if somebody else did."""
        try:
            self._hub.delete_message(message_id, actor=self._sender, expected_version=1)
        except (VersionConflict, NotFound):
            return False
        return True

    def clear(self) -> None:
        for message_id, _ in list(self.newest()):
            self.delete(message_id)
        self.restart()

    def restart(self) -> None:
        """Make the next `changes` return everything."""
        self._after = None

    def _page(self, before: str | None) -> list[models.Message]:
        try:
            return self._hub.page_messages(self._topic, before_id=before, limit=PAGE)
        except NotFound:
            return []

    def _read_events(self, changes: list[Change]) -> int:
        """Append the changes after the cursor, and return the log's newest event; -1 if the topic
        is gone."""
        after = self._after or 0
        while True:
            try:
                page = self._hub.list_events(after, topic_id=self._topic, limit=PAGE)
            except NotFound:
                return -1
            changes += filter(None, map(self._change, page.events))
            if not page.has_more:
                return page.replay_until
            after = page.events[-1].event_id

    def _change(self, event: models.EventRow) -> Change | None:
        data = event.data_json
        if event.name == "message.deleted":
            return Change(data["message_id"], None)
        if event.name == "message.created":
            return Change(data["message"]["id"], self._decode(data["message"]["content_raw"]))
        return None

    def _decode(self, text: str) -> Json:
        record: Json = msgspec.json.decode(text, type=dict)
        if list(record) == ["file"]:
            record = msgspec.json.decode(self._hub.get_file(record["file"]), type=dict)
        return record

    def _post(self, text: str) -> str:
        return self._hub.send_message(self._topic, self._sender, text).message.id

    def _create(self) -> None:
        for create in (
            lambda: self._hub.create_channel(self._channel),
            lambda: self._hub.create_topic(self._channel, self._title),
        ):
            try:
                create()
            except AlreadyExists:  # another process was first
                continue

    @property
    def _topic(self) -> str:
        return f"{self._channel}/{self._title}"


def make_title(name: str) -> str:
    """Return a topic title: the name itself, or its hash if titles can't hold the name."""
    if _TITLE.fullmatch(name):
        return name
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


def list_titles(hub: Client, channel: str) -> Iterator[str]:
    """Yield a channel's topic titles, most recently used first; none without the channel."""
    before: str | None = None
    try:
        while topics := hub.list_topics(channel, PAGE, before):
            yield from (topic.title for topic in topics)
            before = topics[-1].id
    except NotFound:
        return
