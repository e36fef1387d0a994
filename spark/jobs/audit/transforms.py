"""Compares the state from the log with the state of the snapshot.

Both become frames of (id, event_id, the compared columns as text). Pure: frames in, frames out.
"""

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from spark.jobs.audit import schema
from spark.jobs.ingest import schema as known
from spark.jobs.ingest import transforms as t

COLUMNS = schema.OUTPUT["differences"].names


def c(name: str) -> Column:
    return f.col(name)


def tombstone(at: Column, by: Column) -> Column:
    """Actor and time of a deletion; null for other messages."""
    who, when = f.coalesce(by, f.lit("?")), f.coalesce(millis(at).cast("string"), f.lit("?"))
    text = f.concat(f.lit("by "), who, f.lit(" at "), when)
    return f.when(at.isNotNull() | by.isNotNull(), text)


def millis(at: Column) -> Column:
    return f.unix_millis(at)


def plain_json(text: Column) -> Column:
    """The JSON value in a normalized form."""
    return f.from_json(f.concat(f.lit('{"v":'), text, f.lit("}")), "v string")["v"]


# -- state of the log ------------------------------------------------------------------


def state(events: DataFrame, history: DataFrame) -> dict[str, DataFrame]:
    """The state of each noun after the last event."""
    others = t.others_of(events)
    others = others.where(t.is_sound(known.OTHERS))
    newest = history.where(c("valid_to").isNull())
    return {
        "message": newest.select(
            c("message_id").alias("id"), "event_id", "version",
            f.sha2("content_raw", 256).alias("content_hash"), "topic_id", "channel_id", "sender",
            tombstone(c("deleted_at"), c("deleted_by")).alias("tombstone"),
            millis(c("created_at")).alias("created_at"),
            millis(c("edited_at")).alias("edited_at"),
        ),
        "topic": t.topic_history(t.topic_facts(others)).where(c("valid_to").isNull()).select(
            c("topic_id").alias("id"), "event_id", "title", "channel_id",
            millis(c("created_at")).alias("created_at"),
        ),
        "channel": t.deduplicate(t.channels(others)).select(
            c("channel_id").alias("id"), "event_id", "name", "description",
            millis(c("created_at")).alias("created_at"),
        ),
        "attachment": t.deduplicate(t.attachments(others)).select(
            c("attachment_id").alias("id"), "event_id", "topic_id", "kind", "key",
            plain_json(c("value_json")).alias("value"), "dedupe_key", "source_message_id",
            millis(c("created_at")).alias("created_at"),
        ),
        "enrichment": _counted(t.deduplicate_positions(t.enrichments(others)), "event_id"),
    }  # fmt: skip


def _counted(rows: DataFrame, event: str | None) -> DataFrame:
    """Enrichments have no ids in the log, so they are counted by message, kind and content."""
    sort = f.concat_ws(
        " ", "message_id", "kind", c("span_start").cast("string"), c("span_end").cast("string"),
        f.sha2(plain_json(c("data_json")), 256),
    )  # fmt: skip
    number = f.max(event) if event else f.lit(None).cast("bigint")
    return rows.groupBy(sort.alias("id")).agg(
        number.alias("event_id"), f.count(f.lit(1)).alias("count")
    )


# -- state of the snapshot --------------------------------------------------------------


def kept(tables: dict[str, DataFrame]) -> dict[str, DataFrame]:
    """The rows of each noun's table, in the same columns."""

    def at(name: str) -> Column:
        return millis(c(name).try_cast("timestamp")).alias(name)

    messages, topics = tables["messages"], tables["topics"]
    channels, attachments = tables["channels"], tables["topic_attachments"]
    return {
        "message": messages.select(
            "id", "version", f.sha2("content_raw", 256).alias("content_hash"), "topic_id",
            "channel_id", "sender",
            tombstone(c("deleted_at").try_cast("timestamp"), c("deleted_by")).alias("tombstone"),
            at("created_at"), at("edited_at"),
        ),
        "topic": topics.select("id", "title", "channel_id", at("created_at")),
        "channel": channels.select("id", "name", "description", at("created_at")),
        "attachment": attachments.select(
            "id", "topic_id", "kind", "key", plain_json(c("value_json")).alias("value"),
            "dedupe_key", "source_message_id", at("created_at"),
        ),
        "enrichment": _counted(tables["enrichments"], None).drop("event_id"),
    }  # fmt: skip


# -- differences ------------------------------------------------------------------------


def compare(noun: str, log: DataFrame, snapshot: DataFrame) -> DataFrame:
    """One row for each difference: missing, unlogged, or another value in a column."""
    _, columns = schema.COMPARED[noun]
    left = log.select(f.struct(*log.columns).alias("l"), "id")
    right = snapshot.select(f.struct(*snapshot.columns).alias("s"), "id")
    both = left.join(right, "id", "full_outer")
    absent = f.when(c("s").isNull(), _difference(f"{noun}.missing", "in the log", None)).when(
        c("l").isNull(), _difference(f"{noun}.unlogged", None, "in the table")
    )
    differences = [absent]
    for column, kind in columns.items():
        says, holds = c(f"l.{column}").cast("string"), c(f"s.{column}").cast("string")
        differs = c("l").isNotNull() & c("s").isNotNull() & ~says.eqNullSafe(holds)
        differences.append(f.when(differs, _difference(f"{noun}.{kind}", says, holds)))
    return (
        both.withColumn("d", f.array_compact(f.array(*differences)))
        .where(f.size("d") > 0)
        .select(c("id").alias("entity_id"), c("l.event_id"), f.explode("d").alias("d"))
        .select(c("d.kind"), "entity_id", "event_id", "d.log_says", "d.snapshot_says")
    )  # fmt: skip


def _difference(kind: str, log: Column | str | None, snapshot: Column | str | None) -> Column:
    def text(value: Column | str | None) -> Column:
        return value if isinstance(value, Column) else f.lit(value).cast("string")

    return f.struct(
        f.lit(kind).alias("kind"),
        text(log).alias("log_says"),
        text(snapshot).alias("snapshot_says"),
    )


# -- errors in the log alone ------------------------------------------------------------


def log_faults(events: DataFrame, history: DataFrame) -> DataFrame:
    frames = [
        _unreadable(events), _scopes(events), _scopes_of_changes(history),
        _scopes_of_others(events), _versions(history), _twice(events),
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


def _scopes(events: DataFrame) -> DataFrame:
    """Events whose scope does not match their payload: subscribers of a topic would miss them."""
    rows = t.messages_of(events).where(t.is_sound(known.MESSAGES))
    moved = c("name") == "message.moved_topic"
    topic = f.when(moved, c("p.from_topic_id")).otherwise(c("p.topic_id"))
    should = f.concat_ws(
        " ",
        f.coalesce("p.channel_id", "scope_channel_id"),
        f.coalesce(topic, "scope_topic_id"),
        f.when(moved, c("p.topic_id")),
    )
    says = f.concat_ws(" ", "scope_channel_id", "scope_topic_id", "scope_topic_id2")
    return rows.where(says != should).select(*_row("log.scope", c("entity_id"), says, should))


def _scopes_of_changes(history: DataFrame) -> DataFrame:
    """Edits and deletions have no topic: their scope is the current topic of the message."""
    order = Window.partitionBy("message_id").orderBy("event_id", "epoch")
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    placed = c("change").isin("created", "moved")

    def last_known(name: str) -> Column:
        return f.last(f.when(placed, c(name)), ignorenulls=True).over(so_far)

    rows = history.select(
        "*", last_known("channel_id").alias("in_channel"), last_known("topic_id").alias("in_topic")
    )
    says = f.concat_ws(" ", "channel_id", "topic_id")
    should = f.concat_ws(
        " ", f.coalesce("in_channel", "channel_id"), f.coalesce("in_topic", "topic_id")
    )
    rows = rows.where(~placed & (says != should))
    return rows.select(*_row("log.scope", c("message_id"), says, should))


def _scopes_of_others(events: DataFrame) -> DataFrame:
    """Wrong scopes of channels, topics and attachments, as far as the payload shows them."""
    rows = t.others_of(events).where(t.is_sound(known.OTHERS))
    topic_ids = (c("p.topic")["id"], c("p.attachment")["topic_id"], c("p.topic_id"))
    # A channel has no topic; an enrichment has the topic of its message.
    topic = f.when(c("name") != "channel.created", f.coalesce(*topic_ids, c("scope_topic_id")))
    channel = f.coalesce(c("p.channel")["id"], c("p.topic")["channel_id"], c("scope_channel_id"))
    says = f.concat_ws(" ", "scope_channel_id", "scope_topic_id")
    should = f.concat_ws(" ", channel, topic)
    return rows.where(says != should).select(*_row("log.scope", c("entity_id"), says, should))


def _versions(history: DataFrame) -> DataFrame:
    """Changes that do not increase the version by one, beginning with 1."""
    order = Window.partitionBy("message_id").orderBy("event_id", "epoch")
    should = f.coalesce(f.lag("version").over(order), f.lit(0)) + 1
    rows = history.withColumn("should", should).where(c("version") != c("should"))
    return rows.select(*_row("log.version", c("message_id"), c("version"), c("should")))


def _twice(events: DataFrame) -> DataFrame:
    """Ids of two different events. The same event twice is allowed."""
    sides = f.struct("name", "entity_id", "data_json")
    rows = events.groupBy("event_id", "epoch").agg(
        f.count_distinct(sides).alias("n"), f.min("entity_id").alias("entity_id")
    )
    return rows.where("n > 1").select(*_row("log.twice", c("entity_id"), c("n"), f.lit(1)))
