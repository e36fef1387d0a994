"""Settings of the engine for a few rows: planning and compiling are nearly all of the work."""

SETTINGS = {
    # Tests make thousands of tables; each that is cached holds some megabytes.
    "spark.databricks.delta.delta.log.cacheSize": "20",
    # The quick compiler alone. Its default for code, 48 MB, is full after a few runs of a job, and
    # from then on Java compiles nothing.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m",
    "spark.sql.adaptive.enabled": "false",  # it makes a job of each stage
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.lightweightPlanChangeValidation": "false",  # plans are those of every run
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.ui.explainMode": "simple",  # a text of each plan, which nobody reads here
}
