"""Output: complete versions of a dataset, one of which is `current`.

    <root>/current -> v00000003          what readers open; one rename switches the version
    <root>/v00000003/<table>/[day=…/]*.parquet
    <root>/v00000003/manifest.json       files, bytes, and the state of the job
    <root>/v00000003/_SUCCESS            written last

A version that shares days with the former holds hard links to the same files. With 10,000 days that
takes 2 s.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark import ranges, schemas
from spark.errors import (
    OutputBusy,
    OutputNotWritable,
    SchemaOutdated,
    SchemaVersionUnknown,
    SegmentMissing,
    SegmentTorn,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VERSIONS_KEPT = 2
DRAFT = ".draft-"
LOST = "run the job again with another output directory"


class Version:
    """A complete version. `current` is resolved once, so a newer version does not disturb."""

    def __init__(self, path: Path, schema: str) -> None:
        self.path = path
        self._schema = schema
        self.manifest = _manifest(path)
        written_as = self.manifest["schema"]
        if _is_older(written_as, schema):
            raise SchemaOutdated(f"{path} has the older schema {written_as}, not {schema}")
        if written_as != schema:
            raise SchemaVersionUnknown(
                f"{path} has schema {written_as}, this program reads {schema}"
            )

    @property
    def number(self) -> int:
        return int(self.path.name[1:])

    @property
    def memory(self) -> dict[str, Any]:
        remembered: dict[str, Any] = self.manifest["memory"]
        return remembered

    @property
    def ranges(self) -> dict[str, ranges.Range]:
        known: dict[str, ranges.Range] = self.manifest.get("ranges", {})
        return known

    def has(self, table: str) -> bool:
        return any(name.startswith(f"{table}/") for name in self.manifest["files"])

    def files(self, table: str, parts: Collection[str] | None = None) -> list[str]:
        """The files of a table, or of some of its partitions, such as days."""
        mine = [name for name in self.manifest["files"] if name.startswith(f"{table}/")]
        return mine if parts is None else [name for name in mine if part_of(name) in parts]

    def days(self, table: str) -> set[str]:
        return {part_of(name) for name in self.files(table) if "/day=" in name}

    def read(
        self, spark: SparkSession, table: str, files: Collection[str] | None = None
    ) -> DataFrame:
        """The table with the columns of its schema; empty if nothing was written. With `files`
        only these are listed and read."""
        wanted = self.files(table) if files is None else files
        missing = [name for name in wanted if not (self.path / name).is_file()]
        if missing:
            raise SegmentTorn(f"{self.path / missing[0]} is in the manifest but does not exist")
        if files is not None and len(files) < len(self.files(table)):
            return _read(spark, self.path, self._schema, table, wanted)
        return _read(spark, self.path, self._schema, table, [table] if wanted else [])


class Draft:
    """A version in progress, invisible to readers until `commit`."""

    def __init__(self, path: Path, schema: str) -> None:
        self.path = path
        self._promised = schemas.tables(schema)
        self._partitions = schemas.partitions(schema)
        self._kept: dict[str, int] = {}  # bytes of linked files
        self._ranges: dict[str, ranges.Range] = {}
        self.schema = schema

    @property
    def number(self) -> int:
        """The number that the version gets."""
        return int(self.path.name.removeprefix(DRAFT))

    def write(self, frame: DataFrame, table: str, distinct: Collection[str] = ()) -> None:
        """`distinct`: columns with few repeated values, for which a dictionary is useless."""
        promised = self._promised[table]
        wrong = schemas.differences(frame.schema, promised)
        if wrong:
            raise SchemaVersionUnknown(
                f"table {table} does not match its schema: {'; '.join(wrong)}"
            )
        writer = frame.select(*promised.names).write.mode("append")
        if column := self._partitions[table]:
            writer = writer.partitionBy(column)
        for column in distinct:
            writer = writer.option(f"parquet.enable.dictionary#{column}", "false")
        writer.parquet(str(self.path / table))

    def keep(self, former: Version, table: str, without: Collection[str] = ()) -> None:
        """Link the files of the former version of a table, except some partitions."""
        made: set[str] = set()
        for name in former.files(table):
            if part_of(name) in without:
                continue
            folder = name.rpartition("/")[0]
            if folder not in made:
                (self.path / folder).mkdir(parents=True, exist_ok=True)
                made.add(folder)
            link(f"{former.path}/{name}", f"{self.path}/{name}")
            self._kept[name] = former.manifest["files"][name]
            if name in former.ranges:
                self._ranges[name] = former.ranges[name]

    def read(self, spark: SparkSession, table: str) -> DataFrame:
        """The rows of the version so far, for checks before the commit."""
        there = any((self.path / table).rglob("*.parquet"))
        return _read(spark, self.path, self.schema, table, [table] if there else [])

    def written(self, spark: SparkSession, table: str) -> DataFrame:
        """The rows in files that this draft wrote itself."""
        files = self.files(table)  # another table may be written meanwhile
        mine = [name for name in files if name not in self._kept]
        all_mine = len(mine) == len(files)
        return _read(spark, self.path, self.schema, table, [table] if files and all_mine else mine)

    def paths(self, table: str, written: bool = False) -> list[Path]:
        """The files of a table; with `written`, only those that this draft wrote itself."""
        names = self.files(table)
        return [self.path / name for name in names if not (written and name in self._kept)]

    def kept(self, spark: SparkSession, table: str) -> DataFrame:
        """The rows in files of the former version."""
        files = sorted(name for name in self._kept if name.startswith(f"{table}/"))
        return _read(spark, self.path, self.schema, table, files)

    def files(self, table: str = "") -> dict[str, int]:
        """The bytes of each file, by its path in the version. With `table`, only its files."""
        sizes = {}
        for folder, _, names in os.walk(self.path / table):
            inside = folder[len(str(self.path)) + 1 :]
            for name in (f"{inside}/{name}" for name in names if name.endswith(".parquet")):
                kept = self._kept.get(name)
                sizes[name] = (self.path / name).stat().st_size if kept is None else kept
        return dict(sorted(sizes.items()))

    def ranges(self) -> dict[str, ranges.Range]:
        """The range of ids of each file, in tables whose schema names an id for it."""
        known, columns = dict(self._ranges), schemas.ranges(self.schema)
        for name in self.files():
            column = columns.get(name.split("/")[0])
            if (
                column
                and name not in self._kept
                and (ends := ranges.read(self.path / name, column))
            ):
                known[name] = ends
        return known


class Dataset:
    """All versions of a dataset, such as `silver`."""

    def __init__(self, root: Path, schema: str) -> None:
        self.root = root
        self.schema = schema

    def current(self) -> Version | None:
        path = self.root / "current"
        return Version(path.resolve(), self.schema) if path.exists() else None

    def older(self) -> dict[str, Any] | None:
        """The memory of the current version if an older program wrote it."""
        path = self.root / "current"
        if not path.exists():
            return None
        manifest = _manifest(path.resolve())
        memory: dict[str, Any] = manifest["memory"]
        return memory if _is_older(manifest["schema"], self.schema) else None

    def kept(self) -> list[dict[str, Any]]:
        """The manifests of all versions that readers may have open."""
        return [_manifest(path) for path in sorted(self.root.glob("v????????"))]

    @contextmanager
    def writing(self) -> Iterator[Dataset]:
        """Lock the dataset for one writer, also between containers that share a volume."""
        with writable(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
        with locked(self.root, OutputBusy(f"another job is writing to {self.root}")):
            for left in self.root.glob(f"{DRAFT}*"):  # left by a killed job
                shutil.rmtree(left, ignore_errors=True)
            yield self

    def draft(self) -> Draft:
        path = self.root / f"{DRAFT}{self._newest() + 1:08d}"
        with writable(self.root):
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir()
        return Draft(path, self.schema)

    def commit(self, draft: Draft, memory: dict[str, Any]) -> Version:
        """Complete the version, then switch `current` to it with one rename."""
        target = self.root / f"v{draft.number:08d}"
        manifest = {
            "schema": self.schema,
            "files": draft.files(),
            "ranges": draft.ranges(),
            "memory": memory,
        }
        with writable(self.root):
            write_synced(draft.path / "manifest.json", json.dumps(manifest, indent=1))
            write_synced(draft.path / "_SUCCESS", "")
            draft.path.rename(target)
            pointer = self.root / ".current"
            pointer.unlink(missing_ok=True)
            pointer.symlink_to(target.name)
            pointer.rename(self.root / "current")
            sync_folder(self.root)
        for old in sorted(self.root.glob("v*"))[:-VERSIONS_KEPT]:
            shutil.rmtree(old, ignore_errors=True)
        return Version(target, self.schema)

    def _newest(self) -> int:
        return max((int(path.name[1:]) for path in self.root.glob("v????????")), default=0)


@contextmanager
def locked(folder: Path, busy: OutputBusy) -> Iterator[None]:
    """Hold the lock of a folder. Raises `busy` if another process holds it."""
    with writable(folder):
        lock = (folder / ".lock").open("a")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise busy from None
        yield


@contextmanager
def writable(root: Path) -> Iterator[None]:
    """Convert OSError to OutputNotWritable."""
    try:
        yield
    except OSError as error:
        raise OutputNotWritable(f"{root} cannot be written: {error.strerror}") from None


def part_of(name: str) -> str:
    """The value of the partition of a file, such as 2026-02-01; empty without partitions."""
    return name.split("/")[1].partition("=")[2]


def _read(
    spark: SparkSession, root: Path, schema: str, table: str, names: Iterable[str]
) -> DataFrame:
    promised = schemas.tables(schema)[table]
    paths = [str(root / name) for name in names]
    if not paths:
        return spark.createDataFrame([], promised)
    reader = spark.read.schema(promised).option("basePath", str(root / table))
    return reader.parquet(*paths).select(*promised.names)


def _manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((path / "manifest.json").read_bytes())
    except FileNotFoundError:
        raise SegmentMissing(f"{path} has no manifest.json", LOST) from None
    except (OSError, ValueError):
        manifest = None
    parts = {"schema": str, "files": dict, "memory": dict}
    if not isinstance(manifest, dict) or not all(
        isinstance(manifest.get(name), kind) for name, kind in parts.items()
    ):
        raise SegmentTorn(f"{path}/manifest.json is truncated or malformed", LOST)
    return manifest


def _is_older(written_as: str, schema: str) -> bool:
    """Whether it is an earlier number of the same schema: silver-1 for silver-2."""
    kind, _, number = written_as.rpartition("-")
    ours, _, newest = schema.rpartition("-")
    return kind == ours and number.isdecimal() and int(number) < int(newest)


def link(source: str | Path, target: str | Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or no support for links
        shutil.copyfile(source, target)


def write_whole(path: Path, text: str, prefix: str = ".") -> None:
    """Write and sync `text`: after a kill, the file has the old or the new text.

    prefix  how the name of the file begins until it is complete; another attempt replaces that file
    """
    draft = path.with_name(f"{prefix}{path.name}.part")
    write_synced(draft, text)
    draft.replace(path)
    sync_folder(path.parent)


def write_synced(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
