"""State and event are one: every mutation under every fault, versions, tombstones, scopes."""

import json
import sqlite3

import gevent
import pytest

from appliance.hub import wire
from appliance.kernel import idempotency
from appliance.kernel.errors import KeyReused, Unavailable
from appliance.kernel.idempotency import Reply
from tests.support.database_files import execute


@pytest.fixture
def ids(env, ids):
    """A channel, a topic, a message; and a topic with the title "elsewhere"."""
    env.hub.create_topic(wire.CreateTopic(ids[0], "elsewhere"), env.alice)
    return ids


def verbs(env, ids):
    """Every mutation there is, ready to be called with an idempotency key."""
    hub, who = env.hub, env.alice
    channel_id, topic_id, message_id = ids
    edit, delete = wire.EditMessage("changed"), wire.DeleteMessage("alice")
    message = wire.CreateMessage(topic_id, "alice", "again")
    ((target,),) = env.rows("SELECT id FROM topics WHERE title = 'elsewhere'")
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
    """Calls; True if the whole call was refused or failed."""
    try:
        results = call(key)
    except (Unavailable, sqlite3.Error):
        return True
    results = results if isinstance(results, list) else [results]
    return not any(isinstance(result, Reply) for result in results)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("code", ["SQLITE_FULL", "SQLITE_BUSY", "SQLITE_IOERR_WRITE"])
def test_a_failing_commit_leaves_neither_row_nor_event(env, ids, verb, code):
    before, published = env.everything(), len(env.published)
    failure = sqlite3.OperationalError("injected")
    failure.sqlite_errorname = code
    env.runner.failure = failure
    assert failing(verbs(env, ids)[verb])
    env.runner.failure = None
    assert env.everything() == before
    assert len(env.published) == published, "a failed change is not published"
    env.clock.pass_seconds(5)
    assert not failing(verbs(env, ids)[verb]), "and it goes on by itself"


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("table", ["events", "x_idempotency"])
@pytest.mark.parametrize("resolution", ["ABORT", "ROLLBACK"])
def test_error_after_the_row_rolls_it_back(env, ids, verb, table, resolution):
    """The trigger stands for whatever can go wrong between the two inserts."""
    before, published = env.everything(), len(env.published)
    fault = f"BEFORE INSERT ON {table} BEGIN SELECT RAISE({resolution}, 'fault'); END"
    execute(env.path, f"CREATE TRIGGER fault {fault}")
    assert failing(verbs(env, ids)[verb], "key-1")
    assert env.everything() == before
    assert len(env.published) == published
    execute(env.path, "DROP TRIGGER fault")
    assert not failing(verbs(env, ids)[verb], "key-1"), "the key was not used up"


def assert_log_explains_state(env):
    """Messages and their events agree."""
    state = {}
    for name, entity, data in env.rows("SELECT name, entity_id, data_json FROM events"):
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
    stored = env.rows("SELECT id, content_raw, version, deleted_by FROM messages")
    assert {row[0]: row[1:] for row in stored} == state


# -- versions ------------------------------------------------------------------------------


def test_one_of_many_edits_of_a_version_succeeds(env, ids):
    edits = [
        gevent.spawn(env.hub.patch_message, ids[2], wire.EditMessage(f"{n}", 1), env.alice)
        for n in range(20)
    ]
    gevent.joinall(edits)
    won = [edit.value for edit in edits if edit.successful()]
    assert len(won) == 1
    lost = [edit.exception for edit in edits if not edit.successful()]
    assert {type(error) for error in lost} == {wire.VersionConflict}
    assert {error.extra["current_version"] for error in lost} == {2}
    assert json.loads(won[0].body)["message"]["version"] == 2
    assert len(env.rows("SELECT 1 FROM events WHERE name = 'message.edited'")) == 1


def test_unconditional_edits_all_succeed(env, ids):
    edits = [
        gevent.spawn(env.hub.patch_message, ids[2], wire.EditMessage(f"{n}"), env.alice)
        for n in range(50)
    ]
    gevent.joinall(edits, raise_error=True)
    replies = sorted(
        (body["event_id"], body["message"]["version"], body["message"]["content_raw"])
        for body in (json.loads(edit.value.body) for edit in edits)
    )
    assert [version for _, version, _ in replies] == list(range(2, 52))
    ((content, version),) = env.rows("SELECT content_raw, version FROM messages")
    assert (version, content) == replies[-1][1:]
    assert_log_explains_state(env)


def test_concurrent_edits_and_deletes_stay_consistent(env, ids):
    hub, who, message_id = env.hub, env.alice, ids[2]
    commands = [wire.EditMessage(f"{n}") for n in range(10)]
    commands[5:5] = [wire.DeleteMessage("bob"), wire.DeleteMessage("carol")]
    racing = [gevent.spawn(hub.patch_message, message_id, command, who) for command in commands]
    gevent.joinall(racing)
    for edit in racing:
        assert edit.successful() or isinstance(edit.exception, wire.CannotEditDeleted)
    assert len(env.rows("SELECT 1 FROM events WHERE name = 'message.deleted'")) == 1
    assert_log_explains_state(env)


# -- tombstones ----------------------------------------------------------------------------


def test_exhausted_version_number_is_refused(env, ids):
    hub, who, (_, topic_id, message_id) = env.hub, env.alice, ids
    ((target,),) = env.rows("SELECT id FROM topics WHERE title = 'elsewhere'")
    execute(env.path, "UPDATE messages SET version = ?", 2**63 - 2)
    reply = hub.patch_message(message_id, wire.EditMessage("the last"), who)
    assert json.loads(reply.body)["message"]["version"] == 2**63 - 1
    before = env.everything()
    for command in (
        wire.EditMessage("one too many"),
        wire.DeleteMessage("bob"),
        wire.MoveMessage(target, "one"),
        wire.MoveMessage(target, "all"),
    ):
        with pytest.raises(wire.VersionsUsedUp):
            hub.patch_message(message_id, command, who)
    assert env.everything() == before
    stays = hub.patch_message(message_id, wire.MoveMessage(topic_id, "one"), who)
    assert json.loads(stays.body) == {"affected_count": 0, "event_ids": []}


@pytest.mark.parametrize(
    "statement", ["DELETE FROM messages", "DELETE FROM events", "UPDATE events SET name = 'x'"]
)
def test_database_refuses_to_delete_messages_and_events(env, ids, statement):
    before = env.everything()
    with pytest.raises(sqlite3.IntegrityError):
        execute(env.path, statement)
    assert env.everything() == before


# -- time --------------------------------------------------------------------------------


def test_clock_set_back_keeps_the_order(env, ids):
    hub, who = env.hub, env.alice
    for seconds in (0, 3600, -7200, 365 * 86400, -366 * 86400, 0):
        env.clock.ms += seconds * 1000
        hub.create_message(wire.CreateMessage(ids[1], "s", f"{seconds}"), who)
    rows = env.rows("SELECT entity_id FROM events WHERE name = 'message.created' ORDER BY 1")
    in_order = env.rows("SELECT entity_id FROM events WHERE name = 'message.created'")
    assert rows == in_order, "ids rise with event ids, whatever the clock says"
    message_ids = [row[0] for row in in_order]
    page = hub.page_messages(wire.MessagesQuery(topic_id=ids[1]), who)
    assert [message.id for message in page.messages] == message_ids[::-1]
    (head,) = env.rows("SELECT max(event_id) FROM events")
    assert env.feed.head == head[0]


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


def test_every_event_of_every_mutation_is_in_the_scopes_it_belongs_to(env, ids):
    channel_id, topic_id, _ = ids
    ((target,),) = env.rows("SELECT id FROM topics WHERE title = 'elsewhere'")
    made = verbs(env, ids)
    renamed = wire.RenameTopic("another title")
    made["rename_topic"] = lambda _key: env.hub.rename_topic(topic_id, renamed, env.alice)
    for verb in VERBS:
        made[verb](None)
    own = {"channel_id": channel_id, "topic_id": topic_id, "topic_id2": target}
    rows = env.rows(
        "SELECT name, scope_channel_id, scope_topic_id, scope_topic_id2, entity_id FROM events"
    )
    assert {row[0] for row in rows} == set(SCOPES)
    for name, *scope, entity_id in rows:
        for column, value in zip(own, scope, strict=True):
            assert (value is not None) == (column in SCOPES[name]), (name, column)
            made_here = entity_id not in (channel_id, topic_id) and name.endswith("created")
            if value is not None and not (made_here and not name.startswith("message")):
                assert value == own[column], (name, column)


# -- names -------------------------------------------------------------------------------


def test_rename_event_has_both_titles(env, ids):
    reply = env.hub.rename_topic(ids[1], wire.RenameTopic("second"), env.alice)
    body = json.loads(reply.body)
    ((data,),) = env.rows("SELECT data_json FROM events WHERE event_id = ?", body["event_id"])
    renamed = {"topic_id": ids[1], "old_title": "first", "new_title": "second"}
    renamed["principal"] = "alice"
    assert json.loads(data) == renamed
    assert body["topic"]["title"] == "second"


# -- keys ----------------------------------------------------------------------------------


def message(ids, content="once"):
    return wire.CreateMessage(ids[1], "alice", content)


def test_request_with_a_key_in_use_waits_for_the_first_reply(env, ids, gate):
    with gate:
        first, again, other = (
            gevent.spawn(env.hub.create_message, message(ids, content), who, "k")
            for content, who in (("once", env.alice), ("once", env.alice), ("once", env.bob))
        )
        changed = gevent.spawn(env.hub.create_message, message(ids, "changed"), env.alice, "k")
        gevent.sleep(0)
    assert first.get(10).status == 201
    assert not first.value.replayed
    assert (again.get(10).body, again.value.replayed) == (first.value.body, True)
    assert not other.get(10).replayed
    with pytest.raises(KeyReused):
        changed.get(10)


def test_cancelled_request_frees_its_key(env, ids, gate):
    with gate:
        first = gevent.spawn(env.hub.create_message, message(ids), env.alice, "k")
        gevent.sleep(0)
        first.kill()
        repeated = gevent.spawn(env.hub.create_message, message(ids), env.alice, "k")
        gevent.sleep(0)
    assert repeated.get(10).replayed
    assert len(env.rows("SELECT 1 FROM messages WHERE content_raw = 'once'")) == 1


def test_key_that_occurs_twice_in_a_batch_posts_once(env, ids):
    item = wire.BatchMessage(ids[1], "alice", "once")
    first, again = env.hub.create_messages([item, item], env.alice, ["k", "k"])
    assert (again.body, first.replayed, again.replayed) == (first.body, False, True)


def test_old_keys_are_forgotten_a_piece_at_a_time(env, ids):
    for n in range(10):
        env.hub.create_message(message(ids), env.alice, f"k{n}")
        env.clock.pass_seconds(1)
    before = env.clock.now_ms() - 5_500
    assert env.store.write(idempotency.prune_keys, before, 3) == 3
    assert env.store.write(idempotency.prune_keys, before, 3) == 2
    assert env.store.write(idempotency.prune_keys, before, 3) == 0
    left = {row[0] for row in env.rows("SELECT key FROM x_idempotency")}
    assert left == {"k5", "k6", "k7", "k8", "k9"}
