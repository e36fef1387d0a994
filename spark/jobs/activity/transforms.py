"""Transforms the message history to daily counts. Pure: frames in, frames out.

Days are UTC. A reply counts for the message that it follows, so messages from the day after each
requested day are read too, and messages from the day before for the previous sender.
"""

from collections.abc import Collection, Sequence
from datetime import date

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.functions import col as c

from spark.durations import bucket_of
from spark.jobs.activity import schema

WHERE = ("day", "channel_id", "topic_id", "sender")
MICROS = 1_000_000
EPOCH = date(1970, 1, 1).toordinal()


def near(messages: DataFrame, days: Collection[str]) -> DataFrame:
    """Return changes on the given days and one day before and after each; `day` is the change's
    day.

    A change's partition is its message's day, which is never later.
    """
    around = numbers(days, 1)
    rows = messages.where(f"unix_date(day) <= {around[-1]}")
    return rows.where(is_on("to_date(valid_from)", around)).select(
        f.to_date("valid_from").alias("day"),
        "channel_id", "topic_id", "sender", "change", "valid_from", "event_id",
    )  # fmt: skip


def within(rows: DataFrame, days: Collection[str]) -> DataFrame:
    return rows.where(is_on("day", numbers(days)))


def numbers(days: Collection[str], around: int = 0) -> list[int]:
    """Return the given days, and `around` days on each side, as numbers since 1970."""
    ordinals = [date.fromisoformat(day).toordinal() - EPOCH for day in days]
    return sorted({day + n for day in ordinals for n in range(-around, around + 1)})


def is_on(day: str, some: Sequence[int]) -> str:
    """Return one SQL text, because a literal for each day takes a call each."""
    return f"unix_date({day}) IN ({', '.join(map(str, some))})"


def sequence(rows: DataFrame) -> DataFrame:
    """Return created messages with their previous senders and waiting times in microseconds.

    `answer_wait` is the time since the answered message; `reply_wait` is the time until another
    sender replied. The window runs backwards, so that one sort is enough for both.
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
    reply_wait = f.last("turn_at", ignorenulls=True).over(seen) - c("at")
    answer_wait = f.when(c("before") != c("sender"), c("at") - c("before_at"))
    return messages.withColumns(
        {"reply_wait": _in_time(reply_wait), "answer_wait": _in_time(answer_wait)}
    )


def _in_time(wait: Column) -> Column:
    return f.when(wait <= schema.REPLY_SECONDS_MAX * MICROS, wait)


def spans(messages: DataFrame) -> DataFrame:
    """Return runs: a sender's messages in a topic without a long gap, within one day."""
    mine = Window.partitionBy(*WHERE).orderBy("at", "event_id")
    gap_micros = schema.SPAN_GAP_SECONDS_MAX * MICROS
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
    """Return replies: messages that follow another sender's message in the topic in time."""
    turns = messages.where(c("answer_wait").isNotNull())
    keys = (*WHERE, "answers")
    replies = with_waits(turns.withColumn("answers", c("before")), keys, "answer_wait")
    return replies.select(
        *keys,
        c("count").alias("replies"),
        "reply_buckets",
        quantile("waits", 0.5).alias("median_seconds"),
        quantile("waits", 0.95).alias("p95_seconds"),
    ).select(*schema.OUTPUT["pairs"].names)


def activity(rows: DataFrame, messages: DataFrame, spent: DataFrame) -> DataFrame:
    """Return one row for each day, channel, topic and sender with activity."""
    changed = rows.groupBy(*WHERE).agg(
        f.count_if(c("change") == "created").alias("messages"),
        f.count_if(c("change") == "edited").alias("edits"),
        f.count_if(c("change") == "deleted").alias("deletes"),
        f.count_if(c("change") == "moved").alias("moves"),
    )
    answered = with_waits(messages.where(c("reply_wait").isNotNull()), WHERE, "reply_wait").select(
        *WHERE,
        c("count").alias("replied"),
        "reply_buckets",
        quantile("waits", 0.5).alias("first_reply_median_seconds"),
        quantile("waits", 0.95).alias("first_reply_p95_seconds"),
    )
    active = spent.groupBy(*WHERE).agg(
        f.count(f.lit(1)).alias("active_spans"),
        f.sum((f.unix_micros("ended_at") - f.unix_micros("started_at")) / MICROS).alias(
            "active_seconds"
        ),
    )
    joined = changed
    for frame in (answered, active):
        same = [c(f"l.{name}").eqNullSafe(c(f"r.{name}")) for name in WHERE]
        joined = (
            joined.alias("l")
            .join(frame.alias("r"), same, "left")
            .select("l.*", *[f"r.{name}" for name in frame.columns if name not in WHERE])
        )
    zeros = {"replied": 0, "active_spans": 0, "active_seconds": 0.0}
    empty = f.create_map().cast("map<bigint,bigint>")
    return (
        joined.fillna(zeros)
        .withColumn("reply_buckets", f.coalesce("reply_buckets", empty))
        .select(*schema.OUTPUT["activity"].names)
    )


# -- waiting times ----------------------------------------------------------------------


def with_waits(messages: DataFrame, keys: Sequence[str], wait: str) -> DataFrame:
    """Return each group's wait count, all its waits in order, and their histogram."""
    rows = messages.select(
        *keys, c(wait).alias("wait"), bucket_of(c(wait) / MICROS).alias("bucket")
    )
    collected = rows.groupBy(*keys).agg(
        f.count("wait").alias("count"),
        f.sort_array(f.collect_list("wait")).alias("waits"),
        f.sort_array(f.collect_list("bucket")).alias("buckets"),
    )
    # In a column of its own, because a lambda would compute it again for each element.
    ends = f.filter(
        f.sequence(f.lit(1), f.size("buckets")),
        lambda end: ~f.get("buckets", end).eqNullSafe(f.get("buckets", end - 1)),
    )
    counts = f.transform(
        "ends", lambda end, n: (end - f.coalesce(f.get("ends", n - 1), f.lit(0))).cast("bigint")
    )
    buckets = f.map_from_arrays(f.array_distinct("buckets"), counts)
    return (
        collected.withColumn("ends", ends)
        .withColumn("reply_buckets", buckets)
        .drop("buckets", "ends")
    )


def quantile(ordered: str, share: float) -> Column:
    """Return seconds between the two nearest ordered microseconds, or null if there are none."""
    index = (f.size(ordered) - 1) * share
    low = f.get(ordered, f.floor(index).cast("int"))
    high = f.get(ordered, f.ceil(index).cast("int"))
    return (low + (high - low) * (index - f.floor(index))) / MICROS


# -- names ------------------------------------------------------------------------------


def newest(changes: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return the newest row for each value in the first column."""
    key, *others = columns
    return changes.groupBy(key).agg(*[f.max_by(name, "event_id").alias(name) for name in others])
