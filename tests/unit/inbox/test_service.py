"""The inbox on a real file: once, one mesh a reader, cursors, waiting, retention, damage."""

import gevent
import pytest

from appliance.identity import keys
from appliance.inbox import loops, queries, wire
from appliance.inbox.loops import InboxPruner
from appliance.inbox.resources import About
from appliance.inbox.sse import event_stream
from appliance.kernel.auth import ADMIN, Principal
from tests.support.clock import FakeClock
from tests.support.inbox import ALICE, OWN, push
from tests.support.until import gevent_until

BOSS = Principal("server", "server", frozenset({ADMIN}))
BOB = "b" * 64


@pytest.fixture
def inbox(new_inbox, monkeypatch):
    monkeypatch.setattr(queries, "PAGE_MAX", 100)
    return new_inbox()


def limited(*meshes):
    scope = frozenset({wire.READ, wire.WRITE})
    return Principal("t", "t", scope, {name: frozenset(meshes) for name in scope})


def page(inbox, who=BOSS, **query):
    return inbox.service.page(wire.InboxQuery(**query), who)


def bodies(page_):
    return [message.body for message in page_.messages]


# -- once ----------------------------------------------------------------------------------


def test_repeated_push_adds_no_row_and_no_event(inbox):
    assert inbox.service.receive(push(1))
    assert not inbox.service.receive(push(1, message_id="bm_other"))
    assert inbox.service.receive_many([push(2), push(2), push(3)], "link") == [True, False, True]
    assert inbox.rows() == ["c1", "c2", "c3"]
    assert [event.message.client_message_id for event in inbox.events] == ["c1", "c2", "c3"]


def test_an_id_is_used_up_in_its_mesh_alone(inbox):
    assert inbox.service.receive(push(1))
    assert inbox.service.receive(push(1, mesh="lab"))
    assert inbox.rows() == ["c1", "c1"]


def test_stored_message_equals_the_push(inbox):
    to_us = {"topic": None, "destination_kind": "dm", "destination_ref": OWN.public_hex}
    meta = {"z": 1, "a": ["é", None]}
    came = push(1, meta=meta, reply_to_id="bm_0", body="héllo 😀\n", priority="now", **to_us)
    inbox.service.receive(came)
    message = page(inbox).messages[0]
    assert (message.body, message.reply_to_id, message.topic) == ("héllo 😀\n", "bm_0", None)
    assert bytes(message.meta) == '{"z":1,"a":["é",null]}'.encode()
    stored = (message.priority, message.destination_ref, message.own)
    assert stored == ("now", OWN.public_hex, False)
    assert inbox.events[0].message.meta == came.meta


def test_unfinished_rotation_names_the_key_that_the_mesh_has(inbox, monkeypatch):
    new = keys.make("2026-02-04T20:00:00.000Z")
    monkeypatch.setattr(inbox.service.keys, "in_mesh", {"default": OWN, "lab": new}.get)
    inbox.service.add_mesh("lab")
    inbox.service.note_copy("lab", {"running_on": "here", "refused": "elsewhere"})
    assert new.public_hex in inbox.rows("SELECT value FROM meta WHERE key LIKE '%copy%'")[0]
    for mesh, key in (("default", OWN), ("lab", new)):
        assert inbox.service.own_names(mesh) == [key.public_hex]
        health = About(inbox.service, None).health(wire.MeshQuery(mesh), BOSS)
        assert health.member_pubkey == key.public_hex


# -- questions -----------------------------------------------------------------------------


@pytest.fixture
def filled(inbox):
    inbox.service.receive_many(
        [
            push(1),
            push(2, sender_pubkey=BOB, sender_name="bob"),
            push(3, topic="builds", destination_ref="builds"),
            push(4, sender_pubkey=OWN.public_hex, sender_name="us"),
            push(5, mesh="lab"),
            push(6, topic=None, destination_kind="dm", destination_ref=OWN.public_hex),
        ],
        "link",
    )
    return inbox


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ({}, [1, 2, 3, 4, 6]),
        ({"since": "3"}, [4, 6]),
        ({"topic": "alerts"}, [1, 2, 4]),
        ({"sender": BOB}, [2]),
        ({"sender": "alice"}, [1, 3, 6]),
        ({"own": False}, [1, 2, 3, 6]),
        ({"mesh": "lab"}, [5]),
        ({"since": "0", "limit": 2}, [1, 2]),
        ({"limit": 2}, [4, 6]),
        ({"since": "2000-01-01"}, [1, 2, 3, 4, 6]),
        ({"since": "2999-01-01T00:00:00Z"}, []),
        ({"since": "1", "topic": "alerts", "sender": "us"}, [4]),
    ],
)
def test_filter_selects_messages(filled, query, numbers):
    assert bodies(page(filled, **query)) == [f"message {number}" for number in numbers]


@pytest.mark.parametrize("since", ["yesterday", "-1", "1.5", "2026-13-01"])
def test_invalid_cursor_is_refused(inbox, since):
    with pytest.raises(wire.BadCursor):
        page(inbox, since=since)


def test_a_cursor_of_another_store_begins_with_the_oldest(filled):
    page_ = page(filled, since="5000")
    assert (page_.reset, bodies(page_)[0]) == (True, "message 1")


# -- one mesh a reader ---------------------------------------------------------------------


def test_readers_never_see_another_mesh(filled):
    lab = limited("lab")
    assert bodies(page(filled, lab)) == ["message 5"]
    for who, mesh in ((lab, "default"), (limited("default"), "lab")):
        with pytest.raises(wire.OtherMesh):
            page(filled, who, mesh=mesh)
    with pytest.raises(wire.MeshUnknown):
        page(filled, mesh="elsewhere")
    for wanted in (True, False):
        with pytest.raises(wire.OtherMesh):
            filled.service.subscribe(wire.TopicChange("alerts", mesh="default"), lab, wanted)


def test_a_poll_of_one_mesh_is_not_woken_by_another(inbox):
    inbox.service.receive(push(1, mesh="lab"))
    waiting = gevent.spawn(page, inbox, mesh="lab", since="1", wait=5)
    gevent_until(lambda: inbox.service.polls.waiting == 1)
    inbox.service.receive(push(2))
    with pytest.raises(gevent.Timeout):
        waiting.get(timeout=0.05)
    inbox.service.receive(push(3, mesh="lab"))
    assert bodies(waiting.get(timeout=5)) == ["message 3"]


# -- waiting -------------------------------------------------------------------------------


def test_a_poll_ends_with_the_first_message_that_fits(inbox):
    waiting = gevent.spawn(page, inbox, since="0", topic="builds", wait=5)
    gevent_until(lambda: inbox.service.polls.waiting == 1)
    inbox.service.receive(push(1))
    with pytest.raises(gevent.Timeout):
        waiting.get(timeout=0.05)
    inbox.service.receive(push(2, topic="builds"))
    page_ = waiting.get(timeout=5)
    assert (bodies(page_), page_.next) == (["message 2"], 2)


def test_polls_have_a_limit_and_end_with_the_process(new_inbox, monkeypatch):
    monkeypatch.setattr("appliance.inbox.service.WAITING_MAX", 1)
    inbox = new_inbox()
    waiting = gevent.spawn(page, inbox, since="0", wait=30)
    gevent_until(lambda: inbox.service.polls.waiting == 1)
    with pytest.raises(wire.TooManyPolls):
        page(inbox, since="0", wait=30)
    inbox.service.feed.close()
    assert waiting.get(timeout=5).messages == []
    assert inbox.service.polls.waiting == 0


# -- the stream ----------------------------------------------------------------------------


class Book:
    def watch(self, _who, over):
        self.over = over
        return lambda: None


def stream(inbox, who=BOSS, last=None, **query):
    return event_stream(inbox.service, Book(), wire.InboxEventsQuery(**query), last, who)


def read(pieces, count):
    text = b""
    for piece in pieces:
        text += piece
        if text.count(b"event: ") >= count:
            return text.decode()
    return text.decode()


def test_event_stream_sends_stored_then_new_events_of_one_mesh(filled):
    opened = stream(filled, since=3)
    pieces = iter(opened)
    stored = read(pieces, 2)
    reader = gevent.spawn(read, pieces, 2)
    filled.service.receive(push(7, mesh="lab"))
    filled.service.announce("daemon_disconnect", "lab", reason="lost")
    filled.service.announce("peer_join", "default", pubkey=ALICE)
    filled.service.receive(push(8))
    text = stored + reader.get(timeout=5)
    assert [line for line in text.splitlines() if line.startswith(("id", "event"))] == [
        "id: 4", "event: message", "id: 6", "event: message", "event: peer_join",
        "id: 8", "event: message",
    ]  # fmt: skip
    opened.close()
    assert filled.service.streams.waiting == 0


def test_event_stream_resumes_after_last_event_id(filled):
    opened = stream(filled, last="4")
    assert "id: 6" in read(iter(opened), 1)
    opened.close()
    for wrong in ("x", "-1", "9" * 30):
        with pytest.raises(Exception, match="not an event id"):
            stream(filled, last=wrong)


def test_streams_have_a_limit(new_inbox, monkeypatch):
    monkeypatch.setattr("appliance.inbox.service.STREAMS_MAX", 1)
    inbox = new_inbox()
    opened = stream(inbox)
    with pytest.raises(wire.TooManyEventStreams):
        stream(inbox)
    opened.close()
    stream(inbox).close()


# -- time and damage -----------------------------------------------------------------------

DAY = 86_400


def test_messages_go_after_thirty_days_and_numbers_are_never_used_again(new_inbox, monkeypatch):
    monkeypatch.setattr(loops, "PRUNED_ROWS_MAX", 2)
    clock = FakeClock()
    inbox = new_inbox(clock)
    inbox.service.receive_many([push(n) for n in range(1, 6)], "link")
    pruner = InboxPruner(inbox.service, inbox.log)
    clock.pass_seconds(30 * DAY - 1)
    assert pruner.run_once(clock.now_ms())["inbox"] == 0
    clock.pass_seconds(2)
    assert [pruner.run_once(clock.now_ms())["inbox"] for _ in range(3)] == [2, 2, 1]
    assert page(inbox).next == 5
    inbox.service.receive(push(6))
    assert page(inbox, since="5").messages[0].number == 6
