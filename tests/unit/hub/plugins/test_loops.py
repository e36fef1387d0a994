"""The ten edge cases of derived pipelines (hub spec §4.6), and gate I."""

import json
import sqlite3

import msgspec

from appliance.hub import queries as hub_queries
from appliance.hub import wire as hub_wire
from appliance.hub import writes as hub_writes
from appliance.hub.plugins import loops, queries, wire, writes
from tests.unit.hub.conftest import FaultyRunner
from tests.unit.hub.plugins.conftest import MARKS


def message_of(plugin_env, message_id):
    return plugin_env.store.read(queries.messages, [message_id])[message_id]


def test_enrichment_is_stored_and_published(plugin_env):
    plugin_env.marks()
    message = plugin_env.post("one !two three !four")
    plugin_env.rounds()

    assert plugin_env.words(message) == plugin_env.listed(message) == ["!two", "!four"]
    [published] = plugin_env.published()
    assert published["message_id"] == message
    assert published["plugin"] == "marks"
    assert published["version"] == 1
    assert published["enrichments"][0] == {
        "kind": "mark", "span": {"start": 4, "end": 8}, "data": {"word": "!two"},
    }  # fmt: skip
    scopes = plugin_env.env.rows(
        "SELECT scope_channel_id, scope_topic_id, entity_type, entity_id FROM events"
        " WHERE name = 'message.enriched'"
    )
    assert scopes == [(plugin_env.channel_id, plugin_env.topic_id, "message", message)]
    assert plugin_env.env.published[-1].name == "message.enriched"  # the feed has it too


def test_message_without_matches_writes_nothing(plugin_env):
    plugin_env.marks()
    plugin_env.post("nothing here")
    plugin_env.rounds()
    assert plugin_env.published() == []
    assert plugin_env.env.rows("SELECT * FROM x_enrichment_sets") == []


ECHO = """
def enrich(message, config):
    data = {"message": dict(message), "config": dict(config)}
    return [{"kind": "echo", "span": {"start": 0, "end": 1}, "data": data}]
"""


def test_plugin_gets_current_message_and_its_settings(plugin_env):
    """All fields of the contract (hub spec §0.9) and the version, for a new text and an edited."""
    plugin_env.use(("echo", "linkifier", ECHO))
    message = plugin_env.post("first")
    plugin_env.rounds()
    plugin_env.edit(message, "second")
    plugin_env.clock.pass_seconds(2)
    plugin_env.rounds()
    published = sorted(plugin_env.published(), key=version)
    data = [row["enrichments"][0]["data"] for row in published]
    [(created_at,)] = plugin_env.env.rows("SELECT created_at FROM messages")
    always = {
        "id": message, "sender": "ci", "topic_id": plugin_env.topic_id,
        "channel_id": plugin_env.channel_id, "created_at": created_at,
    }  # fmt: skip
    assert [row["message"] for row in data] == [
        {**always, "content_raw": "first", "version": 1},
        {**always, "content_raw": "second", "version": 2},
    ]
    assert data[0]["config"] == {"gate": str(plugin_env.gate)}


def test_attachment_is_added_once_with_its_source(plugin_env):
    plugin_env.marks("extractor")
    first = plugin_env.post("!same")
    plugin_env.post("!same again")
    plugin_env.rounds()
    assert plugin_env.attached() == ["!same"]
    [published] = plugin_env.published("topic.attachment_added")
    assert published["attachment"]["source_message_id"] == first


# -- 1: ABA ------------------------------------------------------------------------------------


def test_1_restored_text_is_another_version(plugin_env):
    plugin_env.marks()
    message = plugin_env.post("wait !hello")
    running = plugin_env.begin()
    plugin_env.until_asked()
    plugin_env.edit(message, "goodbye")
    plugin_env.edit(message, "wait !hello")
    counts = plugin_env.finish(running)

    assert counts["stale"] == 1
    assert plugin_env.published() == []
    plugin_env.clock.pass_seconds(2)
    plugin_env.rounds()
    [published] = plugin_env.published()
    assert published["version"] == 3
    assert plugin_env.words(message) == ["!hello"]


# -- 2: time of check, time of use -------------------------------------------------------------


def test_2_check_and_store_are_one_transaction(plugin_env):
    """An edit that shares the batch comes before or after the whole of it, never in between."""
    plugin_env.marks()
    plugin = plugin_env.runner().plugin
    early, late = plugin_env.post("!early"), plugin_env.post("!late")
    edit = hub_wire.EditMessage("changed")
    before = plugin.work(message_of(plugin_env, early))
    after = plugin.work(message_of(plugin_env, late))
    outcomes = plugin_env.store.write_many(
        [
            (hub_writes.edit_message, (early, edit, None, None)),
            before,
            after,
            (hub_writes.edit_message, (late, edit, None, None)),
        ]
    )
    assert [outcomes[1].unwrap(), outcomes[2].unwrap()] == [("stale", 0), ("stored", 1)]
    assert plugin_env.words(early) == []
    names = plugin_env.env.rows("SELECT name FROM events ORDER BY event_id DESC LIMIT 3")
    assert [name for (name,) in names] == ["message.edited", "message.enriched", "message.edited"]


# -- 3: several plugins at once ----------------------------------------------------------------


def test_3_plugins_work_on_one_message_at_the_same_time(plugin_env):
    plugin_env.use(
        ("link", "linkifier", MARKS), ("pull", "extractor", MARKS), ("pull2", "extractor", MARKS)
    )
    message = plugin_env.post("wait !word")
    running = [plugin_env.begin(name) for name in ("link", "pull", "pull2")]
    for name in ("link", "pull", "pull2"):
        plugin_env.until_asked(name)
    for row in running:
        assert plugin_env.finish(row)["done"] == 1
    assert plugin_env.words(message) == ["!word"]
    assert plugin_env.attached() == ["!word"]
    assert len(plugin_env.published("topic.attachment_added")) == 1


def test_3_linkifiers_do_not_change_rows_of_each_other(plugin_env):
    plugin_env.use(("a", "linkifier", MARKS), ("b", "linkifier", MARKS))
    message = plugin_env.post("!word")
    plugin_env.rounds()
    plugin_env.edit(message, "other")
    plugin_env.clock.pass_seconds(2)
    plugin_env.round("a")
    assert plugin_env.words(message) == ["!word"]  # b's, which has not seen the edit yet
    assert plugin_env.listed(message) == []
    plugin_env.round("b")
    assert plugin_env.words(message) == []


# -- 4: what depends on the world outside ------------------------------------------------------


TITLES = """
def extract(message, config):
    with open(config["gate"]) as file:
        title = file.read()
    return [{"kind": "page", "value_json": {"title": title}, "dedupe_key": "page"}]
"""


def test_4_attachment_keeps_its_first_value(plugin_env):
    plugin_env.gate.write_text("Old title")
    plugin_env.use(("titles", "extractor", TITLES))
    plugin_env.post()
    plugin_env.rounds()
    plugin_env.gate.write_text("New title")
    plugin_env.ask("re_enrich", wire.ReEnrich(0))
    plugin_env.rounds()
    [(value,)] = plugin_env.env.rows("SELECT value_json FROM topic_attachments")
    assert json.loads(value) == {"title": "Old title"}
    assert len(plugin_env.published("topic.attachment_added")) == 1


# -- 5: a tombstone ----------------------------------------------------------------------------


def test_5_message_deleted_during_work_gets_no_enrichment(plugin_env):
    plugin_env.marks()
    message = plugin_env.post("wait !gone")
    running = plugin_env.begin()
    plugin_env.until_asked()
    plugin_env.delete(message)
    assert plugin_env.finish(running)["stale"] == 1
    plugin_env.rounds()
    assert plugin_env.words(message) == []
    assert plugin_env.published() == []
    assert plugin_env.runner().pending == 0


def test_5_tombstone_is_not_given_to_plugins(plugin_env):
    plugin_env.marks()
    plugin_env.delete(plugin_env.post("!gone"))
    plugin_env.rounds()
    assert plugin_env.runner().plugin.done == 0


def test_5_enrichments_of_a_deleted_message_are_not_listed(plugin_env):
    plugin_env.marks()
    message = plugin_env.post("!word")
    plugin_env.rounds()
    plugin_env.delete(message)
    plugin_env.rounds()
    assert plugin_env.words(message) == ["!word"]
    assert plugin_env.listed(message) == []


# -- 6: too slow -------------------------------------------------------------------------------


def test_6_timed_out_message_is_not_retried(plugin_env):
    plugin_env.marks(timeout_seconds=0.3)
    slow, quick = plugin_env.post("wait !slow"), plugin_env.post("!quick")
    began = plugin_env.begin()
    posted = plugin_env.post("!later")  # writing goes on meanwhile
    began.join(20)
    plugin_env.rounds()
    assert plugin_env.words(slow) == []
    assert plugin_env.words(quick) == ["!quick"]
    assert plugin_env.words(posted) == ["!later"]
    assert plugin_env.runner().plugin.failed == 1
    [line] = [fields for _, what, fields in plugin_env.log.lines if what == "plugin failed"]
    assert (line["outcome"], line["message_id"]) == ("timeout", slow)
    assert plugin_env.runner().lag == 0


# -- 7: edited between the output and the commit -----------------------------------------------


def test_7_output_for_an_old_text_is_dropped(plugin_env):
    plugin_env.marks()
    message = plugin_env.post("!hello")
    function, args = plugin_env.runner().plugin.work(message_of(plugin_env, message))
    plugin_env.edit(message, "!goodbye")
    assert plugin_env.store.write(function, *args) == ("stale", 0)
    plugin_env.clock.pass_seconds(2)
    plugin_env.rounds()
    assert plugin_env.words(message) == plugin_env.listed(message) == ["!goodbye"]
    assert [published["version"] for published in plugin_env.published()] == [2]


# -- 8: moved to another topic -----------------------------------------------------------------


def test_8_message_moved_during_work_is_processed_again(plugin_env):
    plugin_env.marks("extractor")
    other = plugin_env.topic("other")
    message = plugin_env.post("wait !word")
    running = plugin_env.begin()
    plugin_env.until_asked()
    plugin_env.move(message, other)
    assert plugin_env.finish(running)["stale"] == 1
    assert plugin_env.attached() == plugin_env.attached(other) == []
    plugin_env.clock.pass_seconds(2)
    plugin_env.rounds()
    assert plugin_env.attached() == []
    assert plugin_env.attached(other) == ["!word"]


def test_8_attachments_stay_in_the_topic_they_were_found_in(plugin_env):
    plugin_env.marks("extractor")
    other = plugin_env.topic("other")
    message = plugin_env.post("!word")
    plugin_env.rounds()
    plugin_env.move(message, other)
    plugin_env.clock.pass_seconds(2)
    plugin_env.rounds()
    assert plugin_env.attached() == ["!word"]
    assert plugin_env.attached(other) == []


def test_8_enrichments_follow_a_message_that_moves(plugin_env):
    plugin_env.marks()
    message = plugin_env.post("!word")
    plugin_env.rounds()
    plugin_env.move(message, plugin_env.topic("other"))
    plugin_env.rounds()
    assert plugin_env.listed(message) == ["!word"]


# -- 9: a restart ------------------------------------------------------------------------------


def test_9_interrupted_work_is_done_once_after_a_restart(plugin_env):
    plugin_env.marks()
    first = plugin_env.post("!first")
    plugin_env.rounds()
    second = plugin_env.post("wait !second")
    running = plugin_env.begin()
    plugin_env.until_asked()
    running.kill()
    assert not plugin_env.runner().plugin.worker.running  # the process ends with its owner
    assert plugin_env.cursor() < plugin_env.env.feed.head

    plugin_env.gate.touch()
    plugin_env.marks()  # as a start does: new runners on the stored cursor
    plugin_env.rounds()
    assert (plugin_env.words(first), plugin_env.words(second)) == (["!first"], ["!second"])
    assert [published["message_id"] for published in plugin_env.published()] == [first, second]


def test_9_reprocessing_after_a_lost_cursor_changes_nothing(plugin_env, monkeypatch):
    monkeypatch.setattr(loops, "CURSOR_SECONDS", 1e9)
    plugin_env.marks()
    plugin_env.post("the first is stored at once")
    plugin_env.rounds()
    message = plugin_env.post("!word")
    plugin_env.rounds()
    head, before = plugin_env.env.feed.head, plugin_env.env.everything()
    stored = plugin_env.cursor()
    assert stored < head
    for runner in plugin_env.subsystem.runners:  # killed: nothing is flushed
        runner.plugin.stop()
    plugin_env.subsystem = None
    monkeypatch.setattr(loops, "CURSOR_SECONDS", 0.0)
    plugin_env.marks()
    plugin_env.rounds()
    assert plugin_env.runner().plugin.done == 1  # it was looked at again
    assert plugin_env.env.everything() == before
    assert plugin_env.words(message) == ["!word"]


def test_9_refused_write_is_retried_later(plugin_env):
    plugin_env.marks()
    message = plugin_env.post("!word")
    FaultyRunner.failure = sqlite3.OperationalError("full")
    FaultyRunner.failure.sqlite_errorname = "SQLITE_FULL"
    assert plugin_env.round() == {}
    assert plugin_env.runner().plugin.done == 1
    assert plugin_env.round() == {}  # not asked at once
    assert plugin_env.runner().plugin.done == 1
    FaultyRunner.failure = None
    plugin_env.clock.pass_seconds(2)
    plugin_env.rounds()
    assert plugin_env.words(message) == ["!word"]
    assert len(plugin_env.published()) == 1


# -- 10: many edits ----------------------------------------------------------------------------


def test_10_many_edits_are_processed_once(plugin_env):
    plugin_env.marks()
    message = plugin_env.post("!v1")
    for number in range(2, 12):
        plugin_env.edit(message, f"!v{number}")
    plugin_env.round()
    assert plugin_env.words(message) == []  # until edits have stopped
    plugin_env.clock.pass_seconds(0.5)
    plugin_env.edit(message, "!v12")
    plugin_env.clock.pass_seconds(0.6)
    plugin_env.round()
    assert plugin_env.words(message) == []  # the last edit restarted the wait
    plugin_env.clock.pass_seconds(0.5)
    plugin_env.rounds()
    assert plugin_env.words(message) == ["!v12"]
    assert len(plugin_env.published()) == 1
    assert plugin_env.runner().plugin.done == 1


def test_10_continuous_edits_do_not_defer_processing_without_limit(plugin_env, monkeypatch):
    monkeypatch.setattr(loops, "DEBOUNCE_MS_MAX", 3000)
    plugin_env.marks()
    message = plugin_env.post("!v0")
    seen = []
    for number in range(1, 8):
        plugin_env.edit(message, f"!v{number}")
        plugin_env.rounds()
        seen += plugin_env.words(message)
        plugin_env.clock.pass_seconds(0.6)
    assert seen


def test_10_edit_replaces_enrichments(plugin_env):
    plugin_env.marks()
    message = plugin_env.post("!old !stays")
    plugin_env.rounds()
    plugin_env.edit(message, "!stays")
    assert plugin_env.listed(message) == []  # nothing old is shown with a new text
    plugin_env.clock.pass_seconds(2)
    plugin_env.rounds()
    assert plugin_env.words(message) == ["!stays"]
    plugin_env.edit(message, "plain")
    plugin_env.clock.pass_seconds(2)
    plugin_env.rounds()
    assert plugin_env.words(message) == []
    assert [published["enrichments"] for published in sorted(plugin_env.published(), key=version)][
        2
    ] == []


def version(published):
    return published["version"]


# -- gate I ------------------------------------------------------------------------------------


def test_gate_i_each_condition_of_the_check_is_needed(plugin_env):
    """Content, version and tombstone: each alone makes a result stale."""
    plugin_env.marks()
    message = plugin_env.post("!word")
    seen = plugin_env.store.read(hub_queries.message, message)
    for other in (
        msgspec.structs.replace(seen, content_raw="!other"),
        msgspec.structs.replace(seen, version=2),
        msgspec.structs.replace(seen, id="msg_gone"),
    ):
        assert plugin_env.store.write(writes.store_enrichments, "marks", other, []) == ("stale", 0)
        assert plugin_env.store.write(writes.store_attachments, "urls", other, []) == ("stale", 0)
    plugin_env.delete(message)
    tombstone = plugin_env.store.read(hub_queries.message, message)
    assert plugin_env.store.write(writes.store_enrichments, "marks", tombstone, []) == ("stale", 0)
    assert plugin_env.store.write(writes.store_enrichments, "marks", seen, []) == ("stale", 0)
