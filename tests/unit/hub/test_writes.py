"""State and event are one: every mutation under every fault, versions, tombstones, scopes."""

import json
import sqlite3
from contextlib import closing
from unittest.mock import Mock

import gevent
import msgspec
import pytest

from appliance.hub import events, wire
from appliance.kernel import idempotency
from appliance.kernel.auth import Principal
from appliance.kernel.errors import KeyReused, Unavailable
from appliance.kernel.idempotency import Reply


@pytest.fixture
def place(house):
    """A channel, a topic, a message."""
    hub, who = house.hub, house.alice
    channel = json.loads(hub.create_channel(wire.CreateChannel("general"), who).body)["channel"]
    topic = wire.CreateTopic(channel["id"], "first")
    topic = json.loads(hub.create_topic(topic, who).body)["topic"]
    hub.create_topic(wire.CreateTopic(channel["id"], "elsewhere"), who)
    message = wire.CreateMessage(topic["id"], "alice", "hello")
    message = json.loads(hub.create_message(message, who).body)["message"]
    return channel["id"], topic["id"], message["id"]


def verbs(house, place):
    """Every mutation there is, ready to be called with an idempotency key."""
    hub, who = house.hub, house.alice
    channel_id, topic_id, message_id = place
    edit, delete = wire.EditMessage("changed"), wire.DeleteMessage("alice")
    message = wire.CreateMessage(topic_id, "alice", "again")
    ((target,),) = house.rows("SELECT id FROM topics WHERE title = 'elsewhere'")
    return {
        "create_channel": lambda key: hub.create_channel(wire.CreateChannel("new"), who, key),
        "create_topic": lambda key: hub.create_topic(wire.CreateTopic(channel_id, "n"), who, key),
        "rename_topic": lambda key: hub.rename_topic(topic_id, wire.RenameTopic("n"), who, key),
        "create_message": lambda key: hub.create_message(message, who, key),
        "edit_message": lambda key: hub.patch_message(message_id, edit, who, key),
        "delete_message": lambda key: hub.patch_message(message_id, delete, who, key),
        "move_message": lambda key: hub.patch_message(
            message_id, wire.MoveMessage(target, "all"), who, key
        ),
        "add_attachment": lambda key: hub.add_attachment(
            topic_id, wire.AddAttachment("note", {"a": 1}), who, key
        ),
        "create_messages": lambda key: hub.create_messages(
            [message] * 3, who, [key and f"{key}-{n}" for n in range(3)]
        ),
    }


VERBS = [
    "create_channel", "create_topic", "rename_topic", "create_message", "edit_message",
    "delete_message", "move_message", "add_attachment", "create_messages",
]  # fmt: skip


def failing(call, key=None):
    """Calls; True if what was asked for was refused or failed as a whole."""
    try:
        results = call(key)
    except (Unavailable, sqlite3.Error):
        return True
    results = results if isinstance(results, list) else [results]
    return not any(isinstance(result, Reply) for result in results)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("code", ["SQLITE_FULL", "SQLITE_BUSY", "SQLITE_IOERR_WRITE"])
def test_a_failing_commit_leaves_neither_row_nor_event(house, place, verb, code):
    before, told = house.everything(), len(house.told)
    failure = sqlite3.OperationalError("injected")
    failure.sqlite_errorname = code
    house.runner.failure = failure
    assert failing(verbs(house, place)[verb])
    house.runner.failure = None
    assert house.everything() == before
    assert len(house.told) == told, "nobody hears of what did not happen"
    house.clock.pass_seconds(5)
    assert not failing(verbs(house, place)[verb]), "and it goes on by itself"


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("table", ["events", "x_idempotency"])
@pytest.mark.parametrize("resolution", ["ABORT", "ROLLBACK"])
def test_an_error_behind_the_row_takes_the_row_back(house, place, verb, table, resolution):
    """The trigger stands for whatever can go wrong between the two inserts."""
    before, told = house.everything(), len(house.told)
    trigger(house, f"BEFORE INSERT ON {table} BEGIN SELECT RAISE({resolution}, 'fault'); END")
    assert failing(verbs(house, place)[verb], "key-1")
    assert house.everything() == before
    assert len(house.told) == told
    untrigger(house)
    assert not failing(verbs(house, place)[verb], "key-1"), "the key was not used up"


def test_one_item_of_a_batch_fails_alone_and_whole(house, place):
    trigger(
        house,
        "BEFORE INSERT ON events WHEN new.data_json LIKE '%poison%'"
        " BEGIN SELECT RAISE(ABORT, 'fault'); END",
    )
    contents = ["a", "poison", "b"]
    writing = [
        gevent.spawn(
            house.hub.create_message, wire.CreateMessage(place[1], "s", content), house.alice
        )
        for content in contents
    ]
    gevent.joinall(writing)
    assert [one.successful() for one in writing] == [True, False, True]
    stored = [row[0] for row in house.rows("SELECT content_raw FROM messages ORDER BY id")]
    assert stored == ["hello", "a", "b"]
    assert_log_explains_state(house)


def trigger(house, action):
    with closing(sqlite3.connect(house.path)) as connection, connection:
        connection.execute(f"CREATE TRIGGER fault {action}")


def untrigger(house):
    with closing(sqlite3.connect(house.path)) as connection, connection:
        connection.execute("DROP TRIGGER fault")


def assert_log_explains_state(house):
    """Messages and their events tell the same story."""
    state = {}
    for name, entity, data in house.rows("SELECT name, entity_id, data_json FROM events"):
        data = json.loads(data)
        if name == "message.created":
            assert entity not in state
            state[entity] = (data["message"]["content_raw"], 1, None)
        elif name == "message.edited":
            old = state[entity]
            assert (data["old_content"], data["version"]) == (old[0], old[1] + 1)
            state[entity] = (data["new_content"], data["version"], None)
        elif name == "message.deleted":
            assert data["version"] == state[entity][1] + 1
            state[entity] = (wire.TOMBSTONE, data["version"], data["deleted_by"])
    stored = house.rows("SELECT id, content_raw, version, deleted_by FROM messages")
    assert {row[0]: row[1:] for row in stored} == state


# -- versions ------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [wire.EditMessage("x", 7), wire.DeleteMessage("bob", 7)])
def test_another_version_than_expected_changes_nothing(house, place, command):
    before = house.everything()
    with pytest.raises(wire.VersionConflict) as refused:
        house.hub.patch_message(place[2], command, house.alice)
    error = refused.value
    assert error.details == {"message_id": place[2], "expected": 7, "current": 1}
    assert error.extra == {"current_version": 1}
    assert house.everything() == before


def test_of_many_edits_that_expect_the_same_version_one_wins(house, place):
    edits = [
        gevent.spawn(house.hub.patch_message, place[2], wire.EditMessage(f"{n}", 1), house.alice)
        for n in range(20)
    ]
    gevent.joinall(edits)
    won = [edit.value for edit in edits if edit.successful()]
    assert len(won) == 1
    lost = [edit.exception for edit in edits if not edit.successful()]
    assert {type(error) for error in lost} == {wire.VersionConflict}
    assert {error.extra["current_version"] for error in lost} == {2}
    assert json.loads(won[0].body)["message"]["version"] == 2
    assert len(house.rows("SELECT 1 FROM events WHERE name = 'message.edited'")) == 1


def test_edits_that_expect_nothing_all_win_and_the_last_one_stands(house, place):
    edits = [
        gevent.spawn(house.hub.patch_message, place[2], wire.EditMessage(f"{n}"), house.alice)
        for n in range(50)
    ]
    gevent.joinall(edits, raise_error=True)
    replies = sorted(
        (body["event_id"], body["message"]["version"], body["message"]["content_raw"])
        for body in (json.loads(edit.value.body) for edit in edits)
    )
    assert [version for _, version, _ in replies] == list(range(2, 52))
    ((content, version),) = house.rows("SELECT content_raw, version FROM messages")
    assert (version, content) == replies[-1][1:]
    assert_log_explains_state(house)


def test_edits_and_deletes_racing_leave_a_story_that_holds(house, place):
    hub, who, message_id = house.hub, house.alice, place[2]
    commands = [wire.EditMessage(f"{n}") for n in range(10)]
    commands[5:5] = [wire.DeleteMessage("bob"), wire.DeleteMessage("carol")]
    racing = [gevent.spawn(hub.patch_message, message_id, command, who) for command in commands]
    gevent.joinall(racing)
    for edit in racing:
        assert edit.successful() or isinstance(edit.exception, wire.CannotEditDeleted)
    assert len(house.rows("SELECT 1 FROM events WHERE name = 'message.deleted'")) == 1
    assert_log_explains_state(house)


# -- tombstones ----------------------------------------------------------------------------


def test_versions_end_where_the_database_can_count_no_further(house, place):
    hub, who, (_, topic_id, message_id) = house.hub, house.alice, place
    ((target,),) = house.rows("SELECT id FROM topics WHERE title = 'elsewhere'")
    with closing(sqlite3.connect(house.path)) as connection, connection:
        connection.execute("UPDATE messages SET version = ?", (2**63 - 2,))
    reply = hub.patch_message(message_id, wire.EditMessage("the last"), who)
    assert json.loads(reply.body)["message"]["version"] == 2**63 - 1
    before = house.everything()
    for command in (
        wire.EditMessage("one too many"),
        wire.DeleteMessage("bob"),
        wire.MoveMessage(target, "one"),
        wire.MoveMessage(target, "all"),
    ):
        with pytest.raises(wire.VersionsUsedUp):
            hub.patch_message(message_id, command, who)
    assert house.everything() == before
    stays = hub.patch_message(message_id, wire.MoveMessage(topic_id, "one"), who)
    assert json.loads(stays.body) == {"affected_count": 0, "event_ids": []}


def test_a_deleted_message_is_a_tombstone(house, place):
    house.clock.pass_seconds(1)
    reply = house.hub.patch_message(place[2], wire.DeleteMessage("bob", 1), house.alice)
    body = msgspec.json.decode(reply.body, type=wire.MessageChanged)
    (row,) = house.rows(
        "SELECT content_raw, version, deleted_at, deleted_by, edited_at FROM messages"
    )
    assert row == (wire.TOMBSTONE, 2, body.message.deleted_at, "bob", body.message.edited_at)
    assert row[2] is not None
    events = house.rows("SELECT event_id, data_json FROM events WHERE name = 'message.deleted'")
    data = {"message_id": place[2], "deleted_by": "bob", "version": 2, "principal": "alice"}
    assert events == [(body.event_id, json.dumps(data, separators=(",", ":")))]


def test_deleting_it_again_is_a_success_without_an_event(house, place):
    house.hub.patch_message(place[2], wire.DeleteMessage("bob"), house.alice)
    before = house.everything()
    for command in (wire.DeleteMessage("carol"), wire.DeleteMessage("bob", 2)):
        reply = house.hub.patch_message(place[2], command, house.alice)
        body = json.loads(reply.body)
        assert (reply.status, body["event_id"]) == (200, None)
        assert body["message"]["deleted_by"] == "bob"
    with pytest.raises(wire.VersionConflict):
        house.hub.patch_message(place[2], wire.DeleteMessage("bob", 1), house.alice)
    assert house.everything() == before


def test_a_tombstone_cannot_be_edited(house, place):
    house.hub.patch_message(place[2], wire.DeleteMessage("bob"), house.alice)
    before = house.everything()
    for command in (wire.EditMessage("back"), wire.EditMessage("back", 2)):
        with pytest.raises(wire.CannotEditDeleted):
            house.hub.patch_message(place[2], command, house.alice)
    assert house.everything() == before


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM messages",
        "DELETE FROM events",
        "UPDATE events SET name = 'x'",
    ],
)
def test_the_database_itself_refuses_to_forget(house, place, statement):
    before = house.everything()
    with (
        closing(sqlite3.connect(house.path)) as connection,
        pytest.raises(sqlite3.IntegrityError),
    ):
        connection.execute(statement)
    assert house.everything() == before


# -- time --------------------------------------------------------------------------------


def test_a_clock_that_goes_back_disturbs_no_order(house, place):
    hub, who = house.hub, house.alice
    for seconds in (0, 3600, -7200, 365 * 86400, -366 * 86400, 0):
        house.clock.ms += seconds * 1000
        hub.create_message(wire.CreateMessage(place[1], "s", f"{seconds}"), who)
    rows = house.rows("SELECT entity_id FROM events WHERE name = 'message.created' ORDER BY 1")
    in_order = house.rows("SELECT entity_id FROM events WHERE name = 'message.created'")
    assert rows == in_order, "ids rise with event ids, whatever the clock says"
    ids = [row[0] for row in in_order]
    page = hub.page_messages(wire.MessagesQuery(topic_id=place[1]), who)
    assert [message.id for message in page.messages] == ids[::-1]
    (head,) = house.rows("SELECT max(event_id) FROM events")
    assert house.feed.head == head[0]


def test_an_event_without_a_scope_is_not_written(house):
    def unheard(tx):
        return events.append(tx, "message.created", ("message", "m"), b"{}", channel_id=None)

    with pytest.raises(ValueError, match="no scope"):
        house.store.write(unheard)
    assert house.rows("SELECT count(*) FROM events") == [(0,)]


SCOPES = {
    "channel.created": ("channel_id",),
    "topic.created": ("channel_id", "topic_id"),
    "topic.renamed": ("channel_id", "topic_id"),
    "message.created": ("channel_id", "topic_id"),
    "message.edited": ("channel_id", "topic_id"),
    "message.deleted": ("channel_id", "topic_id"),
    "message.moved_topic": ("channel_id", "topic_id", "topic_id2"),
    "topic.attachment_added": ("channel_id", "topic_id"),
}


def test_every_event_of_every_mutation_is_in_the_scopes_it_belongs_to(house, place):
    channel_id, topic_id, _ = place
    ((target,),) = house.rows("SELECT id FROM topics WHERE title = 'elsewhere'")
    made = verbs(house, place)
    renamed = wire.RenameTopic("another title")
    made["rename_topic"] = lambda _key: house.hub.rename_topic(topic_id, renamed, house.alice)
    for verb in VERBS:
        made[verb](None)
    own = {"channel_id": channel_id, "topic_id": topic_id, "topic_id2": target}
    told = house.rows(
        "SELECT name, scope_channel_id, scope_topic_id, scope_topic_id2, entity_id FROM events"
    )
    assert {row[0] for row in told} == set(SCOPES)
    for name, *scope, entity_id in told:
        for place_of, value in zip(own, scope, strict=True):
            assert (value is not None) == (place_of in SCOPES[name]), (name, place_of)
            made_here = entity_id not in (channel_id, topic_id) and name.endswith("created")
            if value is not None and not (made_here and not name.startswith("message")):
                assert value == own[place_of], (name, place_of)


# -- names -------------------------------------------------------------------------------


def test_a_taken_name_is_refused_and_says_who_has_it(house, place):
    before = house.everything()
    with pytest.raises(wire.NameTaken) as taken:
        house.hub.create_channel(wire.CreateChannel("general"), house.alice)
    assert taken.value.details == {"channel_id": place[0]}
    with pytest.raises(wire.NameTaken) as taken:
        house.hub.create_topic(wire.CreateTopic(place[0], "first"), house.alice)
    assert taken.value.details == {"topic_id": place[1]}
    assert house.everything() == before


def test_of_many_creating_the_same_name_one_wins(house, place):
    making = [
        gevent.spawn(house.hub.create_topic, wire.CreateTopic(place[0], "same"), house.alice)
        for _ in range(20)
    ]
    gevent.joinall(making)
    assert sum(one.successful() for one in making) == 1
    assert len(house.rows("SELECT 1 FROM events WHERE name = 'topic.created'")) == 3


def test_renaming_tells_both_titles(house, place):
    reply = house.hub.rename_topic(place[1], wire.RenameTopic("second"), house.alice)
    body = json.loads(reply.body)
    ((data,),) = house.rows("SELECT data_json FROM events WHERE event_id = ?", body["event_id"])
    told = {"topic_id": place[1], "old_title": "first", "new_title": "second"}
    told["principal"] = "alice"
    assert json.loads(data) == told
    assert body["topic"]["title"] == "second"


# -- keys ----------------------------------------------------------------------------------


def message(place, content="once"):
    return wire.CreateMessage(place[1], "alice", content)


def test_a_key_gives_the_first_answer_again_byte_for_byte(house, place):
    first = house.hub.create_message(message(place), house.alice, "k")
    house.clock.pass_seconds(100)
    again = house.hub.create_message(message(place), house.alice, "k")
    assert (again.status, again.body) == (first.status, first.body)
    assert (first.replayed, again.replayed) == (False, True)
    assert len(house.rows("SELECT 1 FROM messages WHERE content_raw = 'once'")) == 1


def test_a_key_with_another_body_is_refused(house, place):
    house.hub.create_message(message(place), house.alice, "k")
    before = house.everything()
    with pytest.raises(KeyReused):
        house.hub.create_message(message(place, "twice"), house.alice, "k")
    assert house.everything() == before


def test_a_key_belongs_to_its_principal_and_its_route(house, place):
    hub = house.hub
    hub.create_message(message(place), house.alice, "k")
    assert not hub.create_message(message(place), house.bob, "k").replayed
    assert not hub.create_channel(wire.CreateChannel("other"), house.alice, "k").replayed
    assert len(house.rows("SELECT 1 FROM messages WHERE content_raw = 'once'")) == 2


def test_a_refused_request_does_not_use_up_its_key(house, place):
    nowhere = wire.CreateMessage("topic_nowhere", "alice", "x")
    with pytest.raises(wire.NoSuchTopic):
        house.hub.create_message(nowhere, house.alice, "k")
    assert house.hub.create_message(message(place), house.alice, "k").status == 201
    with pytest.raises(wire.VersionConflict):
        house.hub.patch_message(place[2], wire.EditMessage("x", 9), house.alice, "e")
    assert house.hub.patch_message(place[2], wire.EditMessage("x", 1), house.alice, "e")


def test_a_key_that_is_still_running_is_told_to_come_back(house, place, gate):
    with gate:
        first = gevent.spawn(house.hub.create_message, message(place), house.alice, "k")
        gevent.sleep(0)
        with pytest.raises(wire.KeyInProgress) as busy:
            house.hub.create_message(message(place), house.alice, "k")
        assert busy.value.retry_after > 0
        other = gevent.spawn(house.hub.create_message, message(place), house.bob, "k")
        gevent.sleep(0)
    assert first.get(10).status == 201
    assert other.get(10).status == 201
    assert house.hub.create_message(message(place), house.alice, "k").replayed


def test_a_waiter_that_leaves_frees_its_key_and_loses_nothing(house, place, gate):
    with gate:
        first = gevent.spawn(house.hub.create_message, message(place), house.alice, "k")
        gevent.sleep(0)
        first.kill()
        again = gevent.spawn(house.hub.create_message, message(place), house.alice, "k")
        gevent.sleep(0)
    assert again.get(10).replayed
    assert len(house.rows("SELECT 1 FROM messages WHERE content_raw = 'once'")) == 1


def test_items_of_a_batch_share_their_keys_with_single_sends(house, place):
    hub, who = house.hub, house.alice
    first = hub.create_message(message(place), who, "k1")
    item = wire.BatchMessage(place[1], "alice", "once")
    fresh = wire.BatchMessage(place[1], "alice", "fresh")
    results = hub.create_messages([item, fresh, item, item], who, ["k1", "k2", None, "k1"])
    assert (results[0].body, results[0].replayed) == (first.body, True)
    assert not results[1].replayed
    assert not results[2].replayed
    assert isinstance(results[3], wire.KeyInProgress), "twice in one batch: it is running"
    again = hub.create_message(message(place, "fresh"), who, "k2")
    assert (again.body, again.replayed) == (results[1].body, True)
    assert isinstance(hub.create_messages([item], who, ["k2"])[0], KeyReused)


def test_a_batch_cut_off_between_its_items_frees_their_keys(house, place):
    """A limited token's topics are looked up item by item, and its client may leave then."""
    limited = Principal(
        "carol", "carol", frozenset({"hub:post"}), {"hub:post": frozenset({place[0]})}
    )
    item = wire.BatchMessage(place[1], "carol", "once")
    house.hub.access.topic = Mock(side_effect=[None, gevent.GreenletExit])
    with pytest.raises(gevent.GreenletExit):
        house.hub.create_messages([item, item], limited, ["k1", "k2"])
    del house.hub.access.topic
    assert house.hub.create_messages([item], limited, ["k1"])[0].status == 201


def test_old_keys_are_forgotten_a_piece_at_a_time(house, place):
    for n in range(10):
        house.hub.create_message(message(place), house.alice, f"k{n}")
        house.clock.pass_seconds(1)
    before = house.clock.now_ms() - 5_500
    assert house.store.write(idempotency.forget_keys, before, 3) == 3
    assert house.store.write(idempotency.forget_keys, before, 3) == 2
    assert house.store.write(idempotency.forget_keys, before, 3) == 0
    left = {row[0] for row in house.rows("SELECT key FROM x_idempotency")}
    assert left == {"k5", "k6", "k7", "k8", "k9"}
