"""Pages of large rows: limited in bytes, each row once, and paging gets to the end."""

import json
import shutil
from operator import attrgetter
from pathlib import Path

import msgspec
import pytest

from appliance.hub import wire
from tests.support.pages import pages_of
from tests.unit.hub.conftest import HubEnvironment
from tests.unit.hub.test_search import SearchFixture

BYTES = 1 << 20
LARGE = 60_000
COUNT = 45


@pytest.fixture(scope="module")
def fixture(new_file, tmp_path_factory):
    env = HubEnvironment(Path(shutil.copy(new_file, tmp_path_factory.mktemp("pages"))))
    fixture = SearchFixture(env)
    fixture.ids = [fixture.send(f"{number:05}" + "x" * LARGE) for number in range(COUNT)]
    yield fixture
    env.store.close()


def encoded(page):
    return len(msgspec.json.encode(page))


def test_message_pages_limited_in_bytes_reach_the_end_in_both_directions(fixture):
    for first, parameter, expected in (
        ({}, "before_id", fixture.ids[::-1]),
        ({"after_id": fixture.ids[0]}, "after_id", fixture.ids[1:]),
    ):

        def page_from(cursor):
            query = wire.MessagesQuery(topic_id=fixture.topics[0], limit=1000, **cursor)
            return fixture.hub.page_messages(query, fixture.who)

        def cursor_of(page, parameter=parameter):
            return {parameter: page.cursor}

        pages = pages_of(page_from, first, cursor_of, BYTES)
        assert [page.cursor for page in pages] == [page.messages[-1].id for page in pages]
        assert [message.id for page in pages for message in page.messages] == expected


def events(fixture, **query):
    body = fixture.hub.list_events(wire.EventsQuery(**query), fixture.who)
    return body, json.loads(body)


def follows(page, _head):
    return page["events"][-1]["event_id"] if page["has_more"] else None


def counts(page, head):
    """As clients do that know nothing of `has_more`: a short page reaches to `replay_until`."""
    full = len(page["events"]) == 1000
    cursor = page["events"][-1]["event_id"] if full else page["replay_until"]
    return cursor if cursor < head else None


@pytest.mark.parametrize("next_cursor", [follows, counts])
def test_events_for_any_client(fixture, next_cursor):
    head = fixture.hub.feed.head
    seen, after, pages = [], 0, 0
    while after is not None:
        body, page = events(fixture, after=after, limit=1000)
        assert len(body) <= BYTES + 1000
        seen += [event["event_id"] for event in page["events"]]
        after, pages = next_cursor(page, head), pages + 1
    assert seen == list(range(1, head + 1))
    assert pages > 2
    assert page["replay_until"] == head


def test_page_full_by_count_states_whether_more_follow(fixture):
    head = fixture.hub.feed.head
    _, page = events(fixture, after=head - 2, limit=2)
    assert (page["has_more"], page["replay_until"]) == (False, head)
    _, page = events(fixture, after=head - 3, limit=2)
    assert (page["has_more"], page["replay_until"]) == (True, head)


def test_tail_page_drops_the_oldest_events(fixture):
    _, page = events(fixture, tail=1000)
    assert page["events"][-1]["event_id"] == page["replay_until"] == fixture.hub.feed.head
    assert len(page["events"]) < COUNT
    assert page["has_more"]


def test_attachments(fixture):
    topic_id = fixture.topics[1]
    for number in range(100):
        command = wire.AddAttachment("note", {"n": number, "text": "x" * 15_000})
        fixture.hub.add_attachment(topic_id, command, fixture.who)

    def page_before(cursor):
        query = wire.AttachmentsQuery(limit=1000, before_id=cursor)
        return fixture.hub.list_attachments(topic_id, query, fixture.who)

    pages = pages_of(page_before, cursor_of=attrgetter("cursor"), bytes_max=BYTES)
    values = [bytes(attachment.value_json) for page in pages for attachment in page.attachments]
    assert sorted(json.loads(value)["n"] for value in values) == list(range(100))


def test_control_characters_count_with_their_escapes(fixture):
    """Six bytes each in JSON."""
    topic_id = fixture.made(
        fixture.hub.create_topic(wire.CreateTopic(fixture.channel, "controls"), fixture.who)
    )
    for _ in range(5):
        command = wire.CreateMessage(topic_id, "a", "\x01" * 60_000)
        fixture.hub.create_message(command, fixture.who)
    page = fixture.hub.page_messages(wire.MessagesQuery(topic_id=topic_id), fixture.who)
    assert page.has_more
    assert encoded(page) <= BYTES
