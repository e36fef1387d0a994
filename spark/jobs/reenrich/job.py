"""Runs a plugin over the current messages and writes the file of changes.

    <out>/changes/<plugin>.jsonl          a header, then a row for each message, by message id
    <out>/changes/<plugin>.manifest.json  hash, counts and errors; written last

The hub applies the file: `agentlip plugin apply`.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark.errors import SegmentMissing, Usage
from spark.files import remove_folder, writable
from spark.jobs.ingest.job import silver
from spark.jobs.reenrich import enricher, schema
from spark.jobs.reenrich import transforms as t
from spark.jobs.reenrich.enricher import PluginText
from spark.locations import Location, location
from spark.request import JobReport, JobRequest
from spark.tables import Version

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
DRAFT = ".draft-"
RESULT = schema.RESULT + ", findings bigint"


def run(ask: JobRequest) -> JobReport:
    plugin = _plugin(ask)
    version = silver(ask.source).current()
    if version is None:
        raise SegmentMissing(f"{ask.source} contains no silver tables: run ingest first")
    folder = ask.out / "changes"
    draft = folder / f"{DRAFT}{plugin.name}"
    with writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        remove_folder(draft)
    try:
        return _write(ask, plugin, version, folder, draft)
    finally:
        remove_folder(draft)


def _write(
    ask: JobRequest, plugin: PluginText, version: Version, folder: Location, draft: Location
) -> JobReport:
    spark = ask.spark
    messages = t.current_messages(version.read(spark, "messages"), ask.first_day, ask.last_day)
    with ask.progress.step(spark, "reenrich: messages"):
        results = messages.mapInArrow(partial(_enrich_all, plugin=plugin), RESULT)
        results.write.mode("overwrite").parquet(str(draft / "results"))
        results = spark.read.schema(RESULT).parquet(str(draft / "results"))
    with ask.progress.step(spark, "reenrich: changes"):
        rows = t.worth_a_row(results, version.read(spark, "enrichments"), plugin.name)
        rows.orderBy("message_id").select("line").write.text(str(draft / "lines"))
        counts, errors = _counts(results)
    file = folder / f"{plugin.name}.jsonl"
    manifest = _assemble(ask, plugin, version, draft, file)
    counts |= {"rows": manifest["rows"]}
    manifest |= {"counts": counts, "errors": errors}
    path = file.with_name(f"{plugin.name}.manifest.json")
    ask.require_lease()
    with writable(folder):
        (draft / path.name).write_bytes(json.dumps(manifest, indent=1).encode())
        path.unlink(missing_ok=True)
        (draft / file.name).replace(file)
        (draft / path.name).replace(path)
    return JobReport(counts, [], file)


def _assemble(
    ask: JobRequest, plugin: PluginText, version: Version, draft: Location, file: Location
) -> dict[str, Any]:
    """Join the parts in order behind the header. Returns the manifest."""
    _, plugin_version = enricher.load(plugin)
    newest = max(version.memory["newest"].items(), key=lambda item: item[1], default=("", 0))
    header = {
        "schema": schema.SCHEMA,
        "plugin": plugin.name,
        "plugin_version": plugin_version,
        "source_sha256": _sha256(plugin.source),
        "config_sha256": _sha256(plugin.config),
        "epoch": newest[0],
        "as_of_event_id": newest[1],
        "first_day": ask.first_day and str(ask.first_day),
        "last_day": ask.last_day and str(ask.last_day),
    }
    digest, size, rows = hashlib.sha256(), 0, 0
    with writable(draft), (draft / file.name).open("wb") as target:
        for line in _lines(header, draft / "lines"):
            target.write(line)
            digest.update(line)
            size += len(line)
            rows += 1
    named = {"file": file.name, "bytes": size, "sha256": digest.hexdigest(), "rows": rows - 1}
    return header | named


def _lines(header: dict[str, Any], parts: Location) -> Iterator[bytes]:
    yield json.dumps(header, ensure_ascii=False).encode() + b"\n"
    for part in sorted(parts.glob("part-*")):
        with part.open("rb") as file:
            yield from file


def _counts(results: DataFrame) -> tuple[dict[str, int], list[dict[str, Any]]]:
    sums = results.agg(
        f.count(f.lit(1)).alias("messages"),
        f.count_if(f.col("findings") > 0).alias("with_findings"),
        f.coalesce(f.sum("findings"), f.lit(0)).alias("findings"),
        f.count_if(f.col("error").isNotNull()).alias("errors"),
    )
    (row,) = sums.collect()
    failed = results.where("error is not null").orderBy("message_id")
    listed = failed.select("message_id", "error", f.col("error_line").alias("line"))
    few = listed.limit(schema.ERRORS_LISTED_MAX).collect()
    return row.asDict(), [message.asDict() for message in few]


def _enrich_all(batches: Iterator[Any], plugin: PluginText) -> Iterator[Any]:
    """On an executor: the results for batches of messages."""
    arrow = import_module("pyarrow")
    function, _ = enricher.load(plugin)
    for batch in batches:
        messages = batch.to_pylist()
        results = [enricher.enrich(function, plugin, message) for message in messages]
        columns = [
            arrow.array([message["id"] for message in messages], arrow.string()),
            arrow.array([message["version"] for message in messages], arrow.int64()),
            arrow.array([result.line for result in results], arrow.string()),
            arrow.array([result.error for result in results], arrow.string()),
            arrow.array([result.error_line for result in results], arrow.int64()),
            arrow.array([result.findings for result in results], arrow.int64()),
        ]
        names = ["message_id", "version", "line", "error", "error_line", "findings"]
        yield arrow.RecordBatch.from_arrays(columns, names)


def _plugin(ask: JobRequest) -> PluginText:
    """The plugin of the request; its module is loaded once here, to report an error early."""
    path = location(ask.options["plugin"])
    name = ask.options.get("name") or path.stem
    if not NAME.fullmatch(name):
        raise Usage(
            f"{name!r} is not a name of a plugin", "set it with --name, as in agentlip.toml"
        )
    try:
        with path.open("rb") as file:
            data = file.read(schema.SOURCE_BYTES_MAX + 1)
        source = data.decode()
    except OSError as error:
        raise Usage(f"the plugin {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Usage(f"the plugin {path} is not UTF-8") from None
    if len(data) > schema.SOURCE_BYTES_MAX:
        raise Usage(f"the plugin {path} has more than {schema.SOURCE_BYTES_MAX:,} bytes")
    config = ask.options.get("config") or "{}"
    try:
        sound = len(config) <= schema.CONFIG_BYTES_MAX and isinstance(json.loads(config), dict)
    except (ValueError, RecursionError):
        sound = False
    if not sound:
        raise Usage("--config is not a JSON object", "write it as --config '{\"most\": 10}'")
    plugin = PluginText(
        name, source, config, schema.ITEMS_MAX, schema.OUTPUT_BYTES_MAX, schema.SECONDS_MAX
    )
    try:
        enricher.load(plugin)
    except Exception as error:
        raise Usage(
            f"the plugin {path} cannot be loaded: {type(error).__name__}",
            "a linkifier has a function enrich(message, config): docs/how-to/plugins.md",
        ) from None
    return plugin


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
