"""Transforms the message history to daily counts. Pure: frames in, frames out.

Days are UTC. A reply counts for the message that it follows, so the messages of the day after the
last requested one are read too, and those of the day before the first for the previous sender.
"""

from datetime import date, timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from spark.jobs.activity import schema

WHERE = ("day", "channel_id", "topic_id", "sender")


def c(name: str) -> Column:
    return f.col(name)


def later(day: date, days: int) -> Column:
    """The day that many days later, limited to the range of dates."""
    try:
        target = day + timedelta(days=days)
    except OverflowError:
        target = date.max if days > 0 else date.min
    return f.lit(target.isoformat()).cast("date")  # Spark rejects a date of year 1 as a literal


def near(messages: DataFrame, first: date, last: date) -> DataFrame:
    """Changes in the requested days and one day before and after; `day` is their day."""
    return (
        messages.where(c("day") <= later(last, 1))
        .where(c("valid_from") >= later(first, -1).cast("timestamp"))
        .where(c("valid_from") < later(last, 2).cast("timestamp"))
        .select(
            f.to_date("valid_from").alias("day"),
            "channel_id", "topic_id", "sender", "change", "valid_from", "event_id",
        )
    )  # fmt: skip


def within(rows: DataFrame, first: date, last: date) -> DataFrame:
    return rows.where(c("day").between(later(first, 0), later(last, 0)))


def sequence(rows: DataFrame) -> DataFrame:
    """Created messages, each with the previous sender and the time until another sender replied.

    The window runs backwards, so that one sort is enough for both.
    """
    backwards = Window.partitionBy("topic_id").orderBy(f.desc("valid_from"), f.desc("event_id"))
    seen = backwards.rowsBetween(Window.unboundedPreceding, -1)
    at = f.unix_micros("valid_from")
    created = rows.where(c("change") == "created").withColumn("at", at)
    messages = created.select(
        "*",
        f.lead("sender").over(backwards).alias("before"),
        f.lead("at").over(backwards).alias("before_at"),
    )
    starts_turn = f.coalesce(c("before") != c("sender"), f.lit(True))
    messages = messages.withColumn("turn_at", f.when(starts_turn, c("at")))
    # Inside a turn, the next turn is that of a later row.
    waited = f.last("turn_at", ignorenulls=True).over(seen) - c("at")
    soon = waited <= schema.REPLY_SECONDS_MAX * 1_000_000
    return messages.withColumn("reply_seconds", f.when(soon, waited / 1e6))


def spans(messages: DataFrame) -> DataFrame:
    """Runs of a sender's messages in a topic without a long gap, within one day."""
    mine = Window.partitionBy(*WHERE).orderBy("at", "event_id")
    gap_micros = schema.SPAN_GAP_SECONDS_MAX * 1_000_000
    begins = f.coalesce(c("at") - f.lag("at").over(mine) > gap_micros, f.lit(True))
    return (
        messages.withColumn("begins", begins.cast("int"))
        .withColumn("span", f.sum("begins").over(mine.rowsBetween(Window.unboundedPreceding, 0)))
        .groupBy(*WHERE, "span")
        .agg(
            f.min("valid_from").alias("started_at"),
            f.max("valid_from").alias("ended_at"),
            f.count(f.lit(1)).alias("messages"),
        )
        .select(*schema.OUTPUT["spans"].names)
    )


def pairs(messages: DataFrame) -> DataFrame:
    """Replies: a message that follows another sender's message in its topic in time."""
    after = c("at") - c("before_at")
    turns = messages.where(
        (c("before") != c("sender")) & (after <= schema.REPLY_SECONDS_MAX * 1_000_000)
    )
    return (
        turns.groupBy(*WHERE, c("before").alias("answers"))
        .agg(
            f.count(f.lit(1)).alias("replies"),
            f.median(after / 1e6).alias("median_seconds"),
        )
        .select(*schema.OUTPUT["pairs"].names)
    )


def activity(
    rows: DataFrame, messages: DataFrame, spent: DataFrame, topics: DataFrame, channels: DataFrame
) -> DataFrame:
    """One row for each day, channel, topic and sender with activity."""
    changed = rows.groupBy(*WHERE).agg(
        f.count_if(c("change") == "created").alias("messages"),
        f.count_if(c("change") == "edited").alias("edits"),
        f.count_if(c("change") == "deleted").alias("deletes"),
        f.count_if(c("change") == "moved").alias("moves"),
    )
    answered = messages.groupBy(*WHERE).agg(
        f.count("reply_seconds").alias("replied"),
        f.percentile("reply_seconds", f.lit(0.5)).alias("first_reply_median_seconds"),
        f.percentile("reply_seconds", f.lit(0.95)).alias("first_reply_p95_seconds"),
    )
    active = spent.groupBy(*WHERE).agg(
        f.count(f.lit(1)).alias("active_spans"),
        f.sum((f.unix_micros("ended_at") - f.unix_micros("started_at")) / 1e6).alias(
            "active_seconds"
        ),
    )
    joined = changed
    for each in (answered, active):
        same = [c(f"l.{name}").eqNullSafe(c(f"r.{name}")) for name in WHERE]
        joined = (
            joined.alias("l")
            .join(each.alias("r"), same, "left")
            .select("l.*", *[f"r.{name}" for name in each.columns if name not in WHERE])
        )
    names = channels.select("channel_id", c("name").alias("channel"))
    named = joined.join(titles(topics), "topic_id", "left").join(names, "channel_id", "left")
    zeros = {"replied": 0, "active_spans": 0, "active_seconds": 0.0}
    return named.fillna(zeros).select(*schema.OUTPUT["activity"].names)


def titles(topics: DataFrame) -> DataFrame:
    newest = topics.where(c("valid_to").isNull())
    return newest.select("topic_id", c("title").alias("topic"))
