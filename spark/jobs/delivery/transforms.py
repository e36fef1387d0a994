"""Transforms the outbox, broker, courier and run logs to daily numbers.

All functions are pure: frames in, frames out. A row from a sampled stream counts 1/sample_rate
times, so numbers for sampled streams are estimates.
"""

from collections.abc import Collection, Mapping
from datetime import date
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.functions import col as c

from spark.durations import bucket_of
from spark.jobs.delivery import plan, schema

WHERE = ("day", "log", "destination")
STAGE = (*WHERE, "stage")
# Text in errors that differs between messages with the same cause, and what replaces it.
MASKS = (
    (r"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>)]+", "<url>"),
    (r"(?<![\w-])(?=[\w-]*\d)[\w-]{16,}(?![\w-])", "<id>"),
    (r"(?<![\w.-])(?:[a-z0-9-]+\.)+[a-z]{2,}(?::\d+)?(?![\w-]|\.\w)", "<host>"),
    (r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?(?![\w.])", "<host>"),
    (
        r"(?i)(?<!\w)(?<!\bHTTP/)(?<!\bHTTP/\d\.)"
        r"(?<!\b(?:HTTP(?:/[\d.]{1,3})?|status(?: code)?|code)[ :=]{1,2})"
        r"(?-i)(?![1-5]\d\d [A-Z][a-z])\d+(?:[.,:]\d+)*",
        "<n>",
    ),
    (r"\s+", " "),
)


def once(rows: DataFrame) -> DataFrame:
    return rows.dropDuplicates(["epoch", "event_id"])


def named(*names: str) -> Column:
    return c("name").isin(*names)


def is_near(start: str, end: str) -> Column:
    """Return whether both days are near enough that every run that computes one reads both."""
    return f.datediff(end, start) <= plan.PAIR_DAYS


def is_first() -> Column:
    return f.coalesce(c("attempt"), f.lit(1)) <= 1


# -- logs -------------------------------------------------------------------------------


def outbox_rows(rows: DataFrame) -> DataFrame:
    """Count a send as delivered when its target accepts the event; there are no acks."""
    delivered = named("attempt.delivered")
    counts = _counts(
        accepted=named("send.accepted"), delivered=delivered,
        attempts=named("attempt.delivered", "attempt.failed"),
        failed=named("attempt.failed"), dead=named("send.dead"),
    )  # fmt: skip
    stage = _stage(schema.ACCEPT_TO_DELIVER, delivered, "accepted_at", "ts")
    return _rows(rows, "outbox", c("route"), counts, stage)


def broker_rows(rows: DataFrame) -> DataFrame:
    """Pair each ack with the last earlier delivery to its recipient."""
    sent, acked = named("delivery.sent"), named("delivery.acked")
    first = sent & is_first()
    recipient = Window.partitionBy("mesh_id", "message_id", "recipient").orderBy("ts", "event_id")
    before = recipient.rowsBetween(Window.unboundedPreceding, -1)
    latest = f.last(f.when(sent, c("ts")), ignorenulls=True).over(before)
    paired = rows.withColumn("latest", latest)
    paired = paired.withColumn("sent_at", f.when(is_near("latest", "ts"), c("latest")))
    counts = _counts(
        accepted=named("message.accepted"), delivered=first, acked=acked, attempts=sent,
        failed=named("delivery.failed"), dead=named("delivery.dead"),
    )  # fmt: skip
    return _rows(
        paired, "broker", f.concat_ws(":", "destination_kind", "destination_ref"), counts,
        _stage(schema.ACCEPT_TO_DELIVER, first, "accepted_at", "ts"),
        _stage(schema.DELIVER_TO_ACK, acked, "sent_at", "ts"),
        _stage(schema.ACCEPT_TO_ACK, acked, "accepted_at", "ts"),
    )  # fmt: skip


def courier_rows(rows: DataFrame) -> DataFrame:
    """Count several outcomes for a delivery as one delivery."""
    delivery = Window.partitionBy("stream", "message_id", "attempt", "delivered_at")
    ended = named("envelope.failed", "envelope.rejected", "envelope.expired")
    return _outcome_rows(
        rows.withColumn("place", f.row_number().over(delivery.orderBy("ts", "event_id"))),
        "courier", c("stream"), c("place") == 1,
        acked=named("envelope.acked"), failed=c("delivered_at").isNotNull() & ended,
        dead=named("envelope.dead"),
    )  # fmt: skip


def run_rows(rows: DataFrame) -> DataFrame:
    """Count a run as delivered when its first attempt starts, and as acked when one succeeds."""
    return _outcome_rows(
        rows, "runs", c("job"), f.lit(True),
        acked=named("attempt.succeeded"), failed=named("attempt.failed", "attempt.lost"),
        dead=c("run_state").isin("failed", "lost"),
    )  # fmt: skip


def _outcome_rows(
    rows: DataFrame, log: str, destination: Column, is_delivery: Column, **outcomes: Column
) -> DataFrame:
    """Return two rows for each row in a log that has only outcomes.

    One row is the outcome. The second is the delivery's start (`is_delivery`), which counts on its
    own day."""
    begun, acked = is_near("delivered_at", "ts") & is_delivery, outcomes["acked"]
    first = begun & is_first()
    ends = _rows(
        rows, log, destination, _counts(**outcomes),
        _stage(schema.DELIVER_TO_ACK, acked, "delivered_at", "ts"),
        _stage(schema.ACCEPT_TO_ACK, acked, "accepted_at", "ts"),
    )  # fmt: skip
    started = _stage(schema.ACCEPT_TO_DELIVER, first, "accepted_at", "delivered_at")
    starts = _rows(
        rows.where(begun).withColumn("ts", c("delivered_at")), log, destination,
        _counts(delivered=first, attempts=begun), started,
    )  # fmt: skip
    return ends.unionByName(starts)


def _rows(
    rows: DataFrame, log: str, destination: Column, counts: Column, *stages: Column
) -> DataFrame:
    weight = f.lit(1.0)
    if "sample_rate" in rows.columns:
        weight = 1 / f.greatest(c("sample_rate"), f.lit(1e-6))
    return rows.select(
        f.lit(log).alias("log"), destination.alias("destination"), weight.alias("weight"),
        "ts", "event_id", "error", counts.alias("counts"), f.array(*stages).alias("stages"),
    )  # fmt: skip


ROWS = {
    "outbox": outbox_rows, "broker": broker_rows, "courier": courier_rows, "runs": run_rows,
}  # fmt: skip


def entries(logs: Mapping[str, DataFrame], days: Collection[str]) -> DataFrame:
    """Return the given days' rows from all logs in the form that the tables are made from.

    Columns: day, log, destination, weight, ts, event_id, error, counts (a struct with numbers), and
    stages (an array with {stage, micros}).
    """
    rows = reduce(DataFrame.unionByName, [ROWS[log](once(frame)) for log, frame in logs.items()])
    wanted = [date.fromisoformat(day) for day in sorted(days)]
    return rows.withColumn("day", f.to_date("ts")).where(c("day").isin(wanted))


def unknown_names(logs: Mapping[str, DataFrame]) -> DataFrame:
    """Count, by name, each log's rows whose name is missing from the log's schema."""
    frames = [
        once(frame).where(~f.coalesce(named(*schema.NAMES[log]), f.lit(False)))
        .groupBy(f.lit(log).alias("log"), "name").count()
        for log, frame in logs.items()
    ]  # fmt: skip
    return reduce(DataFrame.unionByName, frames)


def _counts(**conditions: Column) -> Column:
    none = f.lit(False)
    return f.struct(
        *[
            f.coalesce(conditions.get(name, none), none).cast("int").alias(name)
            for name in schema.COUNTS
        ]
    )


def _stage(name: str, applies: Column, start: str, end: str) -> Column:
    """Return the stage's duration in microseconds, or null if the stage did not end here.

    A clock that was set back does not make a duration negative."""
    micros = f.greatest(f.unix_micros(end) - f.unix_micros(start), f.lit(0))
    known = applies & c(start).isNotNull() & c(end).isNotNull()
    return f.when(known, f.struct(f.lit(name).alias("stage"), micros.alias("micros")))


# -- tables -----------------------------------------------------------------------------


def latency(rows: DataFrame, objectives: Mapping[str, float]) -> DataFrame:
    """Return a row for each day, log, destination and stage, with nearest-rank percentiles."""
    stages = (
        rows.select("day", "log", "destination", "weight", f.explode("stages").alias("timed"))
        .where(c("timed").isNotNull())
        .select(*WHERE, "timed.stage", "weight", (c("timed.micros") / 1e6).alias("seconds"))
    )
    limits = f.create_map(*[f.lit(column) for pair in objectives.items() for column in pair])
    stages = stages.withColumn("objective_seconds", limits[c("stage")])
    return (
        _histograms(stages)
        .join(_percentiles(stages), list(STAGE))
        .select(*schema.OUTPUT["latency"].names)
    )


def _histograms(stages: DataFrame) -> DataFrame:
    met = f.when(c("seconds") <= c("objective_seconds"), c("weight")).otherwise(0.0)
    by_bucket = stages.groupBy(*STAGE, "objective_seconds", bucket_of(c("seconds")).alias("b")).agg(
        _whole(f.sum("weight")).alias("n"), f.sum(met).alias("met")
    )
    entry = f.struct("b", "n")
    return by_bucket.groupBy(*STAGE, "objective_seconds").agg(
        f.sum("n").alias("count"),
        f.map_from_entries(f.sort_array(f.collect_list(entry))).alias("buckets"),
        f.least(_whole(f.sum("met")), f.sum("n")).alias("within_objective"),
    )


def _percentiles(stages: DataFrame) -> DataFrame:
    """Return, for each percentage p, the smallest duration that p % of the weights do not exceed.

    `total` comes from a group, not from the window, which would have to hold all rows."""
    shortest = Window.partitionBy(*STAGE).orderBy("seconds")
    upto = f.sum("weight").over(shortest.rowsBetween(Window.unboundedPreceding, 0))
    totals = stages.groupBy(*STAGE).agg((f.sum("weight") * (1 - 1e-12)).alias("total"))
    ranked = stages.select(*STAGE, "seconds", upto.alias("upto")).join(totals, list(STAGE))
    reached = [
        f.min(f.when(c("upto") * 100 >= c("total") * percent, c("seconds")))
        .alias(f"p{percent}_seconds")
        for percent in schema.PERCENTS
    ]  # fmt: skip
    return ranked.groupBy(*STAGE).agg(*reached)


def outcomes(rows: DataFrame) -> DataFrame:
    sums = [_whole(f.sum(c("weight") * c(f"counts.{name}"))).alias(name) for name in schema.COUNTS]
    total = reduce(Column.__add__, [c(name) for name in schema.COUNTS])
    counted = rows.groupBy(*WHERE).agg(*sums)
    return counted.where(total > 0).select(*schema.OUTPUT["outcomes"].names)


def dead_letters(rows: DataFrame) -> DataFrame:
    """Return the top causes for each day, log and destination; combine the rest into one."""
    causes = (
        rows.where(c("counts.dead") > 0)
        .groupBy(*WHERE, cause_of(c("error")).alias("cause"))
        .agg(
            f.sum("weight").alias("weight"),
            f.max(f.struct("ts", "event_id", "error")).alias("newest"),
        )
    )
    frequent = Window.partitionBy(*WHERE).orderBy(f.desc("weight"), "cause")
    ranked = causes.withColumn("rank", f.row_number().over(frequent))
    kept = f.when(c("rank") <= schema.CAUSES_MAX, c("cause")).otherwise(schema.OTHER_CAUSES)
    example = f.substring(f.max("newest")["error"], 1, schema.EXAMPLE_CHARACTERS_MAX)
    return (
        ranked.groupBy(*WHERE, kept.alias("cause"))
        .agg(_whole(f.sum("weight")).alias("count"), example.alias("example"))
        .select(*schema.OUTPUT["dead_letters"].names)
    )


def cause_of(error: Column) -> Column:
    """Return the error without addresses, ids and numbers; keep HTTP statuses and exit codes."""
    text = error
    for pattern, mask in MASKS:
        text = f.regexp_replace(text, pattern, mask)
    text = f.substring(f.trim(text), 1, schema.CAUSE_CHARACTERS_MAX)
    return f.coalesce(f.when(text != "", text), f.lit(schema.NO_CAUSE))


def _whole(number: Column) -> Column:
    return f.round(number).cast("long")
