"""Reads the tables of a job: `<gold>/<job>/current` is a version of them.

A version never changes, and `current` is resolved once, so a job that publishes the next version
does not disturb a reader. The manifest lists the files and their sizes.
"""

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from appliance.export import manifests, table_writer
from appliance.export.errors import SchemaVersionUnknown, SegmentTorn, TablesMissing

ACTIVITY, DELIVERY = "activity", "delivery"
SCHEMAS = {ACTIVITY: "activity-2", DELIVERY: "delivery-1"}  # the schemas that reports read
BATCH_ROWS = 8192  # rows that are in memory at once
_MANIFEST = "manifest.json"


class _Manifest(msgspec.Struct, frozen=True):
    schema: str
    files: dict[str, int]


class Gold:
    """The current version of the tables of one job, with its `days`."""

    def __init__(self, gold: Path, job: str) -> None:
        """`gold` may also be the output directory of the job."""
        root = _root(gold, job)
        if root is None:
            raise TablesMissing(
                f"{gold} contains no {job} tables",
                hint=f"run the job first: docker run … {job} --in … --out …",
            )
        self.path = (root / "current").resolve()
        self.schema, self._files = _manifest(self.path, job)
        self.days = sorted({day for name in self._files if (day := _day(name))})

    def rows(
        self, table: str, columns: list[str], first: str = "", last: str = "~"
    ) -> Iterator[Any]:
        """Rows as dictionaries, of a table with days with their `day`. Files are checked first.

        `first` and `last` are inclusive, such as 2026-11-21. A histogram is a list of pairs.
        """
        for name, size in sorted(self._files.items()):
            day = _day(name)
            if name.partition("/")[0] != table or not (day is None or first <= day <= last):
                continue
            path = self.path / name
            manifests.check(path, size, None)
            where = table if day is None else f"{table} of {day}"
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
    roots = [gold / job, gold / "gold" / job]
    return next((root for root in roots if (root / "current").exists()), None)


def _manifest(path: Path, job: str) -> tuple[str, dict[str, int]]:
    with manifests.reading(str(path), f"has no {_MANIFEST}: the job did not finish"):
        text = (path / _MANIFEST).read_bytes()
    try:
        manifest = msgspec.json.decode(text, type=_Manifest)
    except msgspec.DecodeError as error:
        raise SegmentTorn(f"{path / _MANIFEST} is truncated or malformed: {error}") from None
    if manifest.schema != SCHEMAS[job]:
        raise SchemaVersionUnknown(
            f"the {job} tables have schema {manifest.schema}; this program reads {SCHEMAS[job]}",
            hint=f"run the job again, of the same version as agentlip: docker run … {job} …",
        )
    return manifest.schema, manifest.files


def _day(name: str) -> str | None:
    """The day of a file such as activity/day=2026-11-21/part-0.parquet."""
    segments = name.split("/")
    if len(segments) != 3 or not segments[1].startswith("day="):
        return None
    return segments[1].removeprefix("day=")
