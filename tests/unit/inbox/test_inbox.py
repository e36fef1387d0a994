"""The inbox on a real file: once, one mesh a reader, cursors, waiting, retention, damage."""

import gevent
import pytest

from appliance.inbox import wire
from appliance.inbox.loops import Sweeper
from appliance.inbox.recover import recover
from appliance.inbox.settings import InboxSettings
from appliance.inbox.sse import EventStream
from appliance.kernel.auth import ADMIN, Principal
from appliance.kernel.clock import SystemClock
from appliance.kernel.datadir import suspect_mark
from appliance.kernel.log import Log
from tests.support.clock import FakeClock
from tests.support.inbox import ALICE, OWN, House, push

BOSS = Principal("server", "server", frozenset({ADMIN}))
BOB = "b" * 64


@pytest.fixture
def house(tmp_path):
    house = House(tmp_path, page_max=100)
    yield house
    house.close()


def limited(*meshes):
    scope = frozenset({wire.READ, wire.WRITE})
    return Principal("t", "t", scope, {one: frozenset(meshes) for one in scope})


def page(house, who=BOSS, **query):
    return house.inbox.page(wire.InboxQuery(**query), who)


def bodies(found):
    return [message.body for message in found.messages]


# -- once ----------------------------------------------------------------------------------


def test_a_message_is_a_row_once_and_only_a_new_one_is_told(house):
    assert house.inbox.receive(push(1))
    assert not house.inbox.receive(push(1, message_id="bm_other"))
    assert house.inbox.receive_many([push(2), push(2), push(3)], "link") == [True, False, True]
    assert house.rows() == ["c1", "c2", "c3"]
    assert [event.message.client_message_id for event in house.heard] == ["c1", "c2", "c3"]


def test_an_id_is_used_up_in_its_mesh_alone(house):
    assert house.inbox.receive(push(1))
    assert house.inbox.receive(push(1, mesh="lab"))
    assert house.rows() == ["c1", "c1"]


def test_a_message_without_an_id_of_its_sender_is_known_by_the_brokers(house):
    assert house.inbox.receive(push(1, client_message_id=None))
    assert not house.inbox.receive(push(1, client_message_id=None))
    assert house.rows() == ["broker:bm_1"]


def test_what_is_stored_is_what_came(house):
    to_us = {"topic": None, "destination_kind": "dm", "destination_ref": OWN.public_hex}
    meta = {"z": 1, "a": ["é", None]}
    came = push(1, meta=meta, reply_to_id="bm_0", body="héllo 😀\n", priority="now", **to_us)
    house.inbox.receive(came)
    message = page(house).messages[0]
    assert (message.body, message.reply_to_id, message.topic) == ("héllo 😀\n", "bm_0", None)
    assert bytes(message.meta) == '{"z":1,"a":["é",null]}'.encode()
    assert (message.priority, message.destination_ref, message.own) == (
        "now",
        OWN.public_hex,
        False,
    )
    assert house.heard[0].message.meta == came.meta


# -- questions -----------------------------------------------------------------------------


@pytest.fixture
def filled(house):
    house.inbox.receive_many(
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
    return house


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ({}, [1, 2, 3, 4, 6]),
        ({"since": "0"}, [1, 2, 3, 4, 6]),
        ({"since": "3"}, [4, 6]),
        ({"since": "6"}, []),
        ({"topic": "alerts"}, [1, 2, 4]),
        ({"topic": "nowhere"}, []),
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
def test_filters(filled, query, numbers):
    assert bodies(page(filled, **query)) == [f"message {number}" for number in numbers]


def test_pages_follow_each_other_without_a_gap(filled):
    seen, cursor = [], "0"
    while True:
        found = page(filled, since=cursor, limit=2)
        seen += bodies(found)
        cursor = str(found.next)
        if not found.has_more:
            break
    assert seen == [f"message {number}" for number in (1, 2, 3, 4, 6)]
    assert page(filled, since=cursor).messages == []


def test_a_reply_ends_before_it_is_too_large(tmp_path):
    house = House(tmp_path, page_bytes_max=3000)
    try:
        house.inbox.receive_many([push(n, body="x" * 1000) for n in range(4)], "link")
        found = page(house, since="0")
        assert (len(found.messages), found.has_more) == (1, True)
        assert len(page(house, since=str(found.next)).messages) == 1
    finally:
        house.close()


@pytest.mark.parametrize("since", ["yesterday", "-1", "1.5", "2026-13-01"])
def test_a_cursor_that_is_none_is_refused(house, since):
    with pytest.raises(wire.BadCursor):
        page(house, since=since)


def test_a_cursor_of_another_store_begins_anew(filled):
    found = page(filled, since="5000")
    assert (found.reset, bodies(found)[0]) == (True, "message 1")


# -- one mesh a reader ---------------------------------------------------------------------


def test_nothing_of_another_mesh_is_ever_read(filled):
    lab = limited("lab")
    assert bodies(page(filled, lab)) == ["message 5"]
    for who, mesh in ((lab, "default"), (limited("default"), "lab")):
        with pytest.raises(wire.OtherMesh):
            page(filled, who, mesh=mesh)
    with pytest.raises(wire.NoSuchMesh):
        page(filled, mesh="elsewhere")
    for verb in (filled.inbox.subscribe, filled.inbox.unsubscribe):
        with pytest.raises(wire.OtherMesh):
            verb(wire.TopicChange("alerts", mesh="default"), lab)


def test_a_poll_of_one_mesh_is_not_woken_by_another(house):
    house.inbox.receive(push(1, mesh="lab"))
    waiting = gevent.spawn(page, house, mesh="lab", since="1", wait=5)
    gevent.sleep(0.05)
    house.inbox.receive(push(2))
    gevent.sleep(0.05)
    assert not waiting.ready()
    house.inbox.receive(push(3, mesh="lab"))
    assert bodies(waiting.get(timeout=5)) == ["message 3"]


# -- waiting -------------------------------------------------------------------------------


def test_a_poll_ends_with_the_first_message_that_fits(house):
    waiting = gevent.spawn(page, house, since="0", topic="builds", wait=5)
    gevent.sleep(0.05)
    house.inbox.receive(push(1))
    gevent.sleep(0.05)
    assert not waiting.ready()
    house.inbox.receive(push(2, topic="builds"))
    found = waiting.get(timeout=5)
    assert (bodies(found), found.next) == (["message 2"], 2)


def test_a_poll_ends_empty_and_its_cursor_goes_on(house):
    house.inbox.receive(push(1))
    found = page(house, since="0", topic="nowhere", wait=0.05)
    assert (found.messages, found.next) == ([], 1)


def test_polls_have_a_limit_and_end_with_the_process(tmp_path):
    house = House(tmp_path, waiting_max=1)
    try:
        waiting = gevent.spawn(page, house, since="0", wait=30)
        gevent.sleep(0.05)
        with pytest.raises(wire.TooManyPolls):
            page(house, since="0", wait=30)
        house.inbox.feed.close()
        assert waiting.get(timeout=5).messages == []
        assert house.inbox.polls == 0
    finally:
        house.close()


# -- the stream ----------------------------------------------------------------------------


class Book:
    def watch(self, _who, over):
        self.over = over
        return lambda: None


def stream(house, who=BOSS, last=None, **query):
    return EventStream(house.inbox, Book(), who, wire.InboxEventsQuery(**query), last)


def read(pieces, count):
    text = b""
    for piece in pieces:
        text += piece
        if text.count(b"event: ") >= count:
            return text.decode()
    return text.decode()


def test_a_stream_tells_the_past_then_the_present_and_one_mesh_only(filled):
    opened = stream(filled, since=3)
    told = gevent.spawn(read, iter(opened), 4)
    gevent.sleep(0.05)
    filled.inbox.receive(push(7, mesh="lab"))
    filled.inbox.announce("daemon_disconnect", "lab", reason="lost")
    filled.inbox.announce("peer_join", "default", pubkey=ALICE)
    filled.inbox.receive(push(8))
    text = told.get(timeout=5)
    assert [line for line in text.splitlines() if line.startswith(("id", "event"))] == [
        "id: 4", "event: message", "id: 6", "event: message", "event: peer_join",
        "id: 8", "event: message",
    ]  # fmt: skip
    opened.close()
    assert filled.inbox.streams == 0


def test_a_stream_goes_on_where_it_was(filled):
    opened = stream(filled, last="4")
    assert "id: 6" in read(iter(opened), 1)
    opened.close()
    for wrong in ("x", "-1", "9" * 30):
        with pytest.raises(Exception, match="no cursor"):
            stream(filled, last=wrong)


def test_a_reader_that_fell_behind_goes_back_to_the_table(tmp_path):
    house = House(tmp_path, queue_max=2)
    try:
        opened = stream(house)
        pieces = iter(opened)
        assert next(pieces) == b"retry: 1000\n\n"
        for number in range(1, 8):
            house.inbox.receive(push(number))
        text = read(pieces, 7)
        assert [f"id: {n}" in text for n in range(1, 8)] == [True] * 7
        assert text.count("event: message") == 7
        opened.close()
    finally:
        house.close()


def test_streams_have_a_limit(tmp_path):
    house = House(tmp_path, streams_max=1)
    try:
        opened = stream(house)
        with pytest.raises(wire.TooManyStreams) as refusal:
            stream(house)
        assert (refusal.value.code, refusal.value.kind) == ("TOO_MANY_STREAMS", "exhausted")
        opened.close()
        stream(house).close()
    finally:
        house.close()


# -- topics, profile -----------------------------------------------------------------------


def test_subscriptions_are_remembered_and_counted(tmp_path):
    house = House(tmp_path, topics_max=1)
    try:
        alerts = wire.TopicChange("alerts")
        assert house.inbox.subscribe(alerts, BOSS).changed
        assert not house.inbox.subscribe(alerts, BOSS).changed
        with pytest.raises(wire.TooManyTopics):
            house.inbox.subscribe(wire.TopicChange("builds"), BOSS)
        topics = house.inbox.topics(wire.MeshListQuery(), BOSS).topics
        assert [one.name for one in topics] == ["alerts"]
        assert house.inbox.unsubscribe(alerts, BOSS).changed
        assert not house.inbox.unsubscribe(alerts, BOSS).changed
    finally:
        house.close()


class Desk:
    """A broker that refuses, or is away."""

    def __init__(self, error):
        self.error = error

    def __getattr__(self, _name):
        def ask(*_args):
            raise self.error

        return ask


def test_what_the_broker_refused_is_not_remembered(house):
    house.inbox.broker_clients["default"] = Desk(wire.BrokerRefused())
    with pytest.raises(wire.BrokerRefused):
        house.inbox.subscribe(wire.TopicChange("alerts"), BOSS)
    house.inbox.broker_clients["default"] = Desk(wire.NoBroker())
    topics = house.inbox.topics(wire.MeshListQuery(), BOSS)
    assert (topics.topics, topics.complete) == ([], False)


def test_a_profile_keeps_what_is_left_out(house):
    change = house.inbox.change_profile
    change(wire.Profile(summary="builds", status="working"), BOSS)
    shown = change(wire.Profile(visible=False), BOSS)
    assert (shown.summary, shown.status, shown.visible) == ("builds", "working", False)


# -- time and damage -----------------------------------------------------------------------

DAY = 86_400


def test_messages_go_after_thirty_days_and_numbers_are_never_used_again(tmp_path):
    clock = FakeClock()
    house = House(tmp_path, clock, sweep_rows_max=2)
    try:
        house.inbox.receive_many([push(n) for n in range(1, 6)], "link")
        sweeper = Sweeper(house.store, house.settings, clock, house.log)
        clock.pass_seconds(30 * DAY - 1)
        assert sweeper.run_once(clock.now_ms())["inbox"] == 0
        clock.pass_seconds(2)
        assert sweeper.run_once(clock.now_ms())["inbox"] == 5
        assert page(house).next == 5
        house.inbox.receive(push(6))
        assert page(house, since="5").messages[0].number == 6
    finally:
        house.close()


def test_space_is_given_back_once_a_week(tmp_path):
    clock = FakeClock()
    house = House(tmp_path, clock)
    try:
        house.inbox.receive_many([push(n, body="x" * 20_000) for n in range(50)], "link")
        sweeper = Sweeper(house.store, house.settings, clock, house.log)
        clock.pass_seconds(31 * DAY)
        assert sweeper.run_once(clock.now_ms()) == {"inbox": 50, "hook_runs": 0, "vacuums": 1}
        assert sweeper.run_once(clock.now_ms())["vacuums"] == 0
        house.inbox.receive(push(100))
    finally:
        house.close()


@pytest.mark.parametrize("harm", ["garbage", "empty", "middle", "mark"])
def test_a_damaged_inbox_is_kept_aside_and_what_can_be_read_is_served(tmp_path, harm):
    house = House(tmp_path)
    house.inbox.receive_many([push(n, body="x" * 3000) for n in range(200)], "link")
    house.close()
    database = house.datadir.database("inbox")
    if harm == "garbage":
        database.write_bytes(b"nonsense" * 1000)
    elif harm == "empty":
        database.write_bytes(b"")
    elif harm == "middle":
        with database.open("r+b") as file:
            file.seek(40 * 4096)
            file.write(b"\xff" * 8192)
    else:
        suspect_mark(database).write_text("damaged\n")
    log = Log(house.lines)
    kept = recover(house.datadir, InboxSettings(), SystemClock(), log)
    assert kept is not None
    assert kept.startswith("inbox.sqlite3.corrupt-")
    assert database.with_name(kept).exists()
    assert house.said("inbox_corruption_recovered")
    again = House(tmp_path)
    readable = {"garbage": 0, "empty": 0, "middle": 196, "mark": 200}[harm]
    assert readable <= len(again.rows()) <= 200
    assert again.inbox.receive(push(1000))
    assert again.inbox.receive(push(1)) == ("c1" not in again.rows()[:-1])
    again.close()


def test_a_sound_inbox_stays(tmp_path):
    house = House(tmp_path)
    house.inbox.receive(push(1))
    assert recover(house.datadir, InboxSettings(), SystemClock(), house.log) is None
    house.close()
    assert recover(house.datadir, InboxSettings(), SystemClock(), house.log) is None
    assert house.rows() == ["c1"]


def test_ids_go_on_above_those_that_are_there(tmp_path):
    house = House(tmp_path)
    house.inbox.receive(push(1))
    house.close()
    again = House(tmp_path)
    try:
        assert again.inbox.feed.head == 1
        again.inbox.receive(push(2))
        assert sorted(again.rows("SELECT id FROM inbox")) == again.rows(
            "SELECT id FROM inbox ORDER BY number"
        )
    finally:
        again.close()
