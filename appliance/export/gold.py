"""Reads the tables of the activity job: `<gold>/activity/current` is a version of them.

A version never changes, and `current` is resolved once, so a job that publishes the next version
does not disturb a reader. The manifest lists the files and their sizes.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from appliance.export import table_writer
from appliance.export.errors import (
    SchemaVersionUnknown,
    SegmentMissing,
    SegmentTorn,
    TablesMissing,
)

SCHEMA = "activity-1"
_MANIFEST = "manifest.json"


class _Manifest(msgspec.Struct, frozen=True):
    schema: str
    files: dict[str, int]


class Gold:
    """One version of the tables, with its `days`."""

    def __init__(self, gold: Path) -> None:
        self._path, manifest = _open(gold)
        self._files = manifest.files
        self.days = sorted({day for name in self._files if (day := _day(name))})

    def rows(self, table: str, columns: list[str], first: str, last: str) -> Iterator[Any]:
        """Rows of the given days as dictionaries with `day`. Each file is checked first."""
        parquet = table_writer.library("pyarrow.parquet", "report")
        for name, size in sorted(self._files.items()):
            day = _day(name)
            if name.partition("/")[0] != table or day is None or not first <= day <= last:
                continue
            path = self._path / name
            _check(path, size)
            where = f"{table} of {day}"
            try:
                with parquet.ParquetFile(path) as file:
                    if missing := set(columns) - set(file.schema_arrow.names):
                        raise SegmentTorn(f"{where} has no columns {', '.join(sorted(missing))}")
                    for batch in file.iter_batches(columns=columns):
                        yield from ({**row, "day": day} for row in batch.to_pylist())
            except (OSError, ValueError) as error:
                raise SegmentTorn(f"{where} cannot be read: {error}") from None


def _open(gold: Path) -> tuple[Path, _Manifest]:
    """Open `gold`, which may also be the output directory of the job."""
    roots = [gold / "activity", gold / "gold" / "activity"]
    root = next((each for each in roots if (each / "current").exists()), None)
    if root is None:
        raise TablesMissing(f"{gold} contains no activity tables")
    path = (root / "current").resolve()
    try:
        text = (path / _MANIFEST).read_bytes()
        manifest = msgspec.json.decode(text, type=_Manifest)
    except FileNotFoundError:
        raise SegmentMissing(f"{path} has no {_MANIFEST}: the job did not finish") from None
    except msgspec.DecodeError as error:
        raise SegmentTorn(f"{path / _MANIFEST} is truncated or malformed: {error}") from None
    if manifest.schema != SCHEMA:
        raise SchemaVersionUnknown(
            f"the activity tables have schema {manifest.schema}; this program reads {SCHEMA}"
        )
    return path, manifest


def _check(path: Path, size: int) -> None:
    try:
        actual = path.stat().st_size
    except FileNotFoundError:
        raise SegmentMissing(f"{path.name} is in the manifest but does not exist") from None
    if actual != size:
        raise SegmentTorn(f"{path.name} has {actual} bytes; its manifest requires {size}")


def _day(name: str) -> str | None:
    segments = name.split("/")
    if len(segments) != 3 or not segments[1].startswith("day="):
        return None
    return segments[1].removeprefix("day=")
