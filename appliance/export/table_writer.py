"""Writes rows as Parquet or JSON Lines; writes, syncs and hashes in one pass.

Parquet needs pyarrow, which is imported only when a Parquet file is opened.
"""

import hashlib
import importlib
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from appliance.export.errors import LibraryMissing, SegmentTorn
from appliance.export.manifests import reading, writing
from appliance.export.schema import ExportColumn

ROW_GROUP_ROWS = 65_536
_COPY_BYTES = 1 << 20
LEVEL = 1  # zstd level: a third of the uncompressed size, in a quarter of the time of level 3
_FEW_VALUES = frozenset(
    {
        *("epoch", "name", "scope_channel_id", "entity_type", "channel_id", "sender", "kind"),
        *("mesh", "mesh_id", "destination_kind", "priority", "stream", "durability", "consumer"),
        *("sender_pubkey", "recipient", "target", "route", "principal", "topic"),
    }
)


class Written(NamedTuple):
    rows: int
    bytes: int
    sha256: str


class TableFile(Protocol):
    def add(self, columns: Sequence[Sequence[Any]]) -> None:
        """Add rows, given as columns in the order of the schema."""

    def copy(self, path: Path) -> None:
        """Add all rows of another file with the same columns."""

    def finish(self) -> Written:
        """Complete and sync the file."""

    def abandon(self) -> None:
        """Close and remove the file."""


def create(path: Path, format_name: str, columns: Sequence[ExportColumn]) -> TableFile:
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


class _Hashed(io.RawIOBase):
    """A new file that is hashed as it is written."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self._file = path.open("xb", buffering=0)
        self._hash = hashlib.sha256()
        self.bytes = 0
        self._abandoned = False

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.bytes

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if self._abandoned:  # a Parquet writer still writes the footer
            return view.nbytes
        self._hash.update(view)
        left = view
        try:
            while left.nbytes:
                left = left[self._file.write(left) :]
        except OSError as error:  # for example a full disk: the error has no file name
            error.filename = str(self.path.parent)
            raise
        self.bytes += view.nbytes
        return view.nbytes

    def finish(self, rows: int) -> Written:
        os.fsync(self._file.fileno())
        self._file.close()
        return Written(rows, self.bytes, self._hash.hexdigest())

    def abandon(self) -> None:
        self._abandoned = True
        with suppress(OSError):
            self._file.close()
            self.path.unlink(missing_ok=True)


class ParquetFile:
    def __init__(self, path: Path, columns: Sequence[ExportColumn]) -> None:
        self._parquet = library()
        self._arrow = importlib.import_module("pyarrow")
        self.schema = arrow_schema(columns)
        self._rows = 0
        self._gathered: list[Any] = []
        with writing():
            self._file = _Hashed(path)
            self._writer = self._parquet.ParquetWriter(
                self._file,
                self.schema,
                compression="zstd",
                compression_level=LEVEL,
                use_dictionary=[c.name for c in columns if c.name in _FEW_VALUES],
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
        if sum(piece.num_rows for piece in self._gathered) >= ROW_GROUP_ROWS:
            self._pour()

    def _pour(self) -> None:
        if self._gathered:
            self._write(self._arrow.concat_tables(self._gathered))
            self._gathered = []

    def _write(self, table: Any) -> None:
        with writing():
            self._writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
        self._rows += table.num_rows

    def finish(self) -> Written:
        self._pour()
        with writing():
            self._writer.close()
            return self._file.finish(self._rows)

    def abandon(self) -> None:
        self._file.abandon()
        with suppress(Exception):
            self._writer.close()

    def _array(self, values: Any, kind: Any) -> Any:
        arrow = self._arrow
        if isinstance(values, arrow.ChunkedArray):
            return values if values.type == kind else values.cast(kind)
        if not arrow.types.is_timestamp(kind):
            return arrow.array(values, kind)
        return times(arrow.array(values, arrow.string()))


class JsonLinesFile:
    def __init__(self, path: Path, columns: Sequence[ExportColumn]) -> None:
        self._names = [column.name for column in columns]
        self._encode = msgspec.json.Encoder().encode_lines
        self._rows = 0
        with writing():
            self._file = _Hashed(path)

    def add(self, columns: Sequence[Sequence[Any]]) -> None:
        rows = [dict(zip(self._names, row, strict=True)) for row in zip(*columns, strict=True)]
        self._write(self._encode(rows), len(rows))

    def copy(self, path: Path) -> None:
        with reading(path.name), path.open("rb") as file:
            while lines := file.readlines(_COPY_BYTES):
                self._write(b"".join(lines), len(lines))

    def _write(self, lines: bytes, rows: int) -> None:
        with writing():
            self._file.write(lines)
        self._rows += rows

    def finish(self) -> Written:
        with writing():
            return self._file.finish(self._rows)

    def abandon(self) -> None:
        self._file.abandon()


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
        return arrow.chunked_array([[_instant(text) for text in texts.to_pylist()]], kind)


def _instant(text: str | None) -> datetime | None:
    if text is None:
        return None
    moment = datetime.fromisoformat(text)
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


_Events = tuple[Sequence[int], set[str]]  # ids in the order of the file, and their epochs


class Extent(NamedTuple):
    """The facts that are read from a segment's file."""

    first_event_id: int
    last_event_id: int
    rows: int
    epochs: frozenset[str]


def extent(path: Path, format_name: str, columns: Sequence[ExportColumn]) -> Extent:
    """Read all values of a segment. Raises SegmentTorn if the ids do not ascend: then the number of
    rows does not show which are missing."""
    read = _events_of_lines if format_name == "jsonl" else partial(_events_of_parquet, columns)
    first = last = rows = 0
    epochs: set[str] = set()
    for ids, some in read(path):
        for former, number in pairwise((last, *ids)):
            if number <= former:
                raise SegmentTorn(f"{path.name} has event {number} after event {former}")
        first, last, rows = first or ids[0], ids[-1], rows + len(ids)
        epochs |= some
    return Extent(first, last, rows, frozenset(epochs))


def count(path: Path, format_name: str) -> int:
    """The number of rows of a file, whatever its columns."""
    if format_name == "parquet":
        with open_parquet(path) as file:
            return int(file.metadata.num_rows)
    with reading(path.name), path.open("rb") as lines:
        return sum(1 for _ in lines)


def rows(path: Path, format_name: str) -> Iterator[dict[str, Any]]:
    """The rows of a file, by column. Raises SegmentTorn, and LibraryMissing for Parquet without
    pyarrow."""
    if format_name == "parquet":
        with open_parquet(path) as file:
            for batch in file.iter_batches(ROW_GROUP_ROWS):
                yield from batch.to_pylist()
        return
    try:
        with reading(path.name), path.open("rb") as lines:
            for line in lines:
                yield msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise SegmentTorn(f"{path.name} is malformed: {error}") from None


@contextmanager
def open_parquet(path: Path, name: str | None = None) -> Iterator[Any]:
    """A Parquet file, which errors call `name`."""
    parquet = library()
    with parquet_errors(name or path.name), parquet.ParquetFile(path) as file:
        yield file


@contextmanager
def parquet_errors(name: str) -> Iterator[None]:
    """Convert errors of pyarrow to SegmentMissing or SegmentTorn."""
    arrow = library("pyarrow")
    try:
        with reading(name):
            yield
    except (arrow.ArrowException, ValueError, IndexError, AttributeError) as error:
        what = str(error).split("\n", 1)[0][:200]
        raise SegmentTorn(f"{name} cannot be read: {what}") from None


def _events_of_parquet(columns: Sequence[ExportColumn], path: Path) -> Iterator[_Events]:
    """Every page is read: a hash does not show that one was damaged before it was written."""
    with open_parquet(path) as file:
        if not file.schema_arrow.equals(arrow_schema(columns)):
            raise SegmentTorn(f"{path.name} has other columns than its schema version")
        for batch in file.iter_batches(ROW_GROUP_ROWS):
            epochs = batch.column("epoch").unique().to_pylist()
            yield batch.column("event_id").to_pylist(), set(epochs)


def id_range(file: Any) -> tuple[int, int]:
    """The first and last event of an open Parquet file."""
    ids = statistics(file, "event_id")
    return ids[0].min, ids[-1].max


def statistics(file: Any, column: str) -> list[Any]:
    """The statistics of a column in each row group of an open Parquet file."""
    metadata, index = file.metadata, file.schema_arrow.names.index(column)
    return [metadata.row_group(n).column(index).statistics for n in range(metadata.num_row_groups)]


def _events_of_lines(path: Path) -> Iterator[_Events]:
    rows = 0
    try:
        with reading(path.name), path.open("rb") as file:
            for line in file:
                event = msgspec.json.decode(line, type=_Line)
                yield [event.event_id], {event.epoch}
                rows += 1
    except msgspec.DecodeError as error:
        raise SegmentTorn(f"{path.name} is malformed at line {rows + 1}: {error}") from None


class _Line(msgspec.Struct, frozen=True):
    event_id: int
    epoch: str
