"""The current messages as plugins get them, and the results worth a row. Pure."""

from datetime import date

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

ISO_MS = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"


def c(name: str) -> Column:
    return f.col(name)


def current_messages(history: DataFrame, first: date | None, last: date | None) -> DataFrame:
    """The newest state of each message that is not a tombstone, first posted in these days."""
    rows = history
    if first is not None:
        rows = rows.where(c("day") >= f.lit(first))
    if last is not None:
        rows = rows.where(c("day") <= f.lit(last))
    rows = rows.where(c("valid_to").isNull() & c("deleted_at").isNull())
    return rows.where(c("content_raw").isNotNull() & c("sender").isNotNull()).select(
        c("message_id").alias("id"), "content_raw", "sender", "topic_id", "channel_id",
        f.date_format("created_at", ISO_MS).alias("created_at"), "version",
    )  # fmt: skip


def worth_a_row(results: DataFrame, enrichments: DataFrame, plugin: str) -> DataFrame:
    """Findings, and empty results for messages in which this plugin found something before."""
    mine = (c("plugin") == plugin) & (c("position") >= 0)
    before = enrichments.where(mine).select("message_id").distinct()
    before = before.withColumn("had_some", f.lit(True))
    rows = results.where(c("line").isNotNull()).join(before, "message_id", "left")
    return rows.where((c("findings") > 0) | c("had_some"))
