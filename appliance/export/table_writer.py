"""Writes rows as Parquet or JSON Lines, and reads both formats.

Parquet needs pyarrow, which is imported only when a Parquet file is opened.
"""

import hashlib
import importlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from appliance.export.errors import LibraryMissing, SegmentTorn
from appliance.export.manifests import reading, writing
from appliance.export.schema import ExportColumn

ROW_GROUP_ROWS = 65_536
_COPY_BYTES = 1 << 20
LEVEL = 1  # zstd level: a third of the uncompressed size, in a quarter of level 3's time


class Written(NamedTuple):
    rows: int
    bytes: int
    sha256: str


def require(format_name: str) -> None:
    """Check that files in this format can be written. Raises LibraryMissing."""
    if format_name == "parquet":
        library()


def create(path: Path, format_name: str, columns: Sequence[ExportColumn]) -> "TableFile":
    """Create a file. Raises LibraryMissing for Parquet without pyarrow."""
    if format_name == "parquet":
        return ParquetFile(path, columns)
    return JsonLinesFile(path, columns)


def library(name: str = "pyarrow.parquet") -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        extra = "report" if name == "deltalake" else "export"
        raise LibraryMissing(
            f"{name.partition('.')[0]} is not installed",
            hint=f"pip install 'agentlip[{extra}]', or use the image agentlip-export",
        ) from None


class TableFile(ABC):
    """A new file of rows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows = 0
        with writing(path.parent):
            self._file = path.open("xb")

    @abstractmethod
    def add(self, columns: Sequence[Sequence[Any]]) -> None:
        """Add rows, given as columns in schema order."""

    @abstractmethod
    def copy(self, path: Path) -> None:
        """Add all rows from another file with the same columns."""

    def finish(self) -> Written:
        """Complete, sync and hash the file."""
        with writing(self._path.parent):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            with self._path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                return Written(self._rows, file.tell(), digest)

    def abandon(self) -> None:
        """Close and remove the file."""
        with suppress(OSError):
            self._path.unlink()
        with suppress(OSError):  # for example on a full disk
            self._file.close()


class ParquetFile(TableFile):
    def __init__(self, path: Path, columns: Sequence[ExportColumn]) -> None:
        parquet = library()
        super().__init__(path)
        self._arrow = importlib.import_module("pyarrow")
        self.schema = arrow_schema(columns)
        self._gathered: list[Any] = []
        self._writer = parquet.ParquetWriter(
            self._file,
            self.schema,
            compression="zstd",
            compression_level=LEVEL,
            use_dictionary=False,  # zstd finds most repetitions: dictionaries save 8 %
        )

    def add(self, columns: Sequence[Sequence[Any]]) -> None:
        arrays = [
            self._array(values, field.type)
            for values, field in zip(columns, self.schema, strict=True)
        ]
        self._gather(self._arrow.Table.from_arrays(arrays, schema=self.schema))

    def copy(self, path: Path) -> None:
        with open_parquet(path) as file:
            for batch in file.iter_batches(ROW_GROUP_ROWS):
                self._gather(self._arrow.Table.from_batches([batch], self.schema))

    def _gather(self, table: Any) -> None:
        """Collect small tables into a row group, so that compaction produces large groups."""
        self._gathered.append(table)
        self._rows += table.num_rows
        if sum(piece.num_rows for piece in self._gathered) >= ROW_GROUP_ROWS:
            self._write()

    def _write(self) -> None:
        table, self._gathered = self._arrow.concat_tables(self._gathered), []
        with writing(self._path.parent):
            self._writer.write_table(table, row_group_size=ROW_GROUP_ROWS)

    def finish(self) -> Written:
        if self._gathered:
            self._write()
        with writing(self._path.parent):
            self._writer.close()
        return super().finish()

    def abandon(self) -> None:
        with suppress(Exception):
            self._writer.close()
        super().abandon()

    def _array(self, values: Any, kind: Any) -> Any:
        arrow = self._arrow
        if isinstance(values, arrow.ChunkedArray):
            return values if values.type == kind else values.cast(kind)
        if not arrow.types.is_timestamp(kind):
            return arrow.array(values, kind)
        return times(arrow.array(values, arrow.string()))


class JsonLinesFile(TableFile):
    def __init__(self, path: Path, columns: Sequence[ExportColumn]) -> None:
        super().__init__(path)
        self._names = [column.name for column in columns]
        self._encode = msgspec.json.Encoder().encode_lines

    def add(self, columns: Sequence[Sequence[Any]]) -> None:
        rows = [dict(zip(self._names, row, strict=True)) for row in zip(*columns, strict=True)]
        self._write(self._encode(rows), len(rows))

    def copy(self, path: Path) -> None:
        with reading(path.name), path.open("rb") as file:
            while lines := file.readlines(_COPY_BYTES):
                self._write(b"".join(lines), len(lines))

    def _write(self, lines: bytes, rows: int) -> None:
        with writing(self._path.parent):
            self._file.write(lines)
        self._rows += rows


def arrow_schema(columns: Sequence[ExportColumn]) -> Any:
    arrow = importlib.import_module("pyarrow")
    types = {
        "int64": arrow.int64(),
        "double": arrow.float64(),
        "string": arrow.string(),
        "timestamp_us_utc": arrow.timestamp("us", "UTC"),
    }
    return arrow.schema(
        [
            arrow.field(column.name, types[column.type], nullable=column.nullable)
            for column in columns
        ]
    )


def times(texts: Any) -> Any:
    """Parse an array of ISO 8601 texts, with Python if Arrow cannot. Raises ValueError."""
    arrow = importlib.import_module("pyarrow")
    kind = arrow.timestamp("us", "UTC")
    try:
        return texts.cast(kind)
    except arrow.ArrowInvalid:
        moments = [text and datetime.fromisoformat(text) for text in texts.to_pylist()]
        return arrow.chunked_array([moments], kind)


_Events = tuple[Sequence[int], set[str]]  # ids in file order, and their epochs


def extent(
    path: Path, format_name: str, columns: Sequence[ExportColumn]
) -> tuple[int, int, int, set[str]]:
    """Read all values in a segment: the first and last id, the row count and the epochs. Raises
    SegmentTorn if the ids do not ascend, because the row count then does not show which are
    missing."""
    read = _events_of_lines if format_name == "jsonl" else partial(_events_of_parquet, columns)
    first = last = rows = 0
    epochs: set[str] = set()
    for ids, some in read(path):
        for former, number in pairwise((last, *ids)):
            if number <= former:
                raise SegmentTorn(f"{path.name} has event {number} after event {former}")
        first, last, rows = first or ids[0], ids[-1], rows + len(ids)
        epochs |= some
    return first, last, rows, epochs


def rows(path: Path, format_name: str) -> Iterator[dict[str, Any]]:
    """Yield a file's rows, by column. Raises SegmentTorn, and LibraryMissing for Parquet without
    pyarrow."""
    if format_name == "jsonl":
        yield from _lines(path, dict[str, Any])
        return
    with open_parquet(path) as file:
        for batch in file.iter_batches(ROW_GROUP_ROWS):
            yield from batch.to_pylist()


@contextmanager
def open_parquet(path: Path, name: str | None = None) -> Iterator[Any]:
    """Open a Parquet file, which errors call `name`."""
    parquet = library()
    with parquet_errors(name or path.name), parquet.ParquetFile(path) as file:
        yield file


@contextmanager
def parquet_errors(name: str) -> Iterator[None]:
    """Convert pyarrow errors to SegmentMissing or SegmentTorn."""
    arrow = library("pyarrow")
    try:
        with reading(name):
            yield
    except (arrow.ArrowException, ValueError, IndexError, AttributeError) as error:
        what = str(error).split("\n", 1)[0][:200]
        raise SegmentTorn(f"{name} cannot be read: {what}") from None


def _events_of_parquet(columns: Sequence[ExportColumn], path: Path) -> Iterator[_Events]:
    """Read every page: a hash does not show damage that occurred before writing."""
    with open_parquet(path) as file:
        if not file.schema_arrow.equals(arrow_schema(columns)):
            raise SegmentTorn(f"{path.name} has other columns than its schema version")
        for batch in file.iter_batches(ROW_GROUP_ROWS):
            epochs = batch.column("epoch").unique().to_pylist()
            yield batch.column("event_id").to_pylist(), set(epochs)


def id_range(file: Any) -> tuple[int, int]:
    """Return the first and last event in an open Parquet file."""
    metadata, index = file.metadata, file.schema_arrow.names.index("event_id")
    groups = (0, metadata.num_row_groups - 1)
    first, last = (metadata.row_group(group).column(index).statistics for group in groups)
    return first.min, last.max


def _events_of_lines(path: Path) -> Iterator[_Events]:
    for event in _lines(path, _Line):
        yield [event.event_id], {event.epoch}


def _lines(path: Path, kind: Any) -> Iterator[Any]:
    try:
        with reading(path.name), path.open("rb") as lines:
            for line in lines:
                yield msgspec.json.decode(line, type=kind)
    except msgspec.DecodeError as error:
        raise SegmentTorn(f"{path.name} is malformed: {error}") from None


class _Line(msgspec.Struct, frozen=True):
    event_id: int
    epoch: str
