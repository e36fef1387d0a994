"""Compares the state from the log with the state of the snapshot.

Both become frames of (id, event_id, the compared columns as text). Pure: frames in, frames out.
"""

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
    placed = _place(history, "message_id", ("created", "moved"), ("channel_id", "topic_id"))
    newest = placed.where(c("valid_to").isNull())
    titles = t.topic_history(t.topic_facts(others))
    topics = _place(titles, "topic_id", ("created",), ("channel_id",))
    return {
        "message": newest.select(
            c("message_id").alias("id"), "event_id", "version",
            f.sha2("content_raw", 256).alias("content_hash"), "topic_id", "channel_id", "sender",
            tombstone(c("deleted_at"), c("deleted_by")).alias("tombstone"),
            millis(c("created_at")).alias("created_at"),
            millis(c("edited_at")).alias("edited_at"),
        ),
        "topic": topics.where(c("valid_to").isNull()).select(
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
        "enrichment": _count(valid_enrichments(others)),
    }  # fmt: skip


def _place(
    history: DataFrame, id_: str, changes: tuple[str, ...], columns: tuple[str, ...]
) -> DataFrame:
    """The history with these columns only from the payloads of `changes`. Other rows have them from
    the scope of their event, which `faults` compares."""
    order = Window.partitionBy(id_).orderBy("event_id", "epoch")
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    stated = c("change").isin(*changes)
    for name in columns:
        known_value = f.last(f.when(stated, c(name)), ignorenulls=True).over(so_far)
        history = history.withColumn(name, f.coalesce(known_value, name))
    return history


def valid_enrichments(others: DataFrame) -> DataFrame:
    """The newest results of each plugin; as in the hub, a deletion of the message keeps them. Their
    `created_at` is null if another program wrote them, because it may read the clock twice."""
    newest = t.enrichment_history(t.enrichments(others)).where(c("valid_to").isNull())
    written = f.when(c("plugin").isNotNull(), c("created_at"))
    return newest.withColumn("created_at", millis(written))


def _count(rows: DataFrame) -> DataFrame:
    """Enrichments have no ids in the log, so they are counted by message, kind, span and data."""
    sort = f.concat_ws(
        " ", "message_id", "kind", c("span_start").cast("string"), c("span_end").cast("string"),
        f.sha2(plain_json(c("data_json")), 256),
    )  # fmt: skip
    count = f.count(f.lit(1))
    times_are_known = f.count("created_at") == count
    return rows.groupBy(sort.alias("id")).agg(
        f.max("event_id").alias("event_id"),
        count.alias("count"),
        f.when(times_are_known, f.max("created_at")).alias("created_at"),
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
        "enrichment": _count(
            tables["enrichments"]
            .withColumn("created_at", at("created_at"))
            .withColumn("event_id", f.lit(None).cast("bigint"))
        ).drop("event_id"),
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
        if (noun, column) in schema.OPTIONAL:
            differs = differs & says.isNotNull()
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
