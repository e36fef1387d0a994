"""Brings the rows of days in the order of the log. Pure: frames in, frames out."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark.jobs.archive import schema


def order(rows: DataFrame) -> DataFrame:
    """Each row once, in the order of ids within its day and epoch, which are columns of their own.

    Rows that a restore discarded stay: they happened. The catalogue says which they are.
    """
    once = rows.dropDuplicates(["epoch", "event_id"])
    marked = once.withColumn(schema.DAY, f.to_date("ts").cast("string")).withColumn(
        schema.EPOCH, f.col("epoch")
    )
    folders = (schema.DAY, schema.EPOCH)
    return marked.repartition(*folders).sortWithinPartitions(*folders, "event_id")


def count(rows: DataFrame) -> DataFrame:
    """The number of different rows of each day."""
    once = rows.select("epoch", "event_id", f.to_date("ts").cast("string").alias("day")).distinct()
    return once.groupBy("day").count()
