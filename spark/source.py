"""Reads segment events as frames, without what restores removed."""

from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from spark import schemas
from spark.segments import EVENTS, EpochEnd, SegmentFile


def read(
    spark: SparkSession,
    segments: Sequence[SegmentFile],
    kind: str = EVENTS,
    added: Mapping[str, Sequence[str]] | None = None,
    more_columns: Sequence[str] = (),
) -> DataFrame:
    """Return one log's events in these segments, with its schema's columns in any format.

    added         columns beyond the schema, by segment name, which become payload fields:
                  `"column.NAME"`, as text
    more_columns  file columns, such as `_metadata.file_path`
    """
    schema, more = schemas.segments(kind), added or {}
    plain = [segment for segment in segments if not more.get(segment.name)]
    reader, frames = spark.read.schema(schema), []
    for form, format_name in (("parquet", "parquet"), ("jsonl", "json")):
        if paths := [str(segment.path) for segment in plain if segment.format == form]:
            frames.append(reader.load(paths, format=format_name))
    for segment in segments:
        if names := more.get(segment.name):
            frames.append(_with_columns_as_fields(spark, segment, schema, names))
    if not frames:
        return spark.createDataFrame([], schema)
    columns = (*schema.names, *more_columns)
    return reduce(DataFrame.unionByName, [frame.select(*columns) for frame in frames])


def _with_columns_as_fields(
    spark: SparkSession, segment: SegmentFile, schema: StructType, names: Sequence[str]
) -> DataFrame:
    if segment.format == "parquet":
        frame = spark.read.parquet(str(segment.path))  # each column with its own type
    else:
        wider = StructType([*schema.fields, *[StructField(name, StringType()) for name in names]])
        frame = spark.read.schema(wider).json(str(segment.path))
    if "data_json" not in schema.names:
        return frame
    quoted = [f.col("`" + name.replace("`", "``") + "`").cast("string") for name in names]
    fields = f.to_json(
        f.struct(*[each.alias(f"column.{name}") for each, name in zip(quoted, names, strict=True)])
    )
    text, inner = f.col("data_json"), f.expr("substring(fields, 2)")
    begun = f.regexp_replace(text, r"\s*\}\s*$", "")
    comma = f.when(begun.rlike(r"^\s*\{\s*$"), "").otherwise(",")
    spliced = f.when(
        text.rlike(r"\}\s*$") & (f.col("fields") != "{}"), f.concat(begun, comma, inner)
    ).otherwise(text)
    return frame.withColumn("fields", fields).withColumn("data_json", spliced)


def undone(frame: DataFrame, ends: Sequence[EpochEnd]) -> DataFrame:
    """Return event rows that restores removed."""
    return frame.where(_is_beyond(ends))


def drop_undone(frame: DataFrame, ends: Sequence[EpochEnd]) -> DataFrame:
    """Return rows without events that restores removed; bad rows may lack both columns."""
    return frame.where(~f.coalesce(_is_beyond(ends), f.lit(False))) if ends else frame


def contradictions(rows: DataFrame, *about: Column) -> DataFrame:
    """Return the ids with differing contents, how many (`n`) there are, and `about` them."""
    own = [name for name in rows.columns if name not in ("event_id", "epoch", "file_name")]
    contents = f.count_distinct(f.struct(*own)).alias("n")
    return rows.groupBy("event_id", "epoch").agg(contents, *about).where("n > 1")


def names_of_files() -> Column:
    """Return the names of the files that have a group's rows."""
    return f.sort_array(f.collect_set("file_name")).alias("files")


def _is_beyond(ends: Sequence[EpochEnd]) -> Column:
    beyond = [(f.col("epoch") == end.epoch) & (f.col("event_id") > end.last) for end in ends]
    return reduce(Column.__or__, beyond)
