"""A healthy workspace has no difference; each kind of planted damage is named."""

import copy
import json
from datetime import timedelta
from itertools import product

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from spark.errors import SegmentMissing, SegmentTorn
from spark.jobs.audit import job, schema
from spark.jobs.ingest.schema import MESSAGES, OTHERS
from tests.spark.log import Log, write_segment
from tests.spark.test_ingest import conversation
from tests.support.commands import succeed
from tests.support.plugins import caught_up, settings_of
from tests.support.servedhub import serve

OTHER_TIME = "2026-02-03T00:00:00.000Z"
KINDS = [(), ("link",), ("link", "link"), ("link", "ticket")]  # that a plugin returns


def differences(spark, report):
    """Kind and entity of each difference, sorted. The entity of an enrichment is its message."""
    frame = spark.read.format("delta").load(f"{report.path}/differences")
    return sorted((row["kind"], row["entity_id"].split(" ")[0]) for row in frame.collect())


# -- workspaces without damage -------------------------------------------------------------


def act(log, verb, number, other):
    """One of all verbs on entities that these numbers choose; nothing if there is none."""
    topics, messages = list(log.tables["topics"]), list(log.tables["messages"])
    topic = topics[number % len(topics)]
    if verb == "topic":
        log.topic(log.tables["topics"][topic]["channel_id"], f"t{log.last}")
    elif verb == "rename":
        log.rename(topic, f"title {other}")
    elif verb == "attach":
        log.attach(topic, {"b": other, "a": 1e5})
    elif verb == "say" or not messages:
        log.say(topic, f"agent {other % 3}", f"text {other}")
    else:
        change(log, verb, messages[number % len(messages)], other)


def change(log, verb, message, other):
    row = log.tables["messages"][message]
    if verb == "move":
        target = list(log.tables["topics"])[other % len(log.tables["topics"])]
        if target != row["topic_id"]:
            log.move(message, target)
    elif row["deleted_at"] is not None:
        return
    elif verb == "delete":
        log.delete(message)
    elif verb == "edit":
        log.edit(message, f"text {other}")
    else:
        plugin = {"links": "links", "tickets": "tickets", "theirs": None}[verb]
        log.enrich(message, KINDS[other % len(KINDS)], plugin)


VERBS = ("topic", "rename", "attach", "say", "say", "move", "delete", "edit", "edit", "links",
         "links", "tickets", "theirs")  # fmt: skip
numbers = st.integers(0, 30)
steps = st.lists(st.tuples(st.sampled_from(VERBS), numbers, numbers), min_size=50, max_size=150)


@settings(
    max_examples=2,
    deadline=None,
    suppress_health_check=[*HealthCheck],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(steps=steps, seconds=st.lists(st.integers(-9, 20_000), min_size=1))
def test_any_history_has_no_difference(spark, make_request, tmp_path_factory, steps, seconds):
    log = Log()
    log.topic(log.channel(), "first")
    for index, step in enumerate(steps):
        log.wait(seconds=seconds[index % len(seconds)])
        act(log, *step)
    root = tmp_path_factory.mktemp("any")
    log.snapshot(root)
    between = log.last
    act(log, "say", 0, 0)  # later events are not compared with the snapshot
    log.export(root)
    report = job.run(make_request(source=root, out=root / "lake"))
    assert differences(spark, report) == []
    assert report.counts["as_of_event_id"] == between


def test_hub_with_a_linkifier_has_no_difference(spark, make_request, tmp_path):
    """The hub itself, its linkifier `references`, and its export."""
    texts = ["see a/b.py:1 and c.md", "nothing", "only c.md", "c.md and c.md"]
    workspace = tmp_path / "workspace"
    linkifier = ("references", "linkifier", 'builtin = "references"')
    text = settings_of(workspace, linkifier, timeout_seconds=60.0)
    with serve(workspace, settings=text) as hub:
        channel, here = hub.channel_with_topic("general")
        there = hub.topic(channel, "there")
        sent = [hub.send(here, text)["message"]["id"] for text in texts]
        caught_up(hub, "references")
        for number, message in enumerate(sent):
            edit = {"op": "edit", "content_raw": texts[number - 1]}
            assert hub.http.patch(f"/api/v1/messages/{message}", edit).status == 200
        caught_up(hub, "references")
        for message, body in (
            (sent[0], {"op": "delete", "actor": "ann"}),
            (sent[2], {"op": "move_topic", "to_topic_id": there, "mode": "one"}),
            (sent[2], {"op": "edit", "content_raw": texts[0]}),
        ):
            assert hub.http.patch(f"/api/v1/messages/{message}", body).status == 200
        hub.http.patch(f"/api/v1/topics/{there}", {"title": "elsewhere"})
        caught_up(hub, "references")
        results = [event for event in hub.events() if event["name"] == "message.enriched"]
        kept = hub.rows("SELECT count(*) FROM enrichments")[0][0]
    assert len(results) == 8  # three for the first texts, one for each changed text
    assert 0 < kept < sum(len(event["data_json"]["enrichments"]) for event in results)
    for noun in ("segments", "snapshot"):
        succeed("export", noun, "--out", tmp_path / "in", cwd=workspace)
    report = job.run(make_request())
    assert differences(spark, report) == []


# -- damaged tables --------------------------------------------------------------------------

CREATE = {
    "message": lambda log, topic: log.say(topic),
    "topic": lambda log, topic: log.topic(log.tables["topics"][topic]["channel_id"], "t"),
    "channel": lambda log, topic: log.channel(f"c{log.last}"),
    "attachment": lambda log, topic: log.attach(topic, {"number": log.last}),
}
CHANGED_ROWS = [
    ("message.version", {"version": 9}),
    ("message.content", {"content_raw": "forged"}),
    ("message.topic", {"topic_id": "topic_x"}),
    ("message.scope", {"channel_id": "ch_x"}),
    ("message.sender", {"sender": "mallory"}),
    ("message.tombstone", {"deleted_at": OTHER_TIME, "deleted_by": "mallory"}),
    ("message.tombstone", {"deleted_at": OTHER_TIME}),
    ("message.tombstone", {"deleted_by": "mallory"}),
    ("message.created_at", {"created_at": OTHER_TIME}),
    ("message.edited_at", {"edited_at": OTHER_TIME}),
    ("topic.title", {"title": "forged"}),
    ("topic.scope", {"channel_id": "ch_x"}),
    ("topic.created_at", {"created_at": OTHER_TIME}),
    ("channel.name", {"name": "forged"}),
    ("channel.description", {"description": "forged"}),
    ("channel.created_at", {"created_at": OTHER_TIME}),
    ("attachment.topic", {"topic_id": "topic_x"}),
    ("attachment.kind", {"kind": "forged"}),
    ("attachment.key", {"key": "forged"}),
    ("attachment.value", {"value_json": '{"number":"forged"}'}),
    ("attachment.dedupe_key", {"dedupe_key": "forged"}),
    ("attachment.source", {"source_message_id": "msg_x"}),
    ("attachment.created_at", {"created_at": OTHER_TIME}),
]
CHANGED_RESULTS = [
    (["enrichment.missing"], "lose", {}),
    (["enrichment.count"], "add", {}),
    (["enrichment.unlogged"], "add", {"kind": "forged"}),
    (["enrichment.created_at"], "change", {"created_at": OTHER_TIME}),
    (["enrichment.missing", "enrichment.unlogged"], "change", {"data_json": "{}"}),
    (["enrichment.missing", "enrichment.unlogged"], "change", {"span_end": 9}),
]


def damage_results(log, message, change, fields):
    """Damages the only enrichment of a message."""
    table = log.tables["enrichments"]
    (name,) = (name for name, row in table.items() if row["message_id"] == message)
    if change == "lose":
        del table[name]
    else:
        made = f"enr_x{len(table)}" if change == "add" else name
        table[made] = {**table[name], **fields, "id": made}


def damage_tables(log, topic):
    """Damages rows of their own in each way; the differences that this makes."""
    planted = []
    for kind, fields in CHANGED_ROWS:
        noun = kind.split(".")[0]
        entity = CREATE[noun](log, topic)
        log.tables[schema.COMPARED[noun][0]][entity] |= fields
        planted.append((kind, entity))
    for noun, create in CREATE.items():
        table, lost = log.tables[schema.COMPARED[noun][0]], create(log, topic)
        table[f"{noun}_x"] = {**table.pop(lost), "id": f"{noun}_x"}
        planted += [(f"{noun}.missing", lost), (f"{noun}.unlogged", f"{noun}_x")]
    for kinds, change, fields in CHANGED_RESULTS:
        message = log.say(topic)
        log.enrich(message)
        damage_results(log, message, change, fields)
        planted += [(kind, message) for kind in kinds]
    stale = log.say(topic)  # a former result that an empty one did not remove
    log.enrich(stale)
    ((name, row),) = ((n, r) for n, r in log.tables["enrichments"].items()
                      if r["message_id"] == stale)  # fmt: skip
    log.edit(stale, "changed")
    log.enrich(stale, [])
    log.tables["enrichments"][name] = row
    for undone in ({"deleted_at": None}, {"deleted_by": "mallory"}):
        tombstone = log.say(topic)
        log.delete(tombstone, "eve")
        log.tables["messages"][tombstone] |= undone
        planted.append(("message.tombstone", tombstone))
    return [*planted, ("enrichment.unlogged", stale)]


def test_each_damage_of_the_tables_is_one_difference(spark, make_request, tmp_path):
    log = conversation()[0]
    topic = log.topic(log.channel("damaged"), "damaged")
    planted = damage_tables(log, topic)
    kinds = {f"{noun}.{kind}" for noun, (_, columns) in schema.COMPARED.items()
             for kind in (*columns.values(), "missing", "unlogged")}  # fmt: skip
    assert {kind for kind, _ in planted} == kinds
    log.export(tmp_path / "in")
    log.snapshot(tmp_path / "in")
    report = job.run(make_request())
    assert differences(spark, report) == sorted(planted)
    summary = spark.read.format("delta").load(f"{report.path}/summary").collect()
    assert {row["kind"] for row in summary} == kinds
    assert (
        sum(row["differences"] for row in summary) == report.counts["differences"] == len(planted)
    )
    assert report.error.exit_code == 23


# -- a damaged log ---------------------------------------------------------------------------


class AllVerbs:
    """An event of every name about entities of their own: `rows` by the name of the event."""

    def __init__(self, log):
        start = len(log.rows)
        self.channel = log.channel(f"channel {log.last}")
        topic = log.topic(self.channel)
        log.rename(topic, "renamed")
        log.attach(topic, {"number": log.last})
        message = log.say(topic)
        log.enrich(message)
        log.edit(message, "changed")
        log.event("message.liked", "message", message, {}, self.channel, topic)
        log.move(message, log.topic(self.channel, "target"))
        log.delete(message)
        self.rows = {row["name"]: row for row in reversed(log.rows[start:])}


def payload(**fields):
    def damage(row):
        row["data_json"] = json.dumps({**json.loads(row["data_json"]), **fields})

    return damage


def later(**span):
    def damage(row):
        row["ts"] += timedelta(**span)

    return damage


def cut_off(row):
    row["data_json"] = row["data_json"][:-1]


# The name of an event, its damage, and the differences that it makes.
DAMAGED_EVENTS = [
    ("message.moved_topic", payload(old_topic_id="topic_x"), ["log.scope"]),
    ("channel.created", later(seconds=2), ["log.ts"]),
    ("topic.created", later(seconds=2), ["log.ts"]),
    ("message.created", later(hours=1), ["log.ts"]),
    ("topic.attachment_added", later(hours=-1), ["log.ts"]),
    ("message.deleted", later(seconds=1), ["message.edited_at", "message.tombstone"]),
    ("message.enriched", later(seconds=1), ["enrichment.created_at"]),
    ("message.deleted", payload(version=9), ["log.version", "message.version"]),
    ("message.deleted", payload(deleted_by="mallory"), ["message.tombstone"]),
    ("channel.created", cut_off, ["channel.unlogged", "log.unreadable"]),
    ("message.enriched", cut_off, ["enrichment.unlogged", "log.unreadable"]),
    ("message.enriched", payload(plugin="other", enrichments=[]), ["enrichment.unlogged"]),
]
SCOPE = ("scope_channel_id", "scope_topic_id", "scope_topic_id2")


def damage_log(log):
    """Damages events of their own in each way; the differences that this makes."""
    planted = []
    for name, damage, kinds in DAMAGED_EVENTS:
        row = AllVerbs(log).rows[name]
        damage(row)
        planted += [(kind, row["entity_id"]) for kind in kinds]
    for name, column in product([*MESSAGES, *OTHERS], SCOPE):
        row = AllVerbs(log).rows[name]
        row[column] = "forged"
        planted.append(("log.scope", row["entity_id"]))
    other = AllVerbs(log).rows["channel.created"]
    planted.append(("log.twice", other["entity_id"]))
    twin = {**other, "ts": other["ts"] + timedelta(milliseconds=1)}
    lost = [AllVerbs(log).rows["message.liked"]["event_id"] for _ in range(2)]
    AllVerbs(log)
    log.rows.insert(log.rows.index(other) + 1, twin)
    log.rows = [row for row in log.rows if row["event_id"] not in lost]
    return planted + [("log.gap", f"{number}-{number}") for number in lost]


def test_each_damage_of_the_log_is_one_difference(spark, make_request, tmp_path):
    log = conversation()[0]
    planted = damage_log(log)
    log.export(tmp_path / "in")
    start = len(log.rows)
    AllVerbs(log)
    log.export(tmp_path / "in", after=log.rows[start - 1]["event_id"])
    write_segment(tmp_path / "in", "2026-02-09", log.rows[start:])  # the same events twice
    log.snapshot(tmp_path / "in")
    report = job.run(make_request())
    assert differences(spark, report) == sorted(planted)


def test_gaps_name_their_events(spark, make_request, tmp_path):
    """Inside a segment, between two, and from the end of the log to the snapshot."""
    log = Log()
    channel = log.channel()
    for number in range(40):
        log.wait(hours=1).event("channel.liked", "channel", channel, {"n": number}, channel)
    log.rows = [row for row in log.rows if row["event_id"] not in (3, 5, 6, 20)]
    manifests = log.export(tmp_path / "in")
    between = json.loads(manifests[-1].read_text())["first_event_id"]
    log.event("channel.liked", "channel", channel, {}, channel)
    log.snapshot(tmp_path / "in")
    middle = manifests[1] if len(manifests) > 2 else None
    first = json.loads(manifests[1].read_text())["first_event_id"]
    assert middle is not None
    middle.unlink()
    report = job.run(make_request())
    frame = spark.read.format("delta").load(f"{report.path}/differences").orderBy("event_id")
    gaps = [(row["entity_id"], row["event_id"], row["snapshot_says"]) for row in frame.collect()]
    lost = f"{first} to {between - 1}"
    assert gaps == [
        ("3-3", 3, "events 3 to 3 are missing in their segment"),
        ("5-6", 5, "events 5 to 6 are missing in their segment"),
        (lost.replace(" to ", "-"), first, f"events {lost} are in no segment"),
        ("42-42", 42, "events 42 to 42 are in no segment"),
    ]


def test_log_without_a_snapshot_is_an_error(make_request, tmp_path):
    conversation()[0].export(tmp_path / "in")
    with pytest.raises(SegmentMissing):
        job.run(make_request())


def test_restore_after_a_snapshot_is_not_held_against_it(spark, make_request, tmp_path):
    log = Log()
    topic = log.topic(log.channel())
    first = log.say(topic)
    backup, tables = log.last, copy.deepcopy(log.tables)
    log.edit(first, "taken back by the restore")
    log.say(topic, "bob")
    log.export(tmp_path / "in")
    log.snapshot(tmp_path / "in")
    restored = Log("epoch-2", log.now)
    restored.tables, restored.last = tables, log.last + 2**32
    restored.rename(topic, "later")
    day = log.now.date().isoformat()
    write_segment(tmp_path / "in", day, restored.rows, previous_event_id=backup)
    report = job.run(make_request())
    assert (report.error, report.counts["as_of_event_id"]) == (None, log.last)
    restored.snapshot(tmp_path / "in")
    report = job.run(make_request())
    assert (report.error, report.counts["as_of_event_id"]) == (None, restored.last)


def test_workspace_without_events_has_no_difference(make_request, tmp_path):
    (tmp_path / "in/events").mkdir(parents=True)
    Log().snapshot(tmp_path / "in")
    assert job.run(make_request()).counts["differences"] == 0


def damage(tmp_path, change):
    log = Log()
    log.say(log.topic(log.channel()))
    log.export(tmp_path / "in")
    manifest = log.snapshot(tmp_path / "in") / "manifest.json"
    fields = json.loads(manifest.read_text())
    change(fields)
    manifest.write_text(json.dumps(fields))


LIES = {
    "lacks a table": lambda fields: fields["files"].pop("topics"),
    "another type": lambda fields: fields["files"]["topics"].update(file="../../topics.parquet"),
    "a missing field": lambda fields: fields.update(files=[1]),
}


@pytest.mark.parametrize("words", LIES)
def test_snapshot_whose_manifest_lies_is_not_compared(make_request, tmp_path, words):
    damage(tmp_path, LIES[words])
    with pytest.raises(SegmentTorn, match=words):
        job.run(make_request())
