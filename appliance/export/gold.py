"""Reads a job's tables: Delta Lake in `<gold>/<job>/`, at the newest run's versions.

A table version never changes, so a job that publishes the next version does not disturb a reader.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from appliance.export import table_writer
from appliance.export.errors import SchemaVersionUnknown, SegmentTorn, TablesMissing

ACTIVITY, DELIVERY = "activity", "delivery"
SCHEMAS = {ACTIVITY: "activity-2", DELIVERY: "delivery-1"}  # the schemas that reports read
BATCH_ROWS = 8192  # rows that are in memory at once
NEWEST = "SELECT number, schema, versions FROM runs ORDER BY number DESC LIMIT 1"


class Gold:
    """A job's tables for some days, as the newest run left them."""

    def __init__(self, gold: Path, job: str, first: str | None, last: str | None) -> None:
        """Find the newest run's versions. `gold` may also be the job's output directory. Without
        `first` or `last`, such as 2026-11-21: from the oldest day, or to the newest."""
        roots = (gold / job, gold / "gold" / job)
        root = next((root for root in roots if (root / "runs").exists()), None)
        if root is None:
            raise TablesMissing(f"{gold} contains no {job} tables", details={"job": job})
        versions = _newest_versions(root, job)
        self._files = {table: _files(root / table, number) for table, number in versions.items()}
        days = sorted({day for files in self._files.values() for _, day in files} - {""}) or [""]
        self.first, self.last = first or days[0], last or days[-1]

    def rows(self, table: str, columns: list[str]) -> Iterator[Any]:
        """Yield rows as dictionaries; a table with days adds `day`. A histogram is a list with
        pairs."""
        for path, day in self._files.get(table, ()):
            if day and not self.first <= day <= self.last:
                continue
            where = f"{table} of {day}" if day else table
            with table_writer.open_parquet(path, where) as file:
                if missing := set(columns) - set(file.schema_arrow.names):
                    raise SegmentTorn(f"{where} has no columns {', '.join(sorted(missing))}")
                for batch in file.iter_batches(BATCH_ROWS, columns=columns):
                    yield from ({**row, "day": day} for row in batch.to_pylist())

    def names(self, table: str, key: str, name: str) -> dict[str, str]:
        """Return the column `name` from a table without days, keyed by `key`."""
        return {row[key]: row[name] for row in self.rows(table, [key, name])}


class GoldRows(NamedTuple):
    """The rows that `keep` selects, with the columns `always` and the requested columns."""

    tables: Gold
    always: tuple[str, ...]
    keep: Callable[[Any], bool]

    def rows(self, table: str, columns: list[str]) -> Iterator[Any]:
        return filter(self.keep, self.tables.rows(table, [*self.always, *columns]))


def _newest_versions(root: Path, job: str) -> dict[str, int]:
    """Return the table versions."""
    with _readable(root / "runs") as delta:
        row = delta.QueryBuilder().register("runs", _open(root / "runs")).execute(NEWEST).read_all()
        schema, versions = (row[name][0].as_py() for name in ("schema", "versions"))
    if schema != SCHEMAS[job]:
        raise SchemaVersionUnknown(
            f"the {job} tables have schema {schema}; this program reads {SCHEMAS[job]}",
            hint=f"run the job again, in the same version as agentlip: agentlip jobs run {job}",
        )
    return json.loads(versions)  # type: ignore[no-any-return]


def _files(folder: Path, version: int) -> list[tuple[Path, str]]:
    """Return a table's files and days, sorted by day; "" without days."""
    paths = _open(folder, version).get_add_actions(flatten=True).column("path").to_pylist()
    return sorted(
        (folder / unquote(path), path.rpartition("/")[0].removeprefix("day=")) for path in paths
    )


def _open(folder: Path, version: int | None = None) -> Any:
    with _readable(folder) as delta:
        return delta.DeltaTable(str(folder), version=version)


@contextmanager
def _readable(folder: Path) -> Iterator[Any]:
    """Yield the library, and convert library errors to SegmentTorn."""
    delta = table_writer.library("deltalake")
    try:
        yield delta
    except (delta.exceptions.DeltaError, OSError, ValueError) as error:
        what = str(error).split("\n", 1)[0][:200]
        raise SegmentTorn(f"the table {folder} cannot be read: {what}") from None
