"""The SDK with a hub that really serves: verbs, restarts, kills, rotations, a full disk."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from appliance.sdk.aio import AsyncClient
from appliance.sdk.client import Client
from appliance.sdk.cursor import FileCursor
from appliance.sdk.errors import (
    AlreadyExists,
    CrossChannelMove,
    InvalidInput,
    NotAllowed,
    NotFound,
    TokenRejected,
    VersionConflict,
)
from appliance.sdk.models import Envelope, MessageChanged, NewMessage
from appliance.sdk.stream_follower import TokenRefused
from tests.support.servedhub import serve
from tests.support.until import until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("hurry")]


class Follow:
    """A client whose events are collected by a thread of their own."""

    def __init__(self, **arguments: Any) -> None:
        self.client = Client(**arguments)
        self.events: list[Envelope] = []
        self.disconnects: list[Any] = []
        self.error: BaseException | None = None
        self.client.on("disconnect", lambda _: self.disconnects.append("disconnect"))
        self.client.on("reconnect", self.disconnects.append)
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            for event in self.client.events():
                self.events.append(event)
        except BaseException as error:
            self.error = error

    @property
    def numbers(self) -> list[int]:
        return [event.event_id for event in self.events]

    def reaches(self, number: int) -> None:
        def there() -> bool:
            assert self.error is None, self.error
            return bool(self.events) and self.events[-1].event_id >= number

        until(there, 30, f"event {number}")

    def end(self) -> None:
        self.client.close()
        self.thread.join(10)
        assert not self.thread.is_alive()


@contextmanager
def following(**arguments: Any) -> Iterator[Follow]:
    follow = Follow(**arguments)
    try:
        yield follow
    finally:
        follow.end()


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """Not the one of the other files here, which is a process that they kill."""
    with serve(tmp_path_factory.mktemp("sdk")) as hub:
        yield hub


@pytest.fixture(scope="module")
def channel_and_topic(hub):
    return hub.channel_with_topic("general")


# -- verbs -----------------------------------------------------------------------------------


def test_every_verb_works_over_http(hub) -> None:
    with Client(hub.workspace) as client:
        channel = client.create_channel("verbs", "all of them").channel
        topic = client.create_topic(channel.id, "one").topic
        assert client.rename_topic(topic.id, "two").topic.title == "two"
        sent = client.send_message(topic.id, "me", "hello")
        edited = client.edit_message(sent.message.id, "hello!", 1)
        assert edited.message.version == 2
        with pytest.raises(VersionConflict) as conflict:
            client.edit_message(sent.message.id, "hello?", 1)
        assert conflict.value.current == 2
        deleted = client.delete_message(sent.message.id, "me", 2)
        second = client.delete_message(sent.message.id, "me")
        assert (deleted.event_id is not None, second.event_id) == (True, None)
        results = client.send_messages(
            [NewMessage(topic.id, "me", str(number)) for number in range(700)]
            + [NewMessage("topic_none", "me", "x")]
        )
        assert all(isinstance(result, MessageChanged) for result in results[:700])
        assert isinstance(results[700], NotFound)
        assert channel in client.list_channels()
        assert [each.title for each in client.list_topics(channel.id)] == ["two"]
        tail = client.tail_messages(topic.id, 2)
        assert [each.content_raw for each in tail] == ["699", "698"]
        older = client.page_messages(topic.id, before_id=tail[-1].id, limit=1)
        assert older[0].content_raw == "697"
        newer = client.page_messages(channel_id=channel.id, after_id=tail[-1].id)
        assert newer == tail[:1]
        assert client.page_messages(topic.id, since=tail[0].created_at)[-1] == tail[0]
        everything = [each.content_raw for each in client.messages(topic.id)]
        assert everything[1:] == [str(number) for number in range(700)]
        other = client.create_topic(channel.id, "other").topic
        moved = client.retopic_message(tail[0].id, other.id, "one")
        assert (moved.affected_count, len(moved.event_ids)) == (1, 1)
        assert client.retopic_message(tail[0].id, other.id, "all").event_ids == []
        elsewhere = client.create_channel("far").channel
        there = client.create_topic(elsewhere.id, "t").topic
        with pytest.raises(CrossChannelMove):
            client.retopic_message(tail[0].id, there.id, "all")
        attached = client.add_attachment(topic.id, "url", {"url": "https://example.org"})
        same = client.add_attachment(topic.id, "url", {"url": "https://example.org"})
        assert (same.attachment, same.event_id) == (attached.attachment, None)
        assert client.list_attachments(topic.id, kind="url") == [attached.attachment]
        hits = client.search("650", channel_id=channel.id)
        assert [each.content_raw for each in hits.messages] == ["650"]
        assert "650" in hits.messages[0].snippet
        with pytest.raises(InvalidInput):
            client.search('"never closed')
        with pytest.raises(AlreadyExists) as taken:
            client.create_channel("verbs")
        assert taken.value.details == {"channel_id": channel.id}


def test_every_verb_can_be_awaited(hub) -> None:
    async def story() -> list[int]:
        async with AsyncClient(hub.workspace) as client:
            await client.connect()
            channel = (await client.create_channel("awaited")).channel
            topic = (await client.create_topic(channel.id, "t")).topic
            sent = await asyncio.gather(
                *(client.send_message(topic.id, "me", str(number)) for number in range(50))
            )
            assert len({each.message.id for each in sent}) == 50
            await client.edit_message(sent[0].message.id, "x", 1)
            await client.delete_message(sent[1].message.id, "me")
            assert len(await client.tail_messages(topic.id)) == 50
            assert await client.list_topics(channel.id)
            events = []
            streamer = AsyncClient(
                hub.workspace, subscriptions={"channels": ["awaited"], "topics": []}
            )
            async with streamer:
                async for event in streamer.events():
                    events.append(event)
                    if event.name == "message.deleted":
                        break
            return [event.event_id for event in events]

    numbers = asyncio.run(asyncio.wait_for(story(), 60))
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 54


# -- what happens to a hub ---------------------------------------------------------------------


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_a_hub_that_ends_and_comes_back(tmp_path, way) -> None:
    with serve(tmp_path) as hub:
        _, topic_id = hub.channel_with_topic("general")
        with following(workspace=tmp_path, cursor=FileCursor(tmp_path / "cursor")) as follow:
            follow.reaches(hub.send(topic_id)["event_id"])
            first = follow.client.target.health.instance_id
            getattr(hub, way)()
            sent: list[Any] = []
            waiting = threading.Thread(
                target=lambda: sent.append(follow.client.send_message(topic_id, "s", "patient"))
            )
            waiting.start()
            until(lambda: "disconnect" in follow.disconnects, what="the disconnection is reported")
            hub.start()
            waiting.join(30)
            follow.reaches(hub.send(topic_id)["event_id"])
            assert follow.numbers == [event["event_id"] for event in hub.events()]
            assert follow.disconnects == ["disconnect", 3]
            assert follow.client.target.health.instance_id != first
            assert [each.message.content_raw for each in sent] == ["patient"]
        last = FileCursor(tmp_path / "cursor").load()
        assert last is not None
        assert last.event_id >= follow.numbers[-1] - 1  # the last one may not be confirmed


def test_client_reads_a_rotated_token_and_continues(tmp_path) -> None:
    with serve(tmp_path) as hub:
        _, topic_id = hub.channel_with_topic("general")
        with following(workspace=tmp_path) as follow:
            follow.reaches(hub.send(topic_id)["event_id"])
            follow.client.send_message(topic_id, "s", "before")
            old = hub.token
            assert hub.http.post("/api/v1/tokens/server/rotate", {"grace_seconds": 0}).status == 200
            assert hub.token != old
            sent = follow.client.send_message(topic_id, "s", "after")
            follow.reaches(sent.event_id)
            assert follow.disconnects[0] == "disconnect"


def test_a_revoked_token_ends_the_stream_with_a_typed_error(hub, channel_and_topic) -> None:
    body = {
        "name": "leaver",
        "scopes": [f"hub:read@{channel_and_topic[0]}", f"hub:post@{channel_and_topic[0]}"],
    }
    issued = hub.made(hub.http.post("/api/v1/tokens", body))
    theirs = hub.channel_with_topic("elsewhere")
    with following(url=hub.url, token=issued["secret"]) as follow:
        mine = follow.client.send_message(channel_and_topic[1], "s", "mine")
        with pytest.raises(NotAllowed):
            follow.client.send_message(theirs[1], "s", "not mine")
        follow.reaches(mine.event_id)
        assert {event.scope.channel_id for event in follow.events} == {channel_and_topic[0]}
        hub.http("DELETE", f"/api/v1/tokens/{issued['token']['id']}")
        follow.thread.join(20)
        assert isinstance(follow.error, TokenRefused)
        with pytest.raises(TokenRejected):
            follow.client.send_message(channel_and_topic[1], "s", "no more")
