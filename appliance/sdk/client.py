"""The client for programs with threads, or with gevent: events as an iterator, verbs as methods.

    with Client() as hub:
        hub.send_message(topic_id, sender="me", content_raw="hello")
        for event in hub.events():
            ...

Verbs may be called from any thread, also while `events` runs in another. A mutation carries an
idempotency key, so a repetition after a lost answer changes nothing; without a hub, or with a busy
one, the call is repeated as long as `retry` allows, and then fails with a typed error.
"""

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from appliance.kernel.clock import SystemClock
from appliance.kernel.errors import Invalid
from appliance.kernel.ids import random_id
from appliance.sdk import models
from appliance.sdk.blobs import BlobVerbs
from appliance.sdk.bounds import BoundsVerbs
from appliance.sdk.catchup import CatchUpVerbs
from appliance.sdk.cursor import CURSOR_SECONDS, Cursor, FileCursor
from appliance.sdk.entries import EntryVerbs
from appliance.sdk.errors import refusal
from appliance.sdk.http import (
    REQUEST_WAIT_SECONDS_MAX,
    ClientClosed,
    HubConnections,
    Json,
    Retry,
)
from appliance.sdk.paths import message_path, path_segment
from appliance.sdk.plain_handler import require_plain
from appliance.sdk.stream_follower import Follower, NewHistory, StreamCallbacks
from appliance.sdk.target import HubTarget

BATCH_MAX = 500
PAGES_MAX = 10_000
CLOCK = SystemClock()
THROUGH_RESTARTS = Retry(attempts_max=100, wait_seconds_max=30.0, through_restarts=True)

Subscriptions = dict[str, list[str]]
T = TypeVar("T")


class Client(EntryVerbs, CatchUpVerbs, BlobVerbs, BoundsVerbs):
    """One hub, by workspace (default: the nearest one above the working directory) or by URL.

    Channels can be given by id or name, topics by id or as CHANNEL/TITLE.


    subscriptions   {"channels": [ids or names], "topics": [ids]}; None: all events
    after_event_id  where `events` begins if `cursor` is empty; with `epoch` if known
    cursor          FileCursor(path); without it, `cursor` is only kept in memory
    inbox_cursor    the same for `receive` and `ack`: another file
    on_new_history  called when a restored backup or another database invalidated the cursor;
                    returns the event to continue after (default: 0, from the beginning)
    wait            wait for a hub that is not running yet instead of raising HubNotRunning
    """

    def __init__(
        self,
        workspace: Path | str | None = None,
        *,
        url: str | None = None,
        token: str | None = None,
        token_file: Path | str | None = None,
        subscriptions: Subscriptions | None = None,
        after_event_id: int = 0,
        epoch: str = "",
        cursor: FileCursor | None = None,
        inbox_cursor: FileCursor | None = None,
        on_new_history: Callable[[NewHistory], int] = lambda _: 0,
        retry: Retry = THROUGH_RESTARTS,
        wait: bool = False,
    ) -> None:
        self.target = HubTarget(workspace, url, token, token_file)
        self.signals = StreamCallbacks()
        self.subscriptions = subscriptions
        self.on_new_history = on_new_history
        self.wait = wait
        self.keeper = cursor or FileCursor(None)
        self.cursor = self.keeper.load() or Cursor(after_event_id, epoch)
        self._inbox_keeper = inbox_cursor or FileCursor(None)
        self._inbox_cursor = self._inbox_keeper.load() or Cursor()
        self._hubs = HubConnections(self.target.locate, retry)
        self._follower: Follower | None = None

    # -- the connection --------------------------------------------------------------

    def connect(self) -> Self:
        """Check that the hub runs and serves this workspace. Other calls do this by themselves."""
        self.target.locate()
        return self

    def close(self) -> None:
        """End `events` and every call that waits. Any thread may call it."""
        self._hubs.close()
        self.end_events()

    def end_events(self) -> None:
        """End a running iteration over `events`. Any thread may call it."""
        follower = self._follower
        if follower is not None:
            follower.stop()

    disconnect = close

    def on(self, name: str, handler: Callable[[Any], object]) -> None:
        """Call `handler` on `disconnect` (reason), `reconnect` (event id) or `error` (exception).

        Handlers run in the thread that iterates over `events`, which raises their exceptions.
        """
        handlers: dict[str, list[Callable[[Any], object]]] = {
            "disconnect": self.signals.disconnected,
            "reconnect": self.signals.reconnected,
            "error": self.signals.failed,
        }
        if name not in handlers:
            raise Invalid(f"unknown callback '{name}': use {', '.join(handlers)}")
        handlers[name].append(require_plain(handler))

    # -- events ----------------------------------------------------------------------

    def events(self) -> Generator[models.Envelope]:
        """Yield events in order, each once, until `close`. Reconnects without a limit.

        Requesting the next event marks the last one as processed; only then is the cursor
        stored. A consumer that crashes while it processes an event gets that event again.
        """
        if self._follower is not None:
            raise Invalid("this client already streams events; create another client")
        if self._hubs.closed:
            raise ClientClosed
        self._follower = follower = Follower(
            self.target.locate,
            self.subscriptions,
            after=self.cursor.event_id,
            epoch=self.cursor.epoch,
            restart=self.on_new_history,
            signals=self.signals,
            insist=self.wait,
        )
        try:
            for event in follower.events(CURSOR_SECONDS):
                if event is not None:
                    yield _envelope.decode(event.text)
                    self.cursor = Cursor(event.event_id, follower.epoch)
                self.keeper.keep(self.cursor)
        finally:
            self._follower = None
            follower.stop()
            self.keeper.keep(self.cursor, now=True)

    def acknowledge(self, event: models.Envelope) -> None:
        """Store `event` as processed now, for example before you leave the loop."""
        epoch = self._follower.epoch if self._follower is not None else self.cursor.epoch
        self.cursor = Cursor(event.event_id, epoch)
        self.keeper.keep(self.cursor, now=True)

    # -- mutations -------------------------------------------------------------------

    def create_channel(
        self, name: str, description: str | None = None, *, key: str | None = None
    ) -> models.ChannelCreated:
        """Create a channel. Raises AlreadyExists if the name is taken."""
        body = {"name": name, "description": description}
        return self._post("/api/v1/channels", body, key, models.ChannelCreated)

    def create_topic(
        self, channel_id: str, title: str, *, key: str | None = None
    ) -> models.TopicChanged:
        """Create a topic in a channel. Raises AlreadyExists if the title is taken."""
        body = {"channel_id": channel_id, "title": title}
        return self._post("/api/v1/topics", body, key, models.TopicChanged)

    def rename_topic(
        self, topic_id: str, title: str, *, key: str | None = None
    ) -> models.TopicChanged:
        """Change a topic's title. Raises AlreadyExists if the title is taken."""
        return self._patch(self._topic(topic_id), {"title": title}, key, models.TopicChanged)

    def send_message(
        self,
        topic_id: str,
        sender: str,
        content_raw: str,
        *,
        to: Sequence[str] = (),
        ack_by_seconds: int | None = None,
        on_overdue: str | None = None,
        key: str | None = None,
    ) -> models.MessageCreated:
        """Post a message to a topic. Each name in `to`, and behind `@` in the text, gets an inbox
        entry. Names in `to` have `ack_by_seconds` to acknowledge it; then `on_overdue` says
        `remind` or `reassign:NAME`."""
        body = {
            "topic_id": topic_id, "sender": sender, "content_raw": content_raw, "to": to,
            "ack_by_seconds": ack_by_seconds, "on_overdue": on_overdue,
        }  # fmt: skip
        return self._post("/api/v1/messages", body, key, models.MessageCreated)

    def send_messages(self, messages: Sequence[models.NewMessage]) -> list[models.BatchOutcome]:
        """Send many messages. Returns for each, in order, the new message or its error."""
        outcomes: list[models.BatchOutcome] = []
        for start in range(0, len(messages), BATCH_MAX):
            items = [_with_key(message) for message in messages[start : start + BATCH_MAX]]
            with self._hubs.lend() as hub:
                answer = hub.post("/api/v1/messages/batch", {"messages": items}, "")
            outcomes += [_outcome(result) for result in answer["results"]]
        return outcomes

    def edit_message(
        self,
        message_id: str,
        content_raw: str,
        expected_version: int | None = None,
        *,
        key: str | None = None,
    ) -> models.MessageChanged:
        """Replace a message's text. Raises VersionConflict if it has another version than
        expected."""
        body = {"op": "edit", "content_raw": content_raw, "expected_version": expected_version}
        return self._patch(message_path(message_id), body, key, models.MessageChanged)

    def delete_message(
        self,
        message_id: str,
        actor: str,
        expected_version: int | None = None,
        *,
        key: str | None = None,
    ) -> models.MessageChanged:
        """Replace a message by a tombstone. Raises VersionConflict like `edit_message`."""
        body = {"op": "delete", "actor": actor, "expected_version": expected_version}
        return self._patch(message_path(message_id), body, key, models.MessageChanged)

    def retopic_message(
        self,
        message_id: str,
        to_topic_id: str,
        mode: models.Mode,
        expected_version: int | None = None,
        *,
        key: str | None = None,
    ) -> models.Moved:
        """Move one message (`one`), also all later ones (`later`), or the whole topic (`all`)."""
        body = {
            "op": "move_topic", "to_topic_id": to_topic_id, "mode": mode,
            "expected_version": expected_version,
        }  # fmt: skip
        return self._patch(message_path(message_id), body, key, models.Moved)

    def add_attachment(
        self,
        topic_id: str,
        kind: str,
        value_json: dict[str, Any],
        *,
        attachment_key: str | None = None,
        dedupe_key: str | None = None,
        source_message_id: str | None = None,
        key: str | None = None,
    ) -> models.AttachmentAdded:
        """Attach something to a topic. An equal attachment is returned, not added twice."""
        body = {
            "kind": kind,
            "value_json": value_json,
            "key": attachment_key,
            "dedupe_key": dedupe_key,
            "source_message_id": source_message_id,
        }
        path = f"{self._topic(topic_id)}/attachments"
        return self._post(path, body, key, models.AttachmentAdded)

    # -- queries ---------------------------------------------------------------------

    def list_channels(
        self, limit: int = 1000, after_name: str | None = None
    ) -> list[models.Channel]:
        """Return channels sorted by name; `after_name` continues after a page's last channel."""
        return self._get(
            "/api/v1/channels", list[models.Channel], "channels", limit=limit, after_name=after_name
        )

    def list_topics(
        self, channel_id: str, limit: int = 50, before_id: str | None = None
    ) -> list[models.Topic]:
        """Return topics, most recently used first; `before_id` continues after a page's last
        topic."""
        path = f"/api/v1/channels/{path_segment(channel_id)}/topics"
        return self._get(path, list[models.Topic], "topics", limit=limit, before_id=before_id)

    def get_message(self, message_id: str) -> models.Message:
        """Return one message. Raises NotFound."""
        return self._get(message_path(message_id), models.Message, "message")

    def tail_messages(self, topic_id: str, limit: int = 50) -> list[models.Message]:
        """Return a topic's newest messages, newest first."""
        return self.page_messages(topic_id, limit=limit)

    def page_messages(
        self,
        topic_id: str | None = None,
        *,
        channel_id: str | None = None,
        before_id: str | None = None,
        after_id: str | None = None,
        since: str | None = None,
        limit: int = 50,
    ) -> list[models.Message]:
        """Return a topic's or channel's page: newest first, or oldest first with `after_id` or
        `since` (ISO 8601).

        A page with large messages holds fewer than `limit`: continue until a page is empty.
        """
        return self._get(
            "/api/v1/messages", list[models.Message], "messages",
            topic_id=topic_id, channel_id=channel_id, before_id=before_id, after_id=after_id,
            since=since, limit=limit,
        )  # fmt: skip

    def messages(self, topic_id: str) -> Generator[models.Message]:
        """Yield a topic's messages, oldest first, page by page."""
        newest = self.tail_messages(topic_id, 1000)
        pages = [newest]
        for _ in range(PAGES_MAX):
            if not pages[-1]:
                break
            pages.append(self.page_messages(topic_id, before_id=pages[-1][-1].id, limit=1000))
        for page in reversed(pages):
            yield from reversed(page)

    def list_events(
        self,
        after: int = 0,
        *,
        topic_id: str | None = None,
        tail: int | None = None,
        limit: int = 100,
    ) -> models.EventPage:
        """Return events after a cursor, oldest first, or the newest `tail` events. Continue after
        the last one while `has_more`."""
        query = {"after": after} if tail is None else {"tail": tail}
        return self._get(
            "/api/v1/events", models.EventPage, None, topic_id=topic_id, limit=limit, **query
        )

    def list_attachments(
        self, topic_id: str, kind: str | None = None, limit: int = 50
    ) -> list[models.Attachment]:
        """Return a topic's attachments, newest first."""
        path, kinds = f"{self._topic(topic_id)}/attachments", list[models.Attachment]
        return self._get(path, kinds, "attachments", kind=kind, limit=limit)

    def list_enrichments(self, message_id: str) -> list[models.Enrichment]:
        """Return the enrichments that plugins made from the current text."""
        path, kinds = f"{message_path(message_id)}/enrichments", list[models.Enrichment]
        return self._get(path, kinds, "enrichments")

    def search(
        self,
        query: str,
        *,
        channel_id: str | None = None,
        topic_id: str | None = None,
        sender: str | None = None,
        after: str | None = None,
        before: str | None = None,
        limit: int = 50,
        prefix: bool | None = None,
        order: str | None = None,
    ) -> models.SearchResult:
        """Return messages that match words, "phrases" and OR, best match first.

        With `prefix`, the last word also matches longer words. `order` is "best" or "newest".
        """
        return self._get(
            "/api/v1/search", models.SearchResult, None,
            q=query, channel_id=channel_id, topic_id=topic_id, sender=sender,
            after=after, before=before, limit=limit, prefix=prefix, order=order,
        )  # fmt: skip

    # -- sends and received messages ---------------------------------------------------

    def send(
        self,
        to: str,
        message: str,
        *,
        priority: models.Priority = "next",
        meta: dict[str, Any] | None = None,
        reply_to_id: str | None = None,
        mesh: str | None = None,
        target: str | None = None,
        client_message_id: str | None = None,
    ) -> models.SendAccepted:
        """Send a message durably through the outbox: to `#topic`, a public key, `mailto:…` and
        other destinations (outbox spec §3). A repeated `client_message_id` sends nothing twice;
        without one, this call's retries share a random id."""
        body = {
            "to": to,
            "message": message,
            "priority": priority,
            "meta": meta,
            "replyToId": reply_to_id,
            "mesh": mesh,
            "target": target,
            "client_message_id": client_message_id or random_id(),
        }
        return self._post("/v1/send", body, "", models.SendAccepted)

    def send_status(self, send_id: str) -> models.SendState:
        """Return a send's state, by `client_message_id` or row id. Raises NotFound."""
        return self._get("/v1/outbox/inspect", models.SendState, "send", id=send_id)

    def receive(
        self, *, mesh: str | None = None, limit: int = 100, wait_seconds: float = 0.0
    ) -> list[models.InboxMessage]:
        """Return the oldest received messages after the last acked one; wait for the first if
        there is none. Without an `ack`, the next call returns them again."""
        return self._get(
            "/v1/inbox", list[models.InboxMessage], "messages",
            since=self._inbox_cursor.event_id, mesh=mesh, limit=limit, wait=wait_seconds,
        )  # fmt: skip

    def ack(self, message: models.InboxMessage) -> None:
        """Mark a received message and all before it as processed, and store the cursor."""
        self._inbox_cursor = Cursor(message.number)
        self._inbox_keeper.keep(self._inbox_cursor, now=True)

    # -- questions to people -----------------------------------------------------------

    def ask(
        self, text: str, sender: str, *, choices: Sequence[str] = (), default: str | None = None,
        deadline_seconds: int | None = None, may_answer: Sequence[str] = (),
        blocks: Sequence[str] = (), topic_id: str | None = None, key: str | None = None,
    ) -> models.Ask:  # fmt: skip
        """Ask a person. A repeated `key` gives the first ask, in its current state, so a program
        that restarts repeats its call."""
        body = {
            "text": text, "sender": sender, "topic_id": topic_id, "choices": choices,
            "default": default, "deadline_seconds": deadline_seconds, "may_answer": may_answer,
            "blocks": blocks,
        }  # fmt: skip
        return self._post("/api/v1/asks", body, key, dict[str, models.Ask])["ask"]

    def wait_for_answer(self, ask_id: str, seconds: float = 60.0) -> models.Ask:
        """Wait while nobody has settled the ask, at most `seconds`, also through restarts."""
        path, until = f"/api/v1/asks/{path_segment(ask_id)}", CLOCK.monotonic() + seconds
        while True:
            left = max(0.0, until - CLOCK.monotonic())
            ask = self._get(path, models.Ask, "ask", wait=min(left, REQUEST_WAIT_SECONDS_MAX))
            if ask.state != "waiting" or left <= REQUEST_WAIT_SECONDS_MAX:
                return ask


def _with_key(message: models.NewMessage) -> models.NewMessage:
    if message.idempotency_key is not None:
        return message
    return msgspec.structs.replace(message, idempotency_key=random_id())


def _outcome(result: Json) -> models.BatchOutcome:
    if "error" in result:
        return refusal(0, result)
    return msgspec.convert(result, models.MessageChanged)


_envelope = msgspec.json.Decoder(models.Envelope)
