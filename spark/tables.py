"""Reads and writes the jobs' Delta Lake tables, and the runs that name a moment.

    <root>/<table>/   a Delta table: read by any engine, written by Spark
    <root>/runs/      a row per published run: the versions of all tables, and its checkpoint

A run writes the tables and then its row, in one commit. Only the newest rows have a checkpoint.
Readers read the versions in the newest row. A killed run's writes are in no row, and the next run
restores the tables before it begins.

Two concurrent runs conflict at a table that both changed, or at the row, and one is refused.
Without Spark or Java, the library `deltalake` reads and restores the tables' logs.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote
from uuid import uuid4

from deltalake import (
    CommitProperties,
    DeltaTable,
    QueryBuilder,
    Schema,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from spark import schemas
from spark.errors import ChecksFailed, OutputBusy, SchemaVersionUnknown, SegmentTorn
from spark.files import writable
from spark.locations import REFUSED, RETRIES_MAX, SCHEME, Location, location, options, refusal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

RUNS = "runs"
NONE = -1  # the version of a table that does not exist yet
LOST = "run the job again with another output directory"
REMAKE = "remove its directories silver and gold, and run the jobs with all segments"
NO_VALUE = "=__HIVE_DEFAULT_PARTITION__"
FEW_FILES = 16  # are read as Parquet: Delta takes some jobs to find the files of a version
FILES_MAX = 16  # more files of a partition are merged; each run adds one
VACUUM_RUNS = 16  # from one deletion of old files to the next: it lists all files
HISTORY_SPAN = timedelta(days=30)  # in which former versions can be read
HISTORY = f"interval {HISTORY_SPAN.days} days"
RETRIES = {"max_retries": str(RETRIES_MAX)}  # after the storage refused a request
COMMIT_NAME = "spark.databricks.delta.commitInfo.userMetadata"  # setting of a session
# Minimum and maximum of these are in the log. Those of texts would outlive an erasure.
WITH_STATISTICS = {"bigint", "double", "timestamp"}


class DataFile(NamedTuple):
    """A table's file, as the log lists it. part: the partition's value; "" without a partition."""

    path: str
    bytes: int
    rows: int
    part: str
    low: str | None
    high: str | None


class Version:
    """The tables at the moment at which a run ended."""

    def __init__(self, dataset: Dataset, number: int, versions: dict[str, int]) -> None:
        self.root = dataset.root
        self.number = number
        self.versions = versions
        self.checkpoint: dict[str, Any] = {}
        self._schema = dataset.schema
        self._partitions = schemas.partitions(dataset.schema)
        self._facts = {table["name"]: table for table in schemas.load(dataset.schema)["tables"]}

    @cached_property
    def _promised(self) -> dict[str, StructType]:
        return schemas.tables(self._schema)  # imports Spark

    def files(self, table: str) -> list[DataFile]:
        if self.versions[table] == NONE:
            return []
        return _files(self._open(table), self._partitions[table], self._facts[table].get("ranges"))

    def count(self, table: str) -> int:
        return sum(file.rows for file in self.files(table))

    def parts_with(self, table: str, ids: Collection[str]) -> set[str]:
        """Return the partitions, such as days, that may have rows with these ids: ids grow with
        time, so file ranges on different days hardly overlap."""
        wanted = sorted(ids)

        def may_have(file: DataFile) -> bool:
            if file.low is None or file.high is None:
                return bool(wanted)
            index = bisect_left(wanted, file.low)
            return index < len(wanted) and wanted[index] <= file.high

        return {file.part for file in self.files(table) if may_have(file)}

    def read(
        self, spark: SparkSession, table: str, parts: Collection[str] | None = None
    ) -> DataFrame:
        """Return the table, or some partitions."""
        files = [file for file in self.files(table) if parts is None or file.part in parts]
        if len(files) <= FEW_FILES:
            return self._rows(spark, table, files)
        reader = spark.read.format("delta").option("versionAsOf", self.versions[table])
        rows = reader.load(self._path(table)).select(*self._promised[table].names)
        column = self._partitions[table]
        return rows if parts is None or column is None else rows.where(_is_in(column, parts))

    def _rows(self, spark: SparkSession, table: str, files: Collection[DataFile]) -> DataFrame:
        """Return the rows in these files."""
        promised = self._promised[table]
        if not files:
            return spark.createDataFrame([], promised)
        reader = spark.read.schema(promised).option("basePath", self._path(table))
        return reader.parquet(*[file.path for file in files]).select(*promised.names)

    def _path(self, table: str) -> str:
        return f"{self.root}/{table}"

    def _open(self, table: str) -> DeltaTable:
        opened = _open(self._path(table), self.versions[table])
        if opened is None:
            raise SegmentTorn(f"the table {self._path(table)} does not exist any more", LOST)
        return opened


class Draft(Version):
    """The tables as a run changes them. Readers don't see the changes until `Dataset.commit`."""

    def __init__(self, dataset: Dataset, former: Version | None, number: int) -> None:
        super().__init__(dataset, number, {})
        self._former = former
        self._run = str(uuid4())
        self._kept: dict[str, set[str]] = {}  # files of the former run
        self._listed: dict[str, set[str]] = {}  # files as of the newest write
        with writable(location(self.root)):
            for table in self._partitions:
                self.versions[table] = self._begin(table, former)

    def _begin(self, table: str, former: Version | None) -> int:
        """Return the version to continue from: the former run's, without later changes. NONE if
        there is no table, which the first rows make."""
        opened, kept = _open(self._path(table)), set[str]()
        if opened is not None and former is not None and table in former.versions:
            kept = {file.path for file in former.files(table)}
            if {file.path for file in _files(opened, None, None)} != kept:  # left by a killed run
                opened.restore(former.versions[table])
        elif opened is not None:
            opened = self._create(table)
        self._kept[table] = self._listed[table] = kept
        return NONE if opened is None else int(opened.version())

    def _create(self, table: str) -> DeltaTable:
        """Make an empty table, which replaces any table that is there."""
        path, partition = self._path(table), self._partitions[table]
        return DeltaTable.create(
            _address(path), Schema.from_json(self._promised[table].json()), mode="overwrite",
            name=table, storage_options=_options(path),
            partition_by=[partition] if partition else None, configuration=self._properties(table),
        )  # fmt: skip

    def _properties(self, table: str) -> dict[str, str]:
        partition, id_column = self._partitions[table], self._facts[table].get("ranges")
        counted = [
            field.name
            for field in self._promised[table]
            if field.name == id_column
            or (field.name != partition and field.dataType.simpleString() in WITH_STATISTICS)
        ]
        return {
            "delta.dataSkippingStatsColumns": ",".join(counted),
            "delta.deletedFileRetentionDuration": HISTORY,
            "delta.logRetentionDuration": HISTORY,
            "delta.setTransactionRetentionDuration": HISTORY,
        }

    def append(self, frame: DataFrame, table: str, mode: str = "append") -> None:
        """Add rows. A run writes to a table once: appends rows, overwrites them all, or merges."""
        frame.sparkSession.conf.set(COMMIT_NAME, self._run)
        promised = self._promised[table]
        writer = frame.select(*promised.names).to(promised).write.format("delta").mode(mode)
        if self.versions[table] == NONE:
            writer = writer.options(**self._properties(table))
            if column := self._partitions[table]:
                writer = writer.partitionBy(column)
        if mode == "append":  # the others have the same result again
            writer = writer.options(txnAppId=self._run, txnVersion=self.number)
        writer.save(self._path(table))
        self._take(table)

    def overwrite(self, frame: DataFrame, table: str) -> None:
        self.append(frame, table, "overwrite")

    def replace(self, frame: DataFrame, table: str, parts: Collection[str]) -> None:
        """Add rows, and remove all former rows in these partitions."""
        files = self._former.files(table) if self._former else []
        there, old = {file.part for file in files}.intersection(parts), None
        if self._former is not None and there:
            old = self._former.read(frame.sparkSession, table, there)
        self.merge(frame, table, there, old)

    def merge(
        self, frame: DataFrame, table: str, parts: Collection[str], old: DataFrame | None = None
    ) -> None:
        """Add rows, replacing rows with equal keys in the partitions `parts`, and delete the
        rows in `old` whose keys `frame` does not have. "" is a whole table without partitions."""
        if not parts:
            self.append(frame, table)
            return
        spark, column = frame.sparkSession, self._partitions[table]
        names = self._promised[table].names
        same = " AND ".join(f"t.`{key}` <=> s.`{key}`" for key in self._facts[table]["key"])
        source = f"SELECT *, false AS gone FROM new_{table}"
        if old is not None:
            frame = frame.persist()
            old.select(*names).createOrReplaceTempView(f"old_{table}")
            rest = f"old_{table} t LEFT ANTI JOIN new_{table} s ON {same}"
            source += f" UNION ALL SELECT *, true FROM {rest}"
        frame.select(*names).createOrReplaceTempView(f"new_{table}")
        within = same if column is None else f"{same} AND t.{_is_in(column, parts)}"
        spark.conf.set(COMMIT_NAME, self._run)
        spark.sql(
            f"MERGE INTO delta.`{self._path(table)}` t USING ({source}) s ON {within}"
            " WHEN MATCHED AND s.gone THEN DELETE WHEN MATCHED THEN UPDATE SET *"
            " WHEN NOT MATCHED THEN INSERT *"
        )
        frame.unpersist()
        self._take(table)

    def _take(self, table: str) -> None:
        """Continue from the version that this run just wrote."""
        opened = _open(self._path(table))
        version = NONE if opened is None else opened.version()
        written = version - self.versions[table]
        latest = opened.history(1)[0] if opened is not None and written else {}
        if opened is None or written not in (0, 1) or (
            written and latest.get("userMetadata") != self._run
        ):  # fmt: skip
            raise OutputBusy(f"another job wrote to {self._path(table)} at the same time")
        self.versions[table] = version
        files = _files(opened, None, None)
        if written:
            new = [file for file in files if file.path not in self._listed[table]]
            self._compare(table, new, latest.get("operationMetrics", {}))
        self._listed[table] = {file.path for file in files}

    def _compare(self, table: str, new: list[DataFile], observed: Mapping[str, Any]) -> None:
        """Compare the storage and the executors' counts with the log. Raises ChecksFailed unless
        the storage has each new file as the log lists it, with as many rows as the executors
        counted. A write without rows has no count."""
        stored = location(self._path(table)).rglob("*.parquet") if new else ()
        there = {str(file): file.stat().st_size for file in stored}
        for file in new:
            if there.get(file.path) != file.bytes:
                raise ChecksFailed(
                    f"storage: the driver does not have {file.path}, which an executor wrote",
                    "all processes of the engine must write to the same storage",
                )
        rows, wrote = sum(file.rows for file in new), int(observed.get("numOutputRows", 0))
        if rows != wrote:
            raise ChecksFailed(
                f"storage: {self._path(table)} got {rows:,} rows; the executors counted {wrote:,}",
                "run the job again",
            )

    def finish(self) -> None:
        """Make the tables that got no rows, and merge each partition with more than FILES_MAX
        files. Raises CommitFailedError if another job writes to the table."""
        for table, column in self._partitions.items():
            if self.versions[table] == NONE:
                self.versions[table] = int(self._create(table).version())
            folders = Counter(path.rpartition("/")[0] for path in self._listed[table])
            crowded = [unquote(folder) for folder, count in folders.items()
                       if count > FILES_MAX and not folder.endswith(NO_VALUE)]  # fmt: skip
            if not crowded:
                continue
            opened = self._open(table)
            opened.optimize.compact(
                [(column, "in", [folder.rpartition("=")[2] for folder in crowded])] if column
                else None,
                writer_properties=WriterProperties(compression="ZSTD"),
            )  # fmt: skip
            self.versions[table] = opened.version()

    def written_files(self, table: str) -> list[DataFile]:
        """Return the files that this run wrote."""
        return [file for file in self.files(table) if file.path not in self._kept[table]]

    def written(self, spark: SparkSession, table: str) -> DataFrame:
        """Return the rows in files that this run wrote."""
        return self._rows(spark, table, self.written_files(table))


class Dataset:
    """A schema's tables, such as `silver`, and their runs."""

    def __init__(self, root: Location, schema: str) -> None:
        self.root = str(root)
        self.schema = schema

    def current(self) -> Version | None:
        row = _newest(self.root)
        if row is None:
            return None
        if row["schema"] != self.schema:
            raise SchemaVersionUnknown(
                f"{self.root} has schema {row['schema']}, this program reads {self.schema}",
                f"use the image of that version, or {REMAKE}",
            )
        version = Version(self, row["number"], json.loads(row["versions"]))
        version.checkpoint = json.loads(row["checkpoint"])
        return version

    def draft(self) -> Draft:
        former = self.current()
        return Draft(self, former, former.number + 1 if former else 1)

    def commit(self, draft: Draft, checkpoint: dict[str, Any]) -> Version:
        """Publish the tables as they are in the draft."""
        arrow = import_module("pyarrow")
        busy = OutputBusy(f"another job published to {self.root} at the same time")
        with writable(location(self.root)):
            path = f"{self.root}/{RUNS}"
            runs = _open(path)
            if ((runs and runs.transaction_version(RUNS)) or 0) != draft.number - 1:
                raise busy
            once = CommitProperties(app_transactions=[Transaction(RUNS, draft.number)])
            try:
                draft.finish()
                row = {
                    "number": draft.number, "schema": self.schema,
                    "versions": json.dumps(draft.versions), "checkpoint": json.dumps(checkpoint),
                    "ended_at": datetime.now(UTC),
                }  # fmt: skip
                write_deltalake(
                    runs or _address(path), arrow.Table.from_pylist([row]), mode="append",
                    commit_properties=once, storage_options=_options(path),
                )  # fmt: skip
            except CommitFailedError:
                raise busy from None
        if draft.number % VACUUM_RUNS == 0:
            self.vacuum()
        made = Version(self, draft.number, draft.versions)
        made.checkpoint = checkpoint
        return made

    def vacuum(self, hours: int | None = None) -> None:
        """Delete files that only former versions have, `hours` after that; None: after HISTORY.
        Former runs' rows lose their checkpoint, and rows before HISTORY are removed."""
        current = self.current()
        if current is None:
            return
        if hours is not None:
            self.draft()  # restores what a killed run left: only files of the newest version stay
        self._shorten_runs(current.number)
        for table in (RUNS, *schemas.partitions(self.schema)):
            opened = _open(f"{self.root}/{table}")
            if opened is None:
                continue
            forced = {"enforce_retention_duration": hours is None, "full": True}
            listed = opened.vacuum(hours, **forced)
            folder = location(f"{self.root}/{table}")
            if any((folder / unquote(name)).exists() for name in listed):
                opened.vacuum(hours, dry_run=False, **forced)

    def _shorten_runs(self, newest: int) -> None:
        path = f"{self.root}/{RUNS}"
        runs = _open(path)
        assert runs is not None
        begin = (datetime.now(UTC) - HISTORY_SPAN).isoformat()
        former = f"number <> {newest} AND (checkpoint <> '{{}}' OR ended_at < TIMESTAMP '{begin}')"
        query = QueryBuilder().register(RUNS, runs).execute
        if not query(f"SELECT number FROM {RUNS} WHERE {former} LIMIT 1").read_all().num_rows:
            return  # nothing to do, and a commit would be a change
        rows = query(
            f"SELECT number, schema, versions, CASE WHEN number = {newest} THEN checkpoint"
            f" ELSE '{{}}' END AS checkpoint, ended_at FROM {RUNS} WHERE number = {newest}"
            f" OR ended_at >= TIMESTAMP '{begin}' ORDER BY number"
        )  # fmt: skip
        with suppress(CommitFailedError):  # another job published meanwhile, and does this later
            write_deltalake(runs, rows.read_all(), mode="overwrite", storage_options=_options(path))


def versions(root: Location) -> dict[str, int]:
    """Return the table versions below `root` in its newest run, whatever the schema."""
    row = _newest(str(root))
    return {} if row is None else dict(json.loads(row["versions"]))


def _newest(root: str) -> dict[str, Any] | None:
    """Return the newest run's row."""
    runs = _open(f"{root}/{RUNS}")
    if runs is None and (location(root) / "current").exists():
        raise SchemaVersionUnknown(f"{root} has tables of a format before Delta Lake", REMAKE)
    number = runs and runs.transaction_version(RUNS)
    if not runs or not number:
        return None
    try:
        query = QueryBuilder().register(RUNS, runs)
        rows = query.execute(f"SELECT * FROM {RUNS} WHERE number = {number}").read_all()
        return {name: rows[name][0].as_py() for name in rows.column_names}
    except (DeltaError, OSError, ValueError) as error:
        raise SegmentTorn(f"{root}/{RUNS} cannot be read: {error}", LOST) from None


def _open(path: str, version: int | None = None) -> DeltaTable | None:
    """Return a table's log; None without a table."""
    try:
        return DeltaTable(_address(path), version=version, storage_options=_options(path))
    except TableNotFoundError:
        return None
    except (DeltaError, OSError, ValueError) as error:
        if REFUSED.search(str(error)):
            raise refusal(path, str(error)) from None
        first = str(error).splitlines()[0][:200]
        raise SegmentTorn(f"the table {path} cannot be read: {first}", LOST) from None


def _address(path: str) -> str:
    return path.replace(f"{SCHEME}://", "s3://", 1)


def _options(path: str) -> dict[str, str] | None:
    return options() | RETRIES if path.startswith(f"{SCHEME}://") else None


def _files(opened: DeltaTable, partition: str | None, id_column: str | None) -> list[DataFile]:
    actions = opened.get_add_actions(flatten=True)
    names = actions.schema.names

    def column(name: str) -> list[Any]:
        if name not in names:
            return [None] * actions.num_rows
        return list(actions.column(name).to_pylist())

    root = opened.table_uri.removeprefix("file://").replace("s3://", f"{SCHEME}://").rstrip("/")
    paths = [f"{root}/{unquote(path)}" for path in column("path")]
    parts = ["" if part is None else str(part) for part in column(f"partition.{partition}")]
    return [
        DataFile(*file)
        for file in zip(
            paths, column("size_bytes"), column("num_records"), parts,
            column(f"min.{id_column}"), column(f"max.{id_column}"), strict=True,
        )
    ]  # fmt: skip


def read_here(files: Collection[DataFile], columns: Collection[str]) -> Any:
    """Return these columns of the files' rows as an Arrow table."""
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    rows = [arrow.table({column: [] for column in columns})]
    for each in files:
        with location(each.path).open("rb") as file:
            rows.append(parquet.read_table(file, columns=list(columns)))
    return arrow.concat_tables(rows, promote_options="default")


def _is_in(partition: str | None, parts: Collection[str]) -> str:
    """Return an SQL condition for rows in one of these partitions."""
    return f"`{partition}` IN ({', '.join(map(repr, sorted(parts)))})"
