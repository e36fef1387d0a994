"""The ten edge cases of derived pipelines (hub spec §4.6), and gate I."""

import json
import sqlite3

import gevent

from appliance.hub import wire as hub_wire
from appliance.hub import writes as hub_writes
from appliance.hub.plugins import queries, wire, writes
from appliance.hub.plugins.settings import PluginSettings
from tests.unit.hub.conftest import FaultyRunner
from tests.unit.hub.plugins.conftest import MARKS, SECONDS_MAX


def message_of(workshop, message_id):
    return workshop.store.read(queries.messages, [message_id])[message_id]


def test_a_message_is_enriched_and_everybody_hears_of_it(workshop):
    workshop.marks()
    message = workshop.post("one !two three !four")
    workshop.rounds()

    assert workshop.found(message) == workshop.shown(message) == ["!two", "!four"]
    [told] = workshop.told()
    assert told["message_id"] == message
    assert told["plugin"] == "marks"
    assert told["version"] == 1
    assert told["enrichments"][0] == {
        "kind": "mark", "span": {"start": 4, "end": 8}, "data": {"word": "!two"},
    }  # fmt: skip
    scopes = workshop.house.rows(
        "SELECT scope_channel_id, scope_topic_id, entity_type, entity_id FROM events"
        " WHERE name = 'message.enriched'"
    )
    assert scopes == [(workshop.channel_id, workshop.topic_id, "message", message)]
    assert workshop.house.told[-1].name == "message.enriched"  # the feed heard it too


def test_what_has_nothing_in_it_writes_nothing(workshop):
    workshop.marks()
    workshop.post("nothing here")
    workshop.rounds()
    assert workshop.told() == []
    assert workshop.house.rows("SELECT * FROM x_enrichment_sets") == []


ECHO = """
def enrich(message, config):
    data = {"message": dict(message), "config": dict(config)}
    return [{"kind": "echo", "span": {"start": 0, "end": 1}, "data": data}]
"""


def test_a_plugin_is_given_the_message_as_it_is_and_its_own_settings(workshop):
    """All fields of the contract (hub spec §0.9) and the version, for a new text and an edited."""
    workshop.use(("echo", "linkifier", ECHO))
    message = workshop.post("first")
    workshop.rounds()
    workshop.edit(message, "second")
    workshop.clock.pass_seconds(2)
    workshop.rounds()
    told = sorted(workshop.told(), key=version)
    shown = [one["enrichments"][0]["data"] for one in told]
    [(created_at,)] = workshop.house.rows("SELECT created_at FROM messages")
    always = {
        "id": message, "sender": "ci", "topic_id": workshop.topic_id,
        "channel_id": workshop.channel_id, "created_at": created_at,
    }  # fmt: skip
    assert [one["message"] for one in shown] == [
        {**always, "content_raw": "first", "version": 1},
        {**always, "content_raw": "second", "version": 2},
    ]
    assert shown[0]["config"] == {"gate": str(workshop.gate)}


def test_one_that_is_switched_off_alone_is_not_run_and_the_others_are(workshop):
    off = PluginSettings(
        "off", "linkifier", module=workshop.module("off", MARKS), enabled=False,
        config={"gate": str(workshop.gate)},
    )  # fmt: skip
    workshop.use(off, ("on", "linkifier", MARKS))
    message = workshop.post("!word")
    workshop.rounds()
    assert workshop.found(message) == ["!word"]
    assert [told["plugin"] for told in workshop.told()] == ["on"]
    assert {one.name: one.state for one in workshop.parts.plugins.list_all().plugins} == {
        "off": "off", "on": "running",
    }  # fmt: skip


def test_an_attachment_comes_once_and_with_its_source(workshop):
    workshop.marks("extractor")
    first = workshop.post("!same")
    workshop.post("!same again")
    workshop.rounds()
    assert workshop.attached() == ["!same"]
    [told] = workshop.told("topic.attachment_added")
    assert told["attachment"]["source_message_id"] == first


# -- 1: ABA ------------------------------------------------------------------------------------


def test_1_a_text_that_went_and_came_back_is_another_version(workshop):
    workshop.marks()
    message = workshop.post("wait !hello")
    running = workshop.begin()
    workshop.until_asked()
    workshop.edit(message, "goodbye")
    workshop.edit(message, "wait !hello")
    counts = workshop.finish(running)

    assert counts["stale"] == 1
    assert workshop.told() == []
    workshop.clock.pass_seconds(2)
    workshop.rounds()
    [told] = workshop.told()
    assert told["version"] == 3
    assert workshop.found(message) == ["!hello"]


# -- 2: time of check, time of use -------------------------------------------------------------


def test_2_the_guard_and_what_it_guards_are_one_transaction(workshop):
    """An edit that shares the batch comes before or after the whole of it, never in between."""
    workshop.marks()
    plugin = workshop.runner().plugin
    early, late = workshop.post("!early"), workshop.post("!late")
    edit = hub_wire.EditMessage("changed")
    before = plugin.work(message_of(workshop, early))
    after = plugin.work(message_of(workshop, late))
    outcomes = workshop.store.write_many(
        [
            (hub_writes.edit_message, (early, edit, None, None)),
            before,
            after,
            (hub_writes.edit_message, (late, edit, None, None)),
        ]
    )
    assert [outcomes[1].unwrap(), outcomes[2].unwrap()] == [("stale", 0), ("stored", 1)]
    assert workshop.found(early) == []
    names = workshop.house.rows("SELECT name FROM events ORDER BY event_id DESC LIMIT 3")
    assert [name for (name,) in names] == ["message.edited", "message.enriched", "message.edited"]


# -- 3: several plugins at once ----------------------------------------------------------------


def test_3_plugins_work_on_one_message_at_the_same_time(workshop):
    workshop.use(
        ("link", "linkifier", MARKS), ("pull", "extractor", MARKS), ("pull2", "extractor", MARKS)
    )
    message = workshop.post("wait !word")
    running = [workshop.begin(name) for name in ("link", "pull", "pull2")]
    for name in ("link", "pull", "pull2"):
        workshop.until_asked(name)
    for one in running:
        assert workshop.finish(one)["done"] == 1
    assert workshop.found(message) == ["!word"]
    assert workshop.attached() == ["!word"]
    assert len(workshop.told("topic.attachment_added")) == 1


def test_3_two_linkifiers_keep_out_of_each_others_rows(workshop):
    workshop.use(("a", "linkifier", MARKS), ("b", "linkifier", MARKS))
    message = workshop.post("!word")
    workshop.rounds()
    workshop.edit(message, "other")
    workshop.clock.pass_seconds(2)
    workshop.round("a")
    assert workshop.found(message) == ["!word"]  # b's, which has not seen the edit yet
    assert workshop.shown(message) == []
    workshop.round("b")
    assert workshop.found(message) == []


# -- 4: what depends on the world outside ------------------------------------------------------


TITLES = """
def extract(message, config):
    with open(config["gate"]) as file:
        title = file.read()
    return [{"kind": "page", "value_json": {"title": title}, "dedupe_key": "page"}]
"""


def test_4_an_attachment_stays_as_it_was_when_the_world_changes(workshop):
    workshop.gate.write_text("Old title")
    workshop.use(("titles", "extractor", TITLES))
    message = workshop.post()
    workshop.rounds()
    workshop.gate.write_text("New title")
    answer = workshop.ask("re_extract", wire.ReExtract(message))
    assert [(one.outcome, one.items) for one in answer.results] == [("same", 0)]
    [(value,)] = workshop.house.rows("SELECT value_json FROM topic_attachments")
    assert json.loads(value) == {"title": "Old title"}
    assert len(workshop.told("topic.attachment_added")) == 1


# -- 5: a tombstone ----------------------------------------------------------------------------


def test_5_a_message_deleted_meanwhile_gets_nothing(workshop):
    workshop.marks()
    message = workshop.post("wait !gone")
    running = workshop.begin()
    workshop.until_asked()
    workshop.delete(message)
    assert workshop.finish(running)["stale"] == 1
    workshop.rounds()
    assert workshop.found(message) == []
    assert workshop.told() == []
    assert workshop.runner().pending == 0


def test_5_a_tombstone_is_never_shown_to_a_plugin(workshop):
    workshop.marks()
    workshop.delete(workshop.post("!gone"))
    workshop.rounds()
    assert workshop.runner().plugin.done == 0


def test_5_what_was_found_before_stays_in_the_rows_and_is_not_shown(workshop):
    workshop.marks()
    message = workshop.post("!word")
    workshop.rounds()
    workshop.delete(message)
    workshop.rounds()
    assert workshop.found(message) == ["!word"]
    assert workshop.shown(message) == []


# -- 6: too slow -------------------------------------------------------------------------------


def test_6_a_plugin_that_takes_too_long_is_killed_and_not_asked_again(workshop):
    workshop.marks(timeout_seconds=0.3)
    slow, quick = workshop.post("wait !slow"), workshop.post("!quick")
    began = workshop.begin()
    posted = workshop.post("!later")  # writing goes on meanwhile
    began.join(20)
    workshop.rounds()
    assert workshop.found(slow) == []
    assert workshop.found(quick) == ["!quick"]
    assert workshop.found(posted) == ["!later"]
    assert workshop.runner().plugin.failed == 1
    [line] = [fields for _, what, fields in workshop.log.lines if what == "plugin failed"]
    assert (line["outcome"], line["message_id"]) == ("timeout", slow)
    assert workshop.runner().lag == 0


# -- 7: edited between the output and the commit -----------------------------------------------


def test_7_output_of_a_former_text_is_dropped(workshop):
    workshop.marks()
    message = workshop.post("!hello")
    function, args = workshop.runner().plugin.work(message_of(workshop, message))
    workshop.edit(message, "!goodbye")
    assert workshop.store.write(function, *args) == ("stale", 0)
    workshop.clock.pass_seconds(2)
    workshop.rounds()
    assert workshop.found(message) == workshop.shown(message) == ["!goodbye"]
    assert [told["version"] for told in workshop.told()] == [2]


# -- 8: moved to another topic -----------------------------------------------------------------


def test_8_a_message_moved_meanwhile_is_done_again_where_it_is_now(workshop):
    workshop.marks("extractor")
    other = workshop.topic("other")
    message = workshop.post("wait !word")
    running = workshop.begin()
    workshop.until_asked()
    workshop.move(message, other)
    assert workshop.finish(running)["stale"] == 1
    assert workshop.attached() == workshop.attached(other) == []
    workshop.clock.pass_seconds(2)
    workshop.rounds()
    assert workshop.attached() == []
    assert workshop.attached(other) == ["!word"]


def test_8_attachments_stay_in_the_topic_they_were_found_in(workshop):
    workshop.marks("extractor")
    other = workshop.topic("other")
    message = workshop.post("!word")
    workshop.rounds()
    workshop.move(message, other)
    workshop.clock.pass_seconds(2)
    workshop.rounds()
    assert workshop.attached() == ["!word"]
    assert workshop.attached(other) == []


def test_8_enrichments_follow_a_message_that_moves(workshop):
    workshop.marks()
    message = workshop.post("!word")
    workshop.rounds()
    workshop.move(message, workshop.topic("other"))
    workshop.rounds()
    assert workshop.shown(message) == ["!word"]


# -- 9: a restart ------------------------------------------------------------------------------


def test_9_work_that_a_restart_cut_off_is_done_once(workshop):
    workshop.marks()
    first = workshop.post("!first")
    workshop.rounds()
    second = workshop.post("wait !second")
    running = workshop.begin()
    workshop.until_asked()
    running.kill()
    assert not workshop.runner().plugin.worker.running  # the process ends with who asked it
    assert workshop.cursor() < workshop.house.feed.head

    workshop.gate.touch()
    workshop.marks()  # as a start does: new runners on the stored cursor
    workshop.rounds()
    assert (workshop.found(first), workshop.found(second)) == (["!first"], ["!second"])
    assert [told["message_id"] for told in workshop.told()] == [first, second]


def test_9_a_cursor_that_was_not_stored_costs_nothing_but_time(workshop):
    workshop.marks(cursor_seconds=1e9)
    workshop.post("the first is stored at once")
    workshop.rounds()
    message = workshop.post("!word")
    workshop.rounds()
    head, before = workshop.house.feed.head, workshop.house.everything()
    stored = workshop.cursor()
    assert stored < head
    for runner in workshop.parts.runners:  # killed: nothing is flushed
        runner.plugin.stop()
    workshop.parts = None
    workshop.marks()
    workshop.rounds()
    assert workshop.runner().plugin.done == 1  # it was looked at again
    assert workshop.house.everything() == before
    assert workshop.found(message) == ["!word"]


def test_9_a_store_that_refuses_is_asked_again_later_and_nothing_is_lost(workshop):
    workshop.marks()
    message = workshop.post("!word")
    FaultyRunner.failure = sqlite3.OperationalError("full")
    FaultyRunner.failure.sqlite_errorname = "SQLITE_FULL"
    assert workshop.round() == {}
    assert workshop.runner().plugin.done == 1
    assert workshop.round() == {}  # not asked at once
    assert workshop.runner().plugin.done == 1
    FaultyRunner.failure = None
    workshop.clock.pass_seconds(2)
    workshop.rounds()
    assert workshop.found(message) == ["!word"]
    assert len(workshop.told()) == 1


# -- 10: many edits ----------------------------------------------------------------------------


def test_10_many_edits_are_one_job_on_the_last_text(workshop):
    workshop.marks()
    message = workshop.post("!v1")
    for number in range(2, 12):
        workshop.edit(message, f"!v{number}")
    workshop.round()
    assert workshop.found(message) == []  # until it has calmed down
    workshop.clock.pass_seconds(0.5)
    workshop.edit(message, "!v12")
    workshop.clock.pass_seconds(0.6)
    workshop.round()
    assert workshop.found(message) == []  # the last edit started the wait anew
    workshop.clock.pass_seconds(0.5)
    workshop.rounds()
    assert workshop.found(message) == ["!v12"]
    assert len(workshop.told()) == 1
    assert workshop.runner().plugin.done == 1


def test_10_edits_without_end_do_not_put_it_off_for_ever(workshop):
    workshop.marks(debounce_seconds_max=3.0)
    message = workshop.post("!v0")
    seen = []
    for number in range(1, 8):
        workshop.edit(message, f"!v{number}")
        workshop.rounds()
        seen += workshop.found(message)
        workshop.clock.pass_seconds(0.6)
    assert seen


def test_10_an_edit_replaces_what_was_found(workshop):
    workshop.marks()
    message = workshop.post("!old !stays")
    workshop.rounds()
    workshop.edit(message, "!stays")
    assert workshop.shown(message) == []  # nothing old is shown with a new text
    workshop.clock.pass_seconds(2)
    workshop.rounds()
    assert workshop.found(message) == ["!stays"]
    workshop.edit(message, "plain")
    workshop.clock.pass_seconds(2)
    workshop.rounds()
    assert workshop.found(message) == []
    assert [told["enrichments"] for told in sorted(workshop.told(), key=version)][2] == []


def version(told):
    return told["version"]


# -- gate I ------------------------------------------------------------------------------------


def test_gate_i_no_derived_row_and_no_event_speaks_of_an_old_text(workshop):
    """Every event of the log is compared with the text the message had at that place."""
    workshop.marks(debounce_seconds=0.0)
    messages = [workshop.post(f"!m{number}") for number in range(6)]
    plugin, over = workshop.runner().plugin, []

    def work():
        while not over:
            workshop.rounds()
            gevent.sleep(0.001)

    running = gevent.spawn(work)
    for turn in range(30):
        if turn == 20:
            workshop.delete(messages.pop(0))
        workshop.edit(messages[turn % len(messages)], f"!turn{turn}")
        done = plugin.done
        with gevent.Timeout(SECONDS_MAX):
            while turn % 3 == 0 and plugin.done == done:  # so that both get ahead
                gevent.sleep(0.001)
    over.append(True)
    running.join(SECONDS_MAX)
    workshop.rounds()
    texts, checked = {}, 0
    for name, entity, data in workshop.house.rows(
        "SELECT name, entity_id, data_json FROM events ORDER BY event_id"
    ):
        data = json.loads(data)
        if name == "message.created":
            texts[entity] = data["message"]["content_raw"]
        elif name == "message.edited":
            texts[entity] = data["new_content"]
        elif name == "message.deleted":
            texts[entity] = None
        elif name == "message.enriched":
            assert [one["data"]["word"] for one in data["enrichments"]] == [texts[entity]]
            checked += 1
    assert checked > len(messages)
    for message in messages:
        assert workshop.found(message) == [texts[message]]


def test_gate_i_every_part_of_the_guard_counts(workshop):
    """Content, version and tombstone: each alone makes a result stale."""
    workshop.marks()
    message = workshop.post("!word")
    seen = writes.Seen(message, 1, "!word")
    for other in (
        writes.Seen(message, 1, "!other"),
        writes.Seen(message, 2, "!word"),
        writes.Seen("msg_gone", 1, "!word"),
    ):
        assert workshop.store.write(writes.keep_enrichments, "marks", other, []) == ("stale", 0)
        assert workshop.store.write(writes.keep_attachments, "urls", other, []) == ("stale", 0)
    deleted = workshop.delete(message)["message"]
    tombstone = writes.Seen(message, deleted["version"], deleted["content_raw"])
    assert workshop.store.write(writes.keep_enrichments, "marks", tombstone, []) == ("stale", 0)
    assert workshop.store.write(writes.keep_enrichments, "marks", seen, []) == ("stale", 0)
