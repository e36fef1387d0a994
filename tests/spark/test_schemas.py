"""Schemas of input and output are promises: files, code and rows agree."""

import json
from pathlib import Path

import msgspec
import pytest

from spark import schemas
from spark.errors import SchemaVersionUnknown
from spark.jobs.activity import schema as activity
from spark.jobs.audit import schema as audit
from spark.jobs.ingest import schema as ingest
from spark.jobs.ingest import transforms

# What readers elsewhere rely on. A column may be added here; none may go or change its type.
PROMISED = {
    "activity": "channel_id:string channel:string topic_id:string topic:string sender:string"
    " messages:bigint edits:bigint deletes:bigint moves:bigint replied:bigint"
    " first_reply_median_seconds:double first_reply_p95_seconds:double active_spans:bigint"
    " active_seconds:double day:date",
    "pairs": "channel_id:string topic_id:string sender:string answers:string replies:bigint"
    " median_seconds:double day:date",
    "spans": "channel_id:string topic_id:string sender:string started_at:timestamp"
    " ended_at:timestamp messages:bigint day:date",
}


def spell(struct):
    return " ".join(f"{field.name}:{field.dataType.simpleString()}" for field in struct)


def test_gold_has_the_promised_columns():
    assert {name: spell(struct) for name, struct in activity.OUTPUT.items()} == PROMISED


def test_segments_have_the_columns_of_the_shipped_schema():
    assert spell(ingest.INPUT) == (
        "event_id:bigint epoch:string ts:timestamp name:string scope_channel_id:string"
        " scope_topic_id:string scope_topic_id2:string entity_type:string entity_id:string"
        " data_json:string"
    )


def test_tombstone_is_the_hubs_word():
    from appliance.hub.wire import TOMBSTONE

    assert ingest.TOMBSTONE == TOMBSTONE


def test_every_event_of_the_hub_is_known_with_its_fields():
    """docs/events.md is generated from the hub's code: an event added there shows here."""
    text = (Path(__file__).parents[2] / "docs/events.md").read_text()
    told = {}
    for part in text.split("\n## ")[1:]:
        name, example = part.split("\n", 1)
        told[name.strip()] = json.loads(example.split("```json")[1].split("```")[0])
    for name, data in told.items():
        assert name in ingest.KNOWN
        assert set(data) <= set(ingest.FIELDS[name])
        if noun := ingest.NOUNS.get(name):
            assert set(data[noun]) <= set(ingest.NOUN_FIELDS[noun])


def test_creation_as_the_hub_writes_it_is_seen_at_a_glance(spark):
    noun = {
        "id": "m", "topic_id": "t", "channel_id": "c", "sender": "ann", "content_raw": "é",
        "version": 1, "created_at": "2026-02-01T08:00:00.000Z", "edited_at": None,
        "deleted_at": None, "deleted_by": None,
    }  # fmt: skip
    assert list(noun) == list(ingest.NOUN_FIELDS["message"])

    def told(noun):
        text = msgspec.json.encode({"message": noun}).decode()
        rows = spark.createDataFrame([("message.created", text)], "name string, data_json string")
        return transforms.created_of(rows).select(transforms.is_as_written()).first()[0]

    assert told(noun)
    assert not told({**noun, "mood": None})
    assert not told({**noun, "deleted_by": "x"})


@pytest.mark.parametrize("schema", [ingest, activity, audit])
def test_partition_is_the_last_column(schema):
    for table, partition in schemas.partitions(schema.NAME).items():
        if partition:
            assert schema.OUTPUT[table].names[-1] == partition


def test_table_that_breaks_its_promise_is_not_written(spark, tmp_path):
    from spark.dataset import Dataset

    draft = Dataset(tmp_path, "audit-1")
    with draft.writing() as dataset:
        made = dataset.draft()
        with pytest.raises(SchemaVersionUnknown, match="column differences is missing"):
            made.write(spark.sql("select 'x' as kind"), "summary")
