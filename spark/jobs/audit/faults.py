"""Finds errors that the log alone shows: events that contradict their payload or earlier events.

Each function returns rows with the schema `differences`: `log_says` is the event's value and
`snapshot_says` the required value. Pure: frames in, frames out.
"""

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.functions import col as c

from spark import source
from spark.jobs.audit import schema
from spark.jobs.audit.transforms import millis
from spark.jobs.ingest import schema as known
from spark.jobs.ingest import transforms as t

SCOPE = (("channel", ""), ("topic", ""), ("topic", "2"))


def log_faults(events: DataFrame, history: DataFrame) -> DataFrame:
    messages = t.messages_of(events).where(t.is_sound(known.MESSAGES))
    others = t.others_of(events).where(t.is_sound(known.OTHERS))
    frames = [
        _unreadable(events), _scopes_of_messages(messages, others), _scopes_of_others(others),
        _times(_creations(history, others)), _versions(history), _twice(events),
    ]  # fmt: skip
    return reduce(DataFrame.unionByName, frames)


def _row(kind: str, entity: Column, says: Column, should: Column) -> list[Column]:
    return [
        f.lit(kind).alias("kind"),
        entity.alias("entity_id"),
        c("event_id"),
        says.cast("string").alias("log_says"),
        should.cast("string").alias("snapshot_says"),
    ]


def _unreadable(events: DataFrame) -> DataFrame:
    rows = t.quarantine_of(events)
    nothing = f.lit(None)
    return rows.select(
        *_row("log.unreadable", c("entity_id"), f.concat_ws("; ", "reasons"), nothing)
    )


# -- scopes: subscribers miss an event with a wrong one -----------------------------------


def _scopes_of_messages(messages: DataFrame, others: DataFrame) -> DataFrame:
    """Check that a message's events belong to its current topic, and a move's also to the new
    topic.

    Compare a move payload's old topic and channel as well."""
    changes = messages.select(
        *_envelope("id"), c("channel_id").alias("own_channel"),
        c("from_topic_id").alias("from_topic"), c("topic_id").alias("to_topic"),
    )  # fmt: skip
    results = others.where(c("name") == "message.enriched").select(
        *_envelope("p.message_id"), *_nothing("own_channel", "from_topic", "to_topic")
    )
    order = Window.partitionBy("entity_id").orderBy("event_id", "epoch")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    first_topic = f.when(c("name") == "message.created", c("to_topic"))
    again = (f.lag("event_id").over(order) == c("event_id")) & (
        f.lag("epoch").over(order) == c("epoch")
    )
    rows = (
        changes.unionByName(results)
        .withColumn("again", f.coalesce(again, f.lit(False)))
        .where(~c("again"))
        .withColumn("in_channel", f.last("own_channel", ignorenulls=True).over(before))
        .withColumn("in_topic", f.last("to_topic", ignorenulls=True).over(before))
        .withColumn("must_channel", f.coalesce("in_channel", "own_channel", "channel"))
        .withColumn("must_topic", f.coalesce(first_topic, "in_topic", "from_topic", "topic"))
        .withColumn("must_topic2", f.when(c("name") == "message.moved_topic", c("to_topic")))
    )
    elsewhere = (c("own_channel") != c("must_channel")) | (c("from_topic") != c("must_topic"))
    payload = f.concat_ws(" ", "own_channel", "from_topic", "to_topic")
    return _wrong(rows.withColumn("payload", f.when(elsewhere, payload)))


def _scopes_of_others(others: DataFrame) -> DataFrame:
    """Check that a topic's events belong to the topic's channel, which never changes."""
    created = others.where(c("name") == "topic.created")
    homes = created.groupBy(c("p.topic")["id"].alias("must_topic")).agg(
        f.min_by(c("p.topic")["channel_id"], "event_id").alias("in_channel")
    )
    channel = f.coalesce(c("p.channel")["id"], c("p.topic")["channel_id"])
    topic = f.coalesce(c("p.topic")["id"], c("p.attachment")["topic_id"], c("p.topic_id"))
    rows = others.where(c("name") != "message.enriched").select(
        *_envelope("entity_id"), channel.alias("own_channel"), topic.alias("must_topic"),
        *_nothing("must_topic2", "payload"),
    )  # fmt: skip
    must_channel = f.coalesce("own_channel", "in_channel", "channel")
    homed = t.deduplicate(rows).join(homes, "must_topic", "left")
    return _wrong(homed.withColumn("must_channel", must_channel))


def _envelope(entity: str) -> list[Column]:
    scope = [c(f"scope_{name}_id{number}").alias(f"{name}{number}") for name, number in SCOPE]
    return [c(entity).alias("entity_id"), c("event_id"), c("epoch"), c("name"), *scope]


def _nothing(*names: str) -> list[Column]:
    return [f.lit(None).cast("string").alias(name) for name in names]


def _wrong(rows: DataFrame) -> DataFrame:
    """Return events whose scope differs from `must_…`, or whose `payload` does."""
    names = [f"{name}{number}" for name, number in SCOPE]
    differs = reduce(Column.__or__, [~c(name).eqNullSafe(c(f"must_{name}")) for name in names])
    says = f.when(differs, f.concat_ws(" ", *names)).otherwise(c("payload"))
    must = f.concat_ws(" ", *[f"must_{name}" for name in names])
    wrong = rows.where(differs | c("payload").isNotNull())
    return wrong.select(*_row("log.scope", c("entity_id"), says, must))


# -- times, versions, ids -----------------------------------------------------------------


def _creations(history: DataFrame, others: DataFrame) -> DataFrame:
    """Return each creation with its payload's time and its event's time."""
    names = ("entity_id", "event_id", "created_at", "ts")
    messages = history.where(c("change") == "created").select(
        "message_id", "event_id", "created_at", "valid_from"
    )
    nouns = (c("p.channel"), c("p.topic"), c("p.attachment"))
    created_at = f.coalesce(*[noun["created_at"] for noun in nouns]).try_cast("timestamp")
    rows = t.deduplicate(others).select(
        "entity_id", "event_id", created_at.alias("created_at"), "ts"
    )
    return messages.toDF(*names).unionByName(rows)


def _times(creations: DataFrame) -> DataFrame:
    """Return creations whose time differs from the event's time.

    Times in different events are not compared, because a clock may be set back."""
    seconds = f.abs(f.unix_micros("ts") - f.unix_micros("created_at")) / 1e6
    rows = creations.where(seconds > schema.CREATED_SECONDS_MAX)
    return rows.select(*_row("log.ts", c("entity_id"), millis(c("ts")), millis(c("created_at"))))


def _versions(history: DataFrame) -> DataFrame:
    """Return changes that do not increase the version by one, beginning with 1."""
    order = Window.partitionBy("message_id").orderBy("event_id", "epoch")
    should = f.coalesce(f.lag("version").over(order), f.lit(0)) + 1
    rows = history.withColumn("should", should).where(c("version") != c("should"))
    return rows.select(*_row("log.version", c("message_id"), c("version"), c("should")))


def _twice(events: DataFrame) -> DataFrame:
    """Return ids that two different events share. A repeated identical event is allowed."""
    rows = source.contradictions(events, f.min("entity_id").alias("entity_id"))
    return rows.select(*_row("log.twice", c("entity_id"), c("n"), f.lit(1)))
