"""What is new since the last run: a stream over the manifests that ends when it has seen all.

The files of a batch are noted in the checkpoint before the batch is done, and the batch as
done after it. So a run that was killed gets the same manifests again, and `handle` must leave
out what the published version remembers.
"""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.utils import StreamingQueryException

from spark import source

Handle = Callable[[list[source.Segment]], None]


def new_segments(spark: SparkSession, folder: Path, checkpoint: Path, handle: Handle) -> None:
    """Calls `handle` with the segments of each batch; what it raises comes out as it was."""
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
        .option("ignoreMissingFiles", "true")  # a compaction may have removed one since
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
