"""Selects what an order names, and returns silver rows without content. Pure: frames in, frames
out.

A selection has the columns `kind` (message or attachment) and `id`.
"""

from functools import partial, reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.functions import col as c

from spark.jobs.erase import payload, schema
from spark.jobs.erase.order import ErasureOrder
from spark.jobs.erase.schema import ATTACHMENT, MESSAGE

ATTACHED = "topic.attachment_added"


# -- what an order selects ---------------------------------------------------------------


def facts_in_log(events: DataFrame) -> DataFrame:
    """Return a row for each message or attachment event, with what an order may name."""
    is_attached = c("name") == ATTACHED
    kind = f.when(c("entity_type") == "message", MESSAGE).when(is_attached, ATTACHMENT)
    created = f.get_json_object("data_json", "$.message.sender")
    source = f.get_json_object("data_json", "$.attachment.source_message_id")
    rows = events.select(
        f.lit("log").alias("origin"),
        kind.alias("kind"),
        c("entity_id").alias("id"),
        f.when(c("name") == "message.created", created).alias("sender"),
        f.when(is_attached, source).alias("source"),
        c("scope_channel_id").alias("channel_id"),
        f.coalesce("scope_topic_id2", "scope_topic_id").alias("topic_id"),
        c("ts").alias("at"),
        "event_id",
    )
    return rows.where(c("kind").isNotNull() & c("id").isNotNull())


def facts_in_silver(messages: DataFrame, attachments: DataFrame) -> DataFrame:
    """Return what `facts_in_log` returns, from two silver tables. Only the log has an
    attachment's channel."""
    of_messages = messages.select(
        f.lit(MESSAGE).alias("kind"), c("message_id").alias("id"), "sender", "channel_id",
        "topic_id", c("valid_from").alias("at"), "event_id",
    )  # fmt: skip
    of_attachments = attachments.select(
        f.lit(ATTACHMENT).alias("kind"), c("attachment_id").alias("id"), "topic_id",
        c("source_message_id").alias("source"), c("created_at").alias("at"), "event_id",
    )  # fmt: skip
    rows = of_messages.unionByName(of_attachments, allowMissingColumns=True)
    return rows.withColumn("origin", f.lit("silver"))


def select(facts: DataFrame, order: ErasureOrder, known: DataFrame) -> DataFrame:
    """Return what the order selects by current channel and topic, what is `known` to be
    selected, and the attachments of selected messages. Facts may come from before and after an
    erasure, so one match is enough."""
    things = facts.groupBy("origin", "kind", "id").agg(
        f.max("sender").alias("sender"),
        f.max("source").alias("source"),
        _newest("channel_id"),
        _newest("topic_id"),
        f.min("at").alias("at"),
    )
    chosen = things.where(_is_meant(order)).select("kind", "id").unionByName(known)
    ids = chosen.select(c("id").alias("source"))
    attached = things.join(ids, "source", "left_semi").select("kind", "id")
    return chosen.unionByName(attached).distinct()


def _newest(name: str) -> Column:
    return f.max_by(name, f.when(c(name).isNotNull(), c("event_id"))).alias(name)


def _is_meant(order: ErasureOrder) -> Column:
    """Return whether a list has the column's value. An order with `before` alone has no lists."""
    lists = {"id": order.messages, "sender": order.senders, "channel_id": order.channels,
             "topic_id": order.topics}  # fmt: skip
    named = [f.coalesce(c(name).isin(list(values)), f.lit(False))
             for name, values in lists.items() if values]  # fmt: skip
    mine = reduce(Column.__or__, named) if named else f.lit(True)
    return mine if order.before is None else mine & (f.to_date("at") < f.lit(order.before))


def of(rows: DataFrame, chosen: DataFrame, column: str, how: str = "left_semi") -> DataFrame:
    """Return the rows about something selected, by the column with the id; left_anti returns all
    others."""
    return rows.join(chosen.select(c("id").alias(column)), column, how)


# -- rows without content ----------------------------------------------------------------


def erase_event(order: ErasureOrder) -> Column:
    """Return an event's payload without content."""
    erase = partial(payload.erase, senders=order.senders, becomes=order.sender_becomes)
    return f.udf(erase, "string", useArrow=False)("name", "data_json")


def erase(table: str, rows: DataFrame, order: ErasureOrder) -> DataFrame:
    """Return silver rows without content, and with the order's sender."""
    made = {name: _unless_null(name, text) for name, text in schema.ERASED.items()}
    is_tombstone = (c("content_raw") == schema.TOMBSTONE) & c("deleted_at").isNotNull()
    made["content_raw"] = f.when(is_tombstone, c("content_raw")).otherwise(made["content_raw"])
    made["extra"] = f.transform_values("extra", lambda _key, _value: f.lit(payload.MARKER))
    if table in schema.EVENT_TABLES:
        made["data_json"] = erase_event(order)
    elif order.sender_becomes is not None:
        made[payload.SENDER] = _unless_null(payload.SENDER, order.sender_becomes)
        for name in payload.PEOPLE:
            is_sender = c(name).isin(list(order.senders))
            made[name] = f.when(is_sender, f.lit(order.sender_becomes)).otherwise(c(name))
    return rows.withColumns({name: made[name] for name in rows.columns if name in made})


def with_content(table: str, rows: DataFrame, order: ErasureOrder) -> DataFrame:
    """Return the rows that erasing changes, after the change."""
    text = f.to_json(f.struct(*rows.columns))
    return erase(table, rows.withColumn("before", text), order).where(text != c("before"))


def _unless_null(name: str, text: str) -> Column:
    return f.when(c(name).isNotNull(), f.lit(text))
