"""Schemas of input and output are promises: files, code and rows agree."""

import json
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from pyspark.errors import AnalysisException

from spark import schemas
from spark.jobs.activity import schema as activity
from spark.jobs.audit import schema as audit
from spark.jobs.ingest import creations, transforms
from spark.jobs.ingest import schema as ingest
from tests.support.workspaces import Filled

# What readers elsewhere rely on. A column may be added here; none may go or change its type.
PROMISED = {
    "activity": "channel_id:string topic_id:string sender:string messages:bigint edits:bigint"
    " deletes:bigint moves:bigint replied:bigint reply_buckets:map<bigint,bigint>"
    " first_reply_median_seconds:double first_reply_p95_seconds:double active_spans:bigint"
    " active_seconds:double day:date",
    "pairs": "channel_id:string topic_id:string sender:string answers:string replies:bigint"
    " reply_buckets:map<bigint,bigint> median_seconds:double p95_seconds:double day:date",
    "spans": "channel_id:string topic_id:string sender:string started_at:timestamp"
    " ended_at:timestamp messages:bigint day:date",
    "channels": "channel_id:string name:string",
    "topics": "topic_id:string channel_id:string title:string",
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
    """docs/reference/events.md, generated from the hub, lists the fields of every event."""
    text = (Path(__file__).parents[2] / "docs/reference/events.md").read_text()
    fields = {}
    for part in text.split("\n## ")[1:]:
        name, example = part.split("\n", 1)
        fields[name.strip()] = json.loads(example.split("```json")[1].split("```")[0])
    assert fields
    for name, data in fields.items():
        assert name in ingest.EVENT_NAMES
        if name in ingest.WITHOUT_TABLE:
            continue
        assert set(data) <= set(ingest.FIELDS[name])
        if noun := ingest.NOUNS.get(name):
            assert set(data[noun]) <= set(ingest.NOUN_FIELDS[noun])


def creations_of_the_hub(path, *principals):
    """Payloads of creations by these, written by the hub's own code into its own tables."""
    from appliance.hub import writes
    from appliance.kernel.batch import Tx
    from appliance.kernel.clock import SystemClock
    from appliance.kernel.ids import IdFactory

    filled = Filled(path, messages=0)
    with closing(filled.connect()) as connection:
        tx = Tx(connection, SystemClock(), IdFactory(SystemClock()))
        tx.restart()
        for principal in principals:
            writes.create_message(tx, filled.topic_id, "ann", "é", principal)
        rows = connection.execute("SELECT data_json FROM events ORDER BY event_id")
        return [text for (text,) in rows]


def test_only_creations_of_another_shape_are_parsed(spark, tmp_path):
    by_token, by_nobody = creations_of_the_hub(tmp_path, "ci", None)
    noun = json.loads(by_token)["message"]
    assert list(noun) == list(ingest.NOUN_FIELDS["message"])
    older = {name: value for name, value in noun.items() if name != "principal"}

    def text(noun, **more):
        return msgspec.json.encode({"message": noun, **more}).decode()

    def answers(*texts):
        """Whether each is parsed, and its unknown fields. Cut fields are as parsed ones."""
        ids = {f"scope_{name}": noun[name] for name in ("channel_id", "topic_id")}
        made = [{"name": "message.created", "entity_id": text.split('"')[5], "data_json": text,
                 **ids} for text in texts]  # fmt: skip
        rows = spark.createDataFrame(made)
        read, parsed = (transforms.messages_of(rows, way).collect() for way in (True, False))
        assert read == parsed
        cut = creations.cut(rows).selectExpr("NOT cut").collect()
        return [(each, row["extra"]) for (each,), row in zip(cut, read, strict=True)]

    contents = ['say "no"', "two\nlines", "a\ttab", "back\\slash", "\\", "\\n", "\\\\\n"]
    contents += ['a","mood":"b', '\\","mood":"b', "é😀", ""]
    written = [by_token, by_nobody, text(noun, principal="ci")]
    written += [text({**noun, "content_raw": each}, principal="ci") for each in contents]
    assert by_token == text(noun, principal="ci")
    assert answers(*written) == [(False, None)] * len(written)

    otherwise = [
        text(older),
        text(older, principal="ci"),
        text(noun),
        text({**noun, "deleted_by": "x"}, principal="ci"),
        text(noun, principal="me"),
        by_token.replace('"é"', '"é"\\"'),
        text({**noun, "sender": 'a"b'}, principal="ci"),
        text({**noun, "principal": 1}, principal=1),
        by_token.replace(",", " ,"),
        by_token.replace("é", "\\u00e9", 1).replace('"ann"', '"\\u0061nn"'),
    ]
    assert answers(*otherwise) == [(True, None)] * len(otherwise)

    inside = by_token.replace('"é"', '"é","mood":"x"')
    hidden = by_token.replace('"é"', '"\\\\","mood":"x"')
    unknown = [
        (text({**noun, "mood": "x"}, principal="ci"), {"mood": "x"}),
        (text(noun, principal="ci", via="x"), {"via": "x"}),
        (text({**older, "mood": "x"}), {"mood": "x"}),
        (inside, {"mood": "x"}),
        (hidden, {"mood": "x"}),
        (by_token.replace('"edited_at":null', '"edited_by":null'), {"edited_by": None}),
    ]
    assert answers(*[each for each, _ in unknown]) == [(True, more) for _, more in unknown]


@pytest.mark.parametrize("schema", [ingest, activity, audit])
def test_partition_is_the_last_column(schema):
    partitions = schemas.partitions(schema.NAME)
    assert partitions
    for table, partition in partitions.items():
        if partition:
            assert schema.OUTPUT[table].names[-1] == partition


def test_table_that_breaks_its_promise_is_not_written(spark, tmp_path):
    from spark.tables import Dataset

    draft = Dataset(tmp_path, "audit-1").draft()
    for columns in ("'x' AS kind", "'x' AS kind, 'y' AS differences"):
        with pytest.raises(AnalysisException, match="differences"):
            draft.append(spark.sql(f"SELECT {columns}"), "summary")
