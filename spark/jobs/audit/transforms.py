"""Compares the log's state with the snapshot's state.

Both become frames with id, event_id and the compared columns as text. Pure: frames in, frames out.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.functions import col as c

from spark.jobs.audit import schema
from spark.jobs.ingest import schema as known
from spark.jobs.ingest import transforms as t

COLUMNS = schema.OUTPUT["differences"].names


def tombstone(at: Column, by: Column) -> Column:
    """Return a deletion's actor and time, or null for messages that were not deleted."""
    who, when = f.coalesce(by, f.lit("?")), f.coalesce(millis(at).cast("string"), f.lit("?"))
    text = f.concat(f.lit("by "), who, f.lit(" at "), when)
    return f.when(at.isNotNull() | by.isNotNull(), text)


def millis(at: Column) -> Column:
    return f.unix_millis(at)


def plain_json(text: Column) -> Column:
    """Return the JSON value in a normalized form."""
    return f.from_json(f.concat(f.lit('{"v":'), text, f.lit("}")), "v string")["v"]


def columns_of(noun: str) -> list[Column]:
    """Return the compared columns for a noun with an id. Both sides have these columns."""
    created_at = millis(c("created_at")).alias("created_at")
    columns: dict[str, list[Column]] = {
        "message": [
            c("version"), f.sha2("content_raw", 256).alias("content_hash"), c("topic_id"),
            c("channel_id"), c("sender"),
            tombstone(c("deleted_at"), c("deleted_by")).alias("tombstone"),
            created_at, millis(c("edited_at")).alias("edited_at"),
        ],
        "topic": [c("title"), c("channel_id"), created_at],
        "channel": [c("name"), c("description"), created_at],
        "attachment": [
            c("topic_id"), c("kind"), c("key"), plain_json(c("value_json")).alias("value"),
            c("dedupe_key"), c("source_message_id"), created_at,
        ],
    }  # fmt: skip
    return columns[noun]


# -- state of the log ------------------------------------------------------------------


def state(events: DataFrame, history: DataFrame) -> dict[str, DataFrame]:
    """Return each noun's state after the last event."""
    others = t.others_of(events)
    others = others.where(t.is_sound(known.OTHERS))
    titles = t.topic_history(t.SMALL["topics"].new(others))
    rows = {
        "message": _place(history, "message_id", ("created", "moved"), ("channel_id", "topic_id")),
        "topic": _place(titles, "topic_id", ("created",), ("channel_id",)),
        "channel": t.deduplicate(t.SMALL["channels"].new(others)),
        "attachment": t.deduplicate(t.SMALL["attachments"].new(others)),
    }
    made = {"enrichment": _count(valid_enrichments(others))}
    for noun, frame in rows.items():
        newest = frame.where(c("valid_to").isNull()) if "valid_to" in frame.columns else frame
        made[noun] = newest.select(c(f"{noun}_id").alias("id"), "event_id", *columns_of(noun))
    return made


def _place(
    history: DataFrame, id_: str, changes: tuple[str, ...], columns: tuple[str, ...]
) -> DataFrame:
    """Return the history with the given columns taken only from the payloads in `changes`.

    All remaining rows take the columns from their event's scope, which `faults` compares."""
    order = Window.partitionBy(id_).orderBy("event_id", "epoch")
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    stated = c("change").isin(*changes)
    for name in columns:
        known_value = f.last(f.when(stated, c(name)), ignorenulls=True).over(so_far)
        history = history.withColumn(name, f.coalesce(known_value, name))
    return history


def valid_enrichments(others: DataFrame) -> DataFrame:
    """Return each plugin's newest results. As in the hub, deleting the message keeps the
    results.

    `created_at` is null if another program wrote the result, because that program may read the
    clock twice."""
    results = t.SMALL["enrichments"].new(others)
    newest = t.enrichment_history(results).where(c("valid_to").isNull())
    written = f.when(c("plugin").isNotNull(), c("created_at"))
    return newest.withColumn("created_at", millis(written))


def _count(rows: DataFrame) -> DataFrame:
    """Count enrichments, which have no ids in the log, by message, kind, span and data."""
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
    """Return the rows in each noun's table, with the columns that the log's state has."""
    made = {}
    for noun, (table, _) in schema.COMPARED.items():
        rows = tables[table]
        times = {"created_at", "edited_at", "deleted_at"} & set(rows.columns)
        rows = rows.withColumns({name: c(name).try_cast("timestamp") for name in times})
        if noun == "enrichment":
            rows = rows.withColumn("created_at", millis(c("created_at")))
            counted = _count(rows.withColumn("event_id", f.lit(None).cast("bigint")))
            made[noun] = counted.drop("event_id")
        else:
            made[noun] = rows.select("id", *columns_of(noun))
    return made


# -- differences ------------------------------------------------------------------------


def compare(noun: str, log: DataFrame, snapshot: DataFrame) -> DataFrame:
    """Return one row for each difference: missing, unlogged, or a different value in a column."""
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
