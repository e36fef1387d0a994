"""Reads the tables of a job: Delta Lake in `<gold>/<job>/`, at the versions of its newest run.

A version of a table never changes, so a job that publishes the next one does not disturb a reader.
"""

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from appliance.export import manifests, table_writer
from appliance.export.errors import SchemaVersionUnknown, SegmentTorn, TablesMissing

ACTIVITY, DELIVERY = "activity", "delivery"
SCHEMAS = {ACTIVITY: "activity-2", DELIVERY: "delivery-1"}  # the schemas that reports read
BATCH_ROWS = 8192  # rows that are in memory at once
NEWEST = "SELECT number, schema, versions FROM runs ORDER BY number DESC LIMIT 1"


class Gold:
    """The tables of one job as its newest run left them, with their `days`."""

    def __init__(self, gold: Path, job: str) -> None:
        """`gold` may also be the output directory of the job."""
        root = _root(gold, job)
        if root is None:
            raise TablesMissing(
                f"{gold} contains no {job} tables",
                hint=f"run the job first: docker run … {job} --in … --out …",
            )
        self.version, self.schema, versions = _newest_run(root, job)
        self._files = {table: _files(root / table, number) for table, number in versions.items()}
        self.days = sorted({day for files in self._files.values() for _, _, day in files} - {""})

    def rows(
        self, table: str, columns: list[str], first: str = "", last: str = "~"
    ) -> Iterator[Any]:
        """Rows as dictionaries, of a table with days with their `day`. Files are checked first.

        `first` and `last` are inclusive, such as 2026-11-21. A histogram is a list of pairs.
        """
        for path, size, day in self._files.get(table, ()):
            if day and not first <= day <= last:
                continue
            manifests.check(path, size, None)
            where = f"{table} of {day}" if day else table
            with table_writer.open_parquet(path, where) as file:
                if missing := set(columns) - set(file.schema_arrow.names):
                    raise SegmentTorn(f"{where} has no columns {', '.join(sorted(missing))}")
                for batch in file.iter_batches(BATCH_ROWS, columns=columns):
                    yield from ({**row, "day": day} for row in batch.to_pylist())

    def names(
        self, table: str, key: str, name: str, wanted: Collection[str] | None = None
    ) -> dict[str, str]:
        """The column `name` of a table without days by its `key`, for the wanted keys or all."""
        return {
            row[key]: row[name]
            for row in self.rows(table, [key, name])
            if wanted is None or row[key] in wanted
        }


class GoldRows(NamedTuple):
    """The rows of some days that `keep` keeps, with the columns `always` beside those asked for."""

    tables: Gold
    first: str
    last: str
    always: tuple[str, ...]
    keep: Callable[[Any], bool]

    def rows(self, table: str, columns: list[str]) -> Iterator[Any]:
        return filter(
            self.keep, self.tables.rows(table, [*self.always, *columns], self.first, self.last)
        )


def select(
    tables: Gold,
    first: str | None,
    last: str | None,
    always: tuple[str, ...],
    keep: Callable[[Any], bool],
) -> GoldRows:
    """Without `first` or `last`: from the oldest day, or to the newest."""
    days = tables.days or [""]
    return GoldRows(tables, first or days[0], last or days[-1], always, keep)


def exists(gold: Path, job: str) -> bool:
    return _root(gold, job) is not None


def _root(gold: Path, job: str) -> Path | None:
    return next(
        (root for root in (gold / job, gold / "gold" / job) if (root / "runs").exists()), None
    )


def _newest_run(root: Path, job: str) -> tuple[int, str, dict[str, int]]:
    """The number of the run, its schema, and the versions of the tables."""
    with _readable(root / "runs") as delta:
        row = delta.QueryBuilder().register("runs", _open(root / "runs")).execute(NEWEST).read_all()
        number, schema, versions = (row[name][0].as_py() for name in row.column_names)
    if schema != SCHEMAS[job]:
        raise SchemaVersionUnknown(
            f"the {job} tables have schema {schema}; this program reads {SCHEMAS[job]}",
            hint=f"run the job again, of the same version as agentlip: docker run … {job} …",
        )
    return number, schema, json.loads(versions)


def _files(folder: Path, version: int) -> list[tuple[Path, int, str]]:
    """The files of a table with their bytes and days, in the order of days; "" without days."""
    actions = _open(folder, version).get_add_actions(flatten=True)
    columns = (actions.column(name).to_pylist() for name in ("path", "size_bytes"))
    return sorted(
        (folder / unquote(path), size, path.rpartition("/")[0].removeprefix("day="))
        for path, size in zip(*columns, strict=True)
    )


def _open(folder: Path, version: int | None = None) -> Any:
    with _readable(folder) as delta:
        return delta.DeltaTable(str(folder), version=version)


@contextmanager
def _readable(folder: Path) -> Iterator[Any]:
    """The library; its errors become SegmentTorn."""
    delta = table_writer.library("deltalake")
    try:
        yield delta
    except (delta.exceptions.DeltaError, OSError, ValueError) as error:
        what = str(error).split("\n", 1)[0][:200]
        raise SegmentTorn(f"the table {folder} cannot be read: {what}") from None
