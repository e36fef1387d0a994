"""Moving messages: ADR-0004 with its ten edge cases, and who receives the events (gate D)."""

import json
import sqlite3
from contextlib import closing

import gevent
import msgspec
import pytest

from appliance.hub import wire
from appliance.hub.subscription import Filter
from tests.support.database_files import execute
from tests.support.until import gevent_until


class RetopicFixture:
    """A channel with topics a and b, one elsewhere, and messages in a."""

    def __init__(self, env, messages=5):
        self.env, self.hub, self.who = env, env.hub, env.alice
        self.channel, self.elsewhere = env.channel("general"), env.channel("other")
        self.a, self.b, self.c = (env.topic(self.channel, title) for title in "abc")
        self.far = env.topic(self.elsewhere, "far")
        self.ids = [self.send(self.a, f"message {number}") for number in range(messages)]

    def send(self, topic, content="x"):
        return self.env.post(topic, content)["message"]["id"]

    def move(self, message_id, target, mode="one", version=None, key=None):
        command = wire.MoveMessage(target, mode, version)
        reply = self.hub.patch_message(message_id, command, self.who, key)
        return msgspec.json.decode(reply.body, type=wire.Moved)

    def inside(self, topic):
        rows = self.env.rows("SELECT id FROM messages WHERE topic_id = ? ORDER BY rowid", topic)
        return [row[0] for row in rows]

    def moves(self):
        """What the log says of moves, oldest first."""
        return self.env.rows(
            "SELECT event_id, scope_channel_id, scope_topic_id, scope_topic_id2, entity_type,"
            " entity_id, data_json FROM events WHERE name = 'message.moved_topic'"
            " ORDER BY event_id"
        )


@pytest.fixture
def fixture(env):
    return RetopicFixture(env)


@pytest.mark.parametrize(
    ("mode", "chosen"), [("one", [2]), ("later", [2, 3, 4]), ("all", range(5))]
)
def test_each_mode_moves_its_messages_with_an_event_each(fixture, mode, chosen):
    published = len(fixture.env.published)
    fixture.env.clock.pass_seconds(1)
    moved = fixture.move(fixture.ids[2], fixture.b, mode)
    ids = [fixture.ids[number] for number in chosen]
    assert moved.affected_count == len(ids)
    assert fixture.inside(fixture.b) == ids
    assert fixture.inside(fixture.a) == [each for each in fixture.ids if each not in ids]
    assert [row[0] for row in fixture.moves()] == moved.event_ids
    for message_id, row in zip(ids, fixture.moves(), strict=True):
        assert row[1:6] == (fixture.channel, fixture.a, fixture.b, "message", message_id)
        data = wire.MessageMoved(
            message_id, fixture.a, fixture.b, fixture.channel, mode, 2, "alice"
        )
        assert row[6].encode() == msgspec.json.encode(data)
    live = fixture.env.published[published:]
    assert [event.number for event in live] == moved.event_ids
    logged, _ = fixture.hub.read_log(moved.event_ids[0] - 1, moved.event_ids[-1], None)
    assert b"".join(event.frame for event in live) == logged, "live and replayed are one"


def test_move_changes_only_topic_and_version(fixture):
    before = fixture.env.rows("SELECT * FROM messages ORDER BY id")
    fixture.move(fixture.ids[0], fixture.b, "all")
    assert fixture.env.rows("SELECT * FROM messages ORDER BY id") == [
        (old[0], fixture.b, *old[2:5], old[5] + 1, *old[6:]) for old in before
    ]


# -- gate D: subscribers that receive the events ---------------------------------------------


def test_move_events_reach_both_topics_and_the_channel_only(fixture):
    moved = fixture.move(fixture.ids[0], fixture.b, "later").event_ids
    events = [event for event in fixture.env.published if event.number in moved]
    for wanted, matches in (
        (Filter(topics=frozenset([fixture.a])), True),
        (Filter(topics=frozenset([fixture.b])), True),
        (Filter(channels=frozenset([fixture.channel])), True),
        (Filter(topics=frozenset([fixture.a, fixture.b])), True),
        (Filter(topics=frozenset([fixture.c])), False),
        (Filter(channels=frozenset([fixture.elsewhere])), False),
    ):
        assert {wanted.matches(event) for event in events} == {matches}
        replayed, _ = fixture.hub.read_log(moved[0] - 1, moved[-1], wanted)
        assert replayed.count(b"message.moved_topic") == (len(moved) if matches else 0)


def test_move_to_another_channel_is_refused(fixture):
    before, published = fixture.env.everything(), len(fixture.env.published)
    for mode in ("one", "later", "all"):
        with pytest.raises(wire.CrossChannelMove) as refused:
            fixture.move(fixture.ids[0], fixture.far, mode)
        assert (refused.value.code, refused.value.kind) == ("CROSS_CHANNEL_MOVE", "invalid")
    assert fixture.env.everything() == before
    assert len(fixture.env.published) == published


# -- the edge cases of ADR-0004, by their numbers ----------------------------------------------


@pytest.mark.parametrize("mode", ["one", "later", "all"])
def test_1_move_to_the_same_topic_succeeds_without_events(fixture, mode):
    before = fixture.env.everything()
    assert fixture.move(fixture.ids[0], fixture.a, mode) == wire.Moved(0, [])
    assert fixture.env.everything() == before


def test_2_tombstones_move_and_stay_tombstones(fixture):
    fixture.hub.patch_message(fixture.ids[1], wire.DeleteMessage("bob"), fixture.who)
    assert fixture.move(fixture.ids[0], fixture.b, "all").affected_count == 5
    ((topic, content, version, by),) = fixture.env.rows(
        "SELECT topic_id, content_raw, version, deleted_by FROM messages WHERE id = ?",
        fixture.ids[1],
    )
    assert (topic, content, version, by) == (fixture.b, wire.TOMBSTONE, 3, "bob")


def test_3_a_retry_that_expects_the_version_before_the_move_conflicts(fixture):
    fixture.move(fixture.ids[0], fixture.b, version=1)
    before = fixture.env.everything()
    with pytest.raises(wire.VersionConflict) as refused:
        fixture.move(fixture.ids[0], fixture.b, version=1)
    assert refused.value.extra == {"current_version": 2}
    assert fixture.env.everything() == before


def test_4_move_from_an_emptied_topic_conflicts(fixture):
    """Topics are never deleted; the nearest to it is one whose messages all left."""
    fixture.move(fixture.ids[0], fixture.b, "all")
    assert fixture.move(fixture.ids[0], fixture.b, "all").affected_count == 0


def test_5_a_target_that_does_not_exist_is_refused(fixture):
    before = fixture.env.everything()
    with pytest.raises(wire.NoSuchTopic, match="target topic not found"):
        fixture.move(fixture.ids[0], "topic_none", "all")
    with pytest.raises(wire.NoSuchMessage):
        fixture.move("msg_none", fixture.b)
    assert fixture.env.everything() == before


def test_5_database_refuses_a_missing_target(fixture):
    with closing(sqlite3.connect(fixture.env.path)) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute("UPDATE messages SET topic_id = 'topic_none'")


def test_6_move_above_the_limit_is_refused(new_env):
    fixture = RetopicFixture(new_env(max_retopic_batch=4))
    before = fixture.env.everything()
    with pytest.raises(wire.TooManyToMove) as refused:
        fixture.move(fixture.ids[0], fixture.b, "all")
    assert refused.value.kind == "invalid"
    assert refused.value.details == {"limit": 4}
    assert fixture.env.everything() == before
    assert fixture.move(fixture.ids[1], fixture.b, "later").affected_count == 4


def test_6_ten_thousand_move_at_once_if_the_setting_allows_it(new_env):
    fixture = RetopicFixture(new_env(max_retopic_batch=10_000))
    with closing(sqlite3.connect(fixture.env.path)) as connection, connection:
        connection.executemany(
            "INSERT INTO messages (id, topic_id, channel_id, sender, content_raw, created_at)"
            " VALUES (?, ?, ?, 's', 'x', 'now')",
            ((f"msg_0{number:06}", fixture.c, fixture.channel) for number in range(10_000)),
        )
    moved = fixture.move("msg_0000000", fixture.b, "all")
    assert moved.affected_count == len(moved.event_ids) == 10_000
    assert moved.event_ids == sorted(moved.event_ids)
    assert len(fixture.inside(fixture.b)) == 10_000


def test_7_the_last_message_has_nothing_later(fixture):
    assert fixture.move(fixture.ids[-1], fixture.b, "later").affected_count == 1
    assert fixture.inside(fixture.b) == [fixture.ids[-1]]


def test_8_gaps_in_the_ids_do_not_matter(fixture):
    fixture.move(fixture.ids[1], fixture.c)
    fixture.move(fixture.ids[3], fixture.c)
    fixture.move(fixture.ids[2], fixture.b, "later")
    assert fixture.inside(fixture.b) == [fixture.ids[2], fixture.ids[4]]
    assert fixture.inside(fixture.a) == [fixture.ids[0]]


def both_wait(fixture):
    """Returns once two writes are with the writer, which the gate holds."""
    gevent_until(lambda: fixture.env.store.facts()["queue_jobs"] >= 2)


def test_9_second_of_two_concurrent_moves_conflicts(fixture, gate):
    with gate:
        # The first is in the writer; the second saw the old topic and waits behind it.
        moves = [
            gevent.spawn(fixture.move, fixture.ids[0], target, "all")
            for target in (fixture.b, fixture.c)
        ]
        both_wait(fixture)
    gevent.joinall(moves)
    won = [each.value for each in moves if each.successful()]
    (lost,) = [each.exception for each in moves if not each.successful()]
    assert isinstance(lost, wire.MessagesMoved)
    assert (lost.code, lost.kind) == ("MESSAGES_MOVED", "conflict")
    assert [each.affected_count for each in won] == [5]
    assert len(fixture.moves()) == 5, "nothing moved twice"


def test_10_an_edit_that_expects_the_version_before_a_move_conflicts(fixture):
    fixture.move(fixture.ids[0], fixture.b)
    with pytest.raises(wire.VersionConflict):
        fixture.hub.patch_message(fixture.ids[0], wire.EditMessage("x", 1), fixture.who)
    fixture.hub.patch_message(fixture.ids[0], wire.EditMessage("x", 2), fixture.who)
    with pytest.raises(wire.VersionConflict):
        fixture.move(fixture.ids[0], fixture.c, version=2)


def test_a_message_sent_while_its_topic_moves_is_in_one_of_both(fixture):
    def send(number):
        return fixture.send(fixture.a, f"new {number}")

    sending = [gevent.spawn(send, number) for number in range(10)]
    moving = gevent.spawn(fixture.move, fixture.ids[0], fixture.b, "all")
    sending += [gevent.spawn(send, number) for number in range(10, 20)]
    gevent.joinall([moving, *sending], raise_error=True)
    assert len(fixture.inside(fixture.a)) + len(fixture.inside(fixture.b)) == 25
    assert len(fixture.inside(fixture.b)) == moving.value.affected_count
    versions = dict(fixture.env.rows("SELECT id, version FROM messages"))
    assert {versions[each] for each in fixture.inside(fixture.b)} == {2}
    assert {versions[each] for each in fixture.inside(fixture.a)} <= {1}


def test_unsorted_ids_move_in_row_order(new_env):
    env = new_env()
    execute(env.path, "INSERT OR REPLACE INTO meta VALUES ('x_id_order', 'rowid')")
    env.reopen()
    fixture = RetopicFixture(env, messages=0)
    with closing(sqlite3.connect(env.path)) as connection, connection:
        connection.executemany(
            "INSERT INTO messages (id, topic_id, channel_id, sender, content_raw, created_at)"
            " VALUES (?, ?, ?, 's', 'x', 'now')",
            ((name, fixture.a, fixture.channel) for name in ("zzz", "mmm", 'o"dd', "aaa")),
        )
    moved = fixture.move("mmm", fixture.b, "later")
    assert fixture.inside(fixture.b) == ["mmm", 'o"dd', "aaa"]
    assert [row[5] for row in fixture.moves()] == ["mmm", 'o"dd', "aaa"]
    assert [json.loads(row[6])["message_id"] for row in fixture.moves()] == ["mmm", 'o"dd', "aaa"]
    assert moved.affected_count == 3
