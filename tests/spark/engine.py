"""Settings of the engine for a few rows: planning and compiling are nearly all of the work."""

import sysconfig
from pathlib import Path

SPARK = Path(sysconfig.get_path("purelib"), "pyspark")
# What tests/spark/archive-classes writes while the environment is made.
CLASS_PATH, ARCHIVE = SPARK / "classpath.jar", SPARK / "classes.jsa"
SETTINGS = {
    # Tests make thousands of tables; each that is cached holds some megabytes.
    "spark.databricks.delta.delta.log.cacheSize": "20",
    # As the jobs set it: a notebook would read the log of each table in fifty tasks.
    "spark.databricks.delta.snapshotPartitions": "1",
    # The quick compiler alone. Its default for code, 48 MB, is full after a few runs of a job, and
    # from then on Java compiles nothing. One thread collects garbage, as each core has a session,
    # and not whenever some more classes are loaded. Large pages of memory take 7 % off the time.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
    " -XX:-UseParallelGC -XX:+UseSerialGC -XX:MetaspaceSize=512m -XX:+UseTransparentHugePages"
    f" -XX:SharedArchiveFile={ARCHIVE} -Xlog:cds*=off",
    "spark.driver.extraClassPath": str(CLASS_PATH),
    "spark.sql.adaptive.enabled": "false",  # it makes a job of each stage
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.dataFrameQueryContext.enabled": "false",  # the stack at each call, for errors
    "spark.sql.files.minPartitionNum": "1",  # a task for all small files
    "spark.sql.lightweightPlanChangeValidation": "false",  # plans are those of every run
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.ui.explainMode": "simple",  # a text of each plan, which nobody reads here
    "spark.ui.enabled": "false",
}


def configure(folder: Path) -> dict[str, str]:
    """Write the settings to `folder`. Returns variables for a process that starts a session."""
    lines = [f"{name} {value}\n" for name, value in SETTINGS.items()]
    (folder / "spark-defaults.conf").write_text("".join(lines))
    return {"SPARK_CONF_DIR": str(folder), "SPARK_LOCAL_IP": "127.0.0.1"}
