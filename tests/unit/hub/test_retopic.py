"""Moving messages: ADR-0004 with its ten edge cases, and who hears of it (gate D)."""

import json
import sqlite3
from contextlib import closing

import gevent
import msgspec
import pytest

from appliance.hub import wire
from appliance.hub.subscription import Filter


class Place:
    """A channel with topics a and b, one elsewhere, and messages in a."""

    def __init__(self, house, messages=5):
        self.house, self.hub, self.who = house, house.hub, house.alice
        self.channel, self.elsewhere = self.make_channel("general"), self.make_channel("other")
        self.a, self.b, self.c = (self.make_topic(self.channel, title) for title in "abc")
        self.far = self.make_topic(self.elsewhere, "far")
        self.ids = [self.send(self.a, f"message {number}") for number in range(messages)]

    def make_channel(self, name):
        reply = self.hub.create_channel(wire.CreateChannel(name), self.who)
        return json.loads(reply.body)["channel"]["id"]

    def make_topic(self, channel, title):
        reply = self.hub.create_topic(wire.CreateTopic(channel, title), self.who)
        return json.loads(reply.body)["topic"]["id"]

    def send(self, topic, content="x"):
        reply = self.hub.create_message(wire.CreateMessage(topic, "alice", content), self.who)
        return json.loads(reply.body)["message"]["id"]

    def move(self, message_id, target, mode="one", version=None, key=None):
        command = wire.MoveMessage(target, mode, version)
        reply = self.hub.patch_message(message_id, command, self.who, key)
        return msgspec.json.decode(reply.body, type=wire.Moved)

    def inside(self, topic):
        rows = self.house.rows("SELECT id FROM messages WHERE topic_id = ? ORDER BY rowid", topic)
        return [row[0] for row in rows]

    def moves(self):
        """What the log says of moves, oldest first."""
        return self.house.rows(
            "SELECT event_id, scope_channel_id, scope_topic_id, scope_topic_id2, entity_type,"
            " entity_id, data_json FROM events WHERE name = 'message.moved_topic'"
            " ORDER BY event_id"
        )


@pytest.fixture
def place(house):
    return Place(house)


@pytest.mark.parametrize(
    ("mode", "chosen"), [("one", [2]), ("later", [2, 3, 4]), ("all", range(5))]
)
def test_each_mode_moves_its_messages_and_tells_of_each(place, mode, chosen):
    told = len(place.house.told)
    place.house.clock.pass_seconds(1)
    moved = place.move(place.ids[2], place.b, mode)
    ids = [place.ids[number] for number in chosen]
    assert moved.affected_count == len(ids)
    assert place.inside(place.b) == ids
    assert place.inside(place.a) == [each for each in place.ids if each not in ids]
    assert [row[0] for row in place.moves()] == moved.event_ids
    for message_id, row in zip(ids, place.moves(), strict=True):
        assert row[1:6] == (place.channel, place.a, place.b, "message", message_id)
        data = wire.MessageMoved(message_id, place.a, place.b, place.channel, mode, 2, "alice")
        assert row[6].encode() == msgspec.json.encode(data)
    live = place.house.told[told:]
    assert [event.number for event in live] == moved.event_ids
    logged, _ = place.hub.read_log(moved.event_ids[0] - 1, moved.event_ids[-1], None)
    assert b"".join(event.frame for event in live) == logged, "live and replayed are one"


def test_only_place_and_version_change(place):
    before = place.house.rows("SELECT * FROM messages ORDER BY id")
    place.move(place.ids[0], place.b, "all")
    for old, new in zip(
        before, place.house.rows("SELECT * FROM messages ORDER BY id"), strict=True
    ):
        assert new == (old[0], place.b, *old[2:5], old[5] + 1, *old[6:])


def test_the_target_is_the_most_recently_used_topic(place):
    old = "SELECT updated_at FROM topics WHERE id = ?"
    before = place.house.rows(old, place.a)
    place.house.clock.pass_seconds(5)
    place.move(place.ids[0], place.b)
    newest = "SELECT id FROM topics ORDER BY updated_at DESC LIMIT 1"
    assert place.house.rows(newest) == [(place.b,)]
    assert place.house.rows(old, place.a) == before, "the topic it left was not used"


# -- gate D: who hears of it -----------------------------------------------------------------


def test_old_topic_new_topic_and_channel_hear_every_event_and_nobody_else(place):
    moved = place.move(place.ids[0], place.b, "later").event_ids
    events = [event for event in place.house.told if event.number in moved]
    for wanted, hears in (
        (Filter(topics=frozenset([place.a])), True),
        (Filter(topics=frozenset([place.b])), True),
        (Filter(channels=frozenset([place.channel])), True),
        (Filter(topics=frozenset([place.a, place.b])), True),
        (Filter(topics=frozenset([place.c])), False),
        (Filter(channels=frozenset([place.elsewhere])), False),
    ):
        assert {wanted.matches(event) for event in events} == {hears}
        replayed, _ = place.hub.read_log(moved[0] - 1, moved[-1], wanted)
        assert replayed.count(b"message.moved_topic") == (len(moved) if hears else 0)


def test_to_another_channel_nothing_moves(place):
    before, told = place.house.everything(), len(place.house.told)
    for mode in ("one", "later", "all"):
        with pytest.raises(wire.CrossChannelMove) as refused:
            place.move(place.ids[0], place.far, mode)
        assert (refused.value.code, refused.value.kind) == ("CROSS_CHANNEL_MOVE", "invalid")
    assert place.house.everything() == before
    assert len(place.house.told) == told


# -- the edge cases of ADR-0004, by their numbers ----------------------------------------------


@pytest.mark.parametrize("mode", ["one", "later", "all"])
def test_1_what_is_there_already_is_a_success_without_events(place, mode):
    before = place.house.everything()
    assert place.move(place.ids[0], place.a, mode) == wire.Moved(0, [])
    assert place.house.everything() == before


def test_2_tombstones_move_and_stay_tombstones(place):
    place.hub.patch_message(place.ids[1], wire.DeleteMessage("bob"), place.who)
    assert place.move(place.ids[0], place.b, "all").affected_count == 5
    ((topic, content, version, by),) = place.house.rows(
        "SELECT topic_id, content_raw, version, deleted_by FROM messages WHERE id = ?", place.ids[1]
    )
    assert (topic, content, version, by) == (place.b, wire.TOMBSTONE, 3, "bob")


def test_3_a_retry_that_expects_the_version_before_the_move_conflicts(place):
    place.move(place.ids[0], place.b, version=1)
    before = place.house.everything()
    with pytest.raises(wire.VersionConflict) as refused:
        place.move(place.ids[0], place.b, version=1)
    assert refused.value.extra == {"current_version": 2}
    assert place.house.everything() == before


def test_3_and_with_an_idempotency_key_it_gets_the_first_answer(place):
    first = place.move(place.ids[0], place.b, "later", 1, "key")
    assert place.move(place.ids[0], place.b, "later", 1, "key") == first
    assert len(place.moves()) == 5


def test_4_a_topic_that_was_emptied_meanwhile_gives_nothing(place):
    """Topics are never deleted; the nearest to it is one whose messages all left."""
    place.move(place.ids[0], place.b, "all")
    assert place.move(place.ids[0], place.b, "all").affected_count == 0


def test_5_a_target_that_does_not_exist_is_refused(place):
    before = place.house.everything()
    with pytest.raises(wire.NoSuchTopic, match="target topic not found"):
        place.move(place.ids[0], "topic_none", "all")
    with pytest.raises(wire.NoSuchMessage):
        place.move("msg_none", place.b)
    assert place.house.everything() == before


def test_5_the_database_too_would_refuse_it(place):
    with closing(sqlite3.connect(place.house.path)) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute("UPDATE messages SET topic_id = 'topic_none'")


def test_6_more_than_the_setting_allows_is_refused_and_exactly_that_many_move(new_house):
    place = Place(new_house(max_retopic_batch=4))
    before = place.house.everything()
    with pytest.raises(wire.TooManyToMove) as refused:
        place.move(place.ids[0], place.b, "all")
    assert refused.value.kind == "invalid"
    assert refused.value.details == {"limit": 4}
    assert place.house.everything() == before
    assert place.move(place.ids[1], place.b, "later").affected_count == 4


def test_6_ten_thousand_move_at_once(place):
    with closing(sqlite3.connect(place.house.path)) as connection, connection:
        connection.executemany(
            "INSERT INTO messages (id, topic_id, channel_id, sender, content_raw, created_at)"
            " VALUES (?, ?, ?, 's', 'x', 'now')",
            ((f"msg_0{number:06}", place.c, place.channel) for number in range(10_000)),
        )
    moved = place.move("msg_0000000", place.b, "all")
    assert moved.affected_count == len(moved.event_ids) == 10_000
    assert moved.event_ids == sorted(moved.event_ids)
    assert len(place.inside(place.b)) == 10_000


def test_7_the_last_message_has_nothing_later(place):
    assert place.move(place.ids[-1], place.b, "later").affected_count == 1
    assert place.inside(place.b) == [place.ids[-1]]


def test_8_gaps_in_the_ids_do_not_matter(place):
    place.move(place.ids[1], place.c)
    place.move(place.ids[3], place.c)
    place.move(place.ids[2], place.b, "later")
    assert place.inside(place.b) == [place.ids[2], place.ids[4]]
    assert place.inside(place.a) == [place.ids[0]]


def both_wait(place):
    """Returns once two writes are with the writer, which the gate holds."""
    with gevent.Timeout(20):
        while place.house.store.facts()["queue_jobs"] < 2:
            gevent.sleep(0.001)


def test_9_of_two_moves_of_one_topic_the_second_is_told(place, gate):
    with gate:
        # The first is in the writer; the second saw the old topic and waits behind it.
        moves = [
            gevent.spawn(place.move, place.ids[0], target, "all") for target in (place.b, place.c)
        ]
        both_wait(place)
    gevent.joinall(moves)
    won = [each.value for each in moves if each.successful()]
    (lost,) = [each.exception for each in moves if not each.successful()]
    assert isinstance(lost, wire.MessagesMoved)
    assert (lost.code, lost.kind) == ("MESSAGES_MOVED", "conflict")
    assert [each.affected_count for each in won] == [5]
    assert len(place.moves()) == 5, "nothing moved twice"


def test_9_two_moves_to_the_same_topic_both_succeed(place, gate):
    with gate:
        moves = [gevent.spawn(place.move, place.ids[0], place.b, "all") for _ in range(2)]
        both_wait(place)
    gevent.joinall(moves, raise_error=True)
    assert sorted(each.value.affected_count for each in moves) == [0, 5]


def test_10_an_edit_that_expects_the_version_before_a_move_conflicts(place):
    place.move(place.ids[0], place.b)
    with pytest.raises(wire.VersionConflict):
        place.hub.patch_message(place.ids[0], wire.EditMessage("x", 1), place.who)
    place.hub.patch_message(place.ids[0], wire.EditMessage("x", 2), place.who)
    with pytest.raises(wire.VersionConflict):
        place.move(place.ids[0], place.c, version=2)


def test_a_message_sent_while_its_topic_moves_is_in_one_of_both(place):
    def send(number):
        return place.send(place.a, f"new {number}")

    sending = [gevent.spawn(send, number) for number in range(10)]
    moving = gevent.spawn(place.move, place.ids[0], place.b, "all")
    sending += [gevent.spawn(send, number) for number in range(10, 20)]
    gevent.joinall([moving, *sending], raise_error=True)
    assert len(place.inside(place.a)) + len(place.inside(place.b)) == 25
    assert len(place.inside(place.b)) == moving.value.affected_count
    versions = dict(place.house.rows("SELECT id, version FROM messages"))
    assert {versions[each] for each in place.inside(place.b)} == {2}
    assert {versions[each] for each in place.inside(place.a)} <= {1}


def test_ids_that_do_not_sort_are_moved_by_the_order_of_their_rows(new_house):
    house = new_house()
    with closing(sqlite3.connect(house.path)) as connection, connection:
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('x_id_order', 'rowid')")
    house.reopen()
    place = Place(house, messages=0)
    with closing(sqlite3.connect(house.path)) as connection, connection:
        connection.executemany(
            "INSERT INTO messages (id, topic_id, channel_id, sender, content_raw, created_at)"
            " VALUES (?, ?, ?, 's', 'x', 'now')",
            ((name, place.a, place.channel) for name in ("zzz", "mmm", 'o"dd', "aaa")),
        )
    moved = place.move("mmm", place.b, "later")
    assert place.inside(place.b) == ["mmm", 'o"dd', "aaa"]
    assert [row[5] for row in place.moves()] == ["mmm", 'o"dd', "aaa"]
    assert [json.loads(row[6])["message_id"] for row in place.moves()] == ["mmm", 'o"dd', "aaa"]
    assert moved.affected_count == 3
