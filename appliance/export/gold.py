"""The tables that the activity job leaves: `<gold>/activity/current`, a version of them.

A version never changes, and `current` is opened once, so a job that publishes the next one
does not disturb. Its manifest says which files there are, and how long each is.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from appliance.export import table_writer
from appliance.export.trouble import (
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
    """One version, opened. `days` are those it has."""

    def __init__(self, gold: Path) -> None:
        self._path, manifest = _open(gold)
        self._files = manifest.files
        self.days = sorted({day for name in self._files if (day := _day(name))})

    def rows(self, table: str, columns: list[str], first: str, last: str) -> Iterator[Any]:
        """Rows of the days asked for, as dictionaries with `day`; each file is checked first."""
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
                        raise SegmentTorn(f"{where} lacks {', '.join(sorted(missing))}")
                    for batch in file.iter_batches(columns=columns):
                        yield from ({**row, "day": day} for row in batch.to_pylist())
            except (OSError, ValueError) as error:
                raise SegmentTorn(f"{where} is torn: {error}") from None


def _open(gold: Path) -> tuple[Path, _Manifest]:
    """`gold`, or the output of the job that holds it."""
    roots = [gold / "activity", gold / "gold" / "activity"]
    root = next((each for each in roots if (each / "current").exists()), None)
    if root is None:
        raise TablesMissing(f"{gold} holds no activity tables")
    path = (root / "current").resolve()
    try:
        text = (path / _MANIFEST).read_bytes()
        manifest = msgspec.json.decode(text, type=_Manifest)
    except FileNotFoundError:
        raise SegmentMissing(f"{path} has no {_MANIFEST}: the job did not end well") from None
    except msgspec.DecodeError as error:
        raise SegmentTorn(f"{path / _MANIFEST} is cut off or malformed: {error}") from None
    if manifest.schema != SCHEMA:
        raise SchemaVersionUnknown(
            f"the activity tables are of schema {manifest.schema}; this program reads {SCHEMA}"
        )
    return path, manifest


def _check(path: Path, size: int) -> None:
    try:
        found = path.stat().st_size
    except FileNotFoundError:
        raise SegmentMissing(f"{path.name} is in the manifest, and not there") from None
    if found != size:
        raise SegmentTorn(f"{path.name} has {found} bytes; its manifest says {size}")


def _day(name: str) -> str | None:
    parts = name.split("/")
    if len(parts) != 3 or not parts[1].startswith("day="):
        return None
    return parts[1].removeprefix("day=")
