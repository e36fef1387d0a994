"""Finds new segments with a stream over the manifests, which ends after all available ones.

Spark records the files of a batch before it processes the batch. A run after a crash gets the same
manifests again, so `handle` has to skip segments that the published version contains.
"""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.utils import StreamingQueryException

from spark import source

Handle = Callable[[list[source.SegmentFile]], None]


def new_segments(spark: SparkSession, folder: Path, checkpoint: Path, handle: Handle) -> None:
    """Call `handle` with the segments of each batch. Its exceptions are raised unchanged."""
    raised: list[Exception] = []

    def each(rows: DataFrame, _number: int) -> None:
        try:
            handle([source.read_manifest(_path(row["path"])) for row in rows.collect()])
        except Exception as error:
            raised.append(error)
            raise

    manifests = (
        spark.readStream.schema("file string")
        .option("pathGlobFilter", f"*{source.MANIFEST}")
        .option("recursiveFileLookup", "true")
        .option("ignoreMissingFiles", "true")  # a compaction may have removed a file meanwhile
        .option("multiLine", "true")
        .json(str(folder))
    )
    query = (
        manifests.select(f.col("_metadata.file_path").alias("path"))
        .writeStream.foreachBatch(each)
        .trigger(availableNow=True)
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    try:
        query.awaitTermination()
    except StreamingQueryException:
        if raised:
            raise raised[0] from None
        raise


def _path(uri: str) -> Path:
    return Path(unquote(urlparse(uri).path))
