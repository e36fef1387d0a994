"""Sorts days' rows in log order. Pure: frames in, frames out."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark.jobs.archive import schema


def order(rows: DataFrame) -> DataFrame:
    """Return each row once, sorted by id within its day and epoch, which become separate
    columns.

    Rows that a restore discarded stay, because the events happened; the catalogue lists them.
    """
    once = rows.dropDuplicates(["epoch", "event_id"])
    marked = once.withColumn(schema.DAY, f.to_date("ts").cast("string")).withColumn(
        schema.EPOCH, f.col("epoch")
    )
    folders = (schema.DAY, schema.EPOCH)
    return marked.repartition(*folders).sortWithinPartitions(*folders, "event_id")


def extents(stored: DataFrame) -> DataFrame:
    """Return each file's path and the part of its catalogue entry that the rows determine."""
    files = stored.groupBy(
        f.col("_metadata.file_path").alias("path"),
        f.col(schema.DAY).alias("date"),
        f.col(schema.EPOCH).alias("epoch"),
    ).agg(
        f.min("event_id").alias("first_event_id"),
        f.max("event_id").alias("last_event_id"),
        f.count(f.lit(1)).alias("rows"),
    )
    columns = [name for name in files.columns if name != "path"]
    return files.select("path", f.struct(*columns).alias("entry")).orderBy("path")
