"""Pages of large rows: limited in bytes, each row once, and paging gets to the end."""

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from appliance.hub import queries, wire
from appliance.hub.events import append
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


def test_control_characters_count_with_their_escapes(fixture):
    """Six bytes each in JSON."""
    topic_id = fixture.env.topic(fixture.channel, "controls")
    for _ in range(5):
        fixture.env.post(topic_id, "\x01" * 60_000)
    page = fixture.hub.page_messages(wire.MessagesQuery(topic_id=topic_id), fixture.who)
    assert page.has_more
    assert encoded(page) <= BYTES


@pytest.mark.parametrize("data", [b"{" + b"x" * LARGE, b"[" * LARGE + b"]" * LARGE])
def test_cut_pages_reach_to_events_whose_data_no_parser_takes(bare_log, data):
    """Another program stored text that isn't JSON, or is nested too deeply."""
    for _ in range(COUNT):
        entity = ("message", "m")
        append(bare_log.tx, "message.created", entity, data, channel_id="c")
    page = queries.list_events(bare_log.reader, wire.EventsQuery(), COUNT)
    assert page.has_more
    assert page.until == len(page.events) < COUNT
