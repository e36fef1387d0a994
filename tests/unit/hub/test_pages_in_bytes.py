"""Pages of large rows: limited in bytes, each row once, and paging gets to the end."""

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from appliance.hub import wire
from tests.unit.hub.conftest import House
from tests.unit.hub.test_search import Place

BYTES = 1 << 20
LARGE = 60_000
COUNT = 45


@pytest.fixture(scope="module")
def place(new_file, tmp_path_factory):
    house = House(Path(shutil.copy(new_file, tmp_path_factory.mktemp("pages"))))
    place = Place(house)
    place.ids = [place.send(f"{number:05}" + "x" * LARGE) for number in range(COUNT)]
    yield place
    house.store.close()


def encoded(page):
    return len(msgspec.json.encode(page))


def test_messages_in_both_directions(place):
    for first, parameter, expected in (
        ({}, "before_id", place.ids[::-1]),
        ({"after_id": place.ids[0]}, "after_id", place.ids[1:]),
    ):
        seen, cursor = [], first
        while True:
            query = wire.MessagesQuery(topic_id=place.topics[0], limit=1000, **cursor)
            page = place.hub.page_messages(query, place.who)
            assert page.messages
            assert encoded(page) <= BYTES
            seen += [message.id for message in page.messages]
            assert page.cursor == seen[-1]
            if not page.has_more:
                break
            cursor = {parameter: page.cursor}
        assert seen == expected


def events(place, **query):
    body = place.hub.list_events(wire.EventsQuery(**query), place.who)
    return body, json.loads(body)


def follows(page, _head):
    return page["events"][-1]["event_id"] if page["has_more"] else None


def counts(page, head):
    """As clients do that know nothing of `has_more`: a short page reaches to `replay_until`."""
    full = len(page["events"]) == 1000
    cursor = page["events"][-1]["event_id"] if full else page["replay_until"]
    return cursor if cursor < head else None


@pytest.mark.parametrize("next_cursor", [follows, counts])
def test_events_for_any_client(place, next_cursor):
    head = place.hub.feed.head
    seen, after, pages = [], 0, 0
    while after is not None:
        body, page = events(place, after=after, limit=1000)
        assert len(body) <= BYTES + 1000
        seen += [event["event_id"] for event in page["events"]]
        after, pages = next_cursor(page, head), pages + 1
    assert seen == list(range(1, head + 1))
    assert pages > 2
    assert page["replay_until"] == head


def test_a_page_that_is_full_by_count_says_whether_there_is_more(place):
    head = place.hub.feed.head
    _, page = events(place, after=head - 2, limit=2)
    assert (page["has_more"], page["replay_until"]) == (False, head)
    _, page = events(place, after=head - 3, limit=2)
    assert (page["has_more"], page["replay_until"]) == (True, head)


def test_the_newest_events_are_cut_at_the_old_end(place):
    _, page = events(place, tail=1000)
    assert page["events"][-1]["event_id"] == page["replay_until"] == place.hub.feed.head
    assert len(page["events"]) < COUNT
    assert page["has_more"]


def test_attachments(place):
    topic_id = place.topics[1]
    for number in range(100):
        command = wire.AddAttachment("note", {"n": number, "text": "x" * 15_000})
        place.hub.add_attachment(topic_id, command, place.who)
    seen, before = [], None
    while True:
        query = wire.AttachmentsQuery(limit=1000, before_id=before)
        page = place.hub.list_attachments(topic_id, query, place.who)
        assert encoded(page) <= BYTES
        seen += [json.loads(bytes(one.value_json))["n"] for one in page.attachments]
        if not page.has_more:
            break
        before = page.cursor
    assert sorted(seen, reverse=True) == list(range(99, -1, -1))


def test_control_characters_count_as_what_they_become(place):
    """Six bytes each in JSON."""
    topic_id = place.made(
        place.hub.create_topic(wire.CreateTopic(place.channel, "controls"), place.who)
    )
    for _ in range(5):
        command = wire.CreateMessage(topic_id, "a", "\x01" * 60_000)
        place.hub.create_message(command, place.who)
    page = place.hub.page_messages(wire.MessagesQuery(topic_id=topic_id), place.who)
    assert page.has_more
    assert encoded(page) <= BYTES
