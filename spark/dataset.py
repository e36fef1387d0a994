"""Output: complete versions of a dataset, one of which is `current`.

    <root>/current -> v00000003          what readers open; one rename switches the version
    <root>/v00000003/<table>/[day=…/]*.parquet
    <root>/v00000003/manifest.json       files, bytes, and the state of the job
    <root>/v00000003/_SUCCESS            written last

A version that shares days with the former holds hard links to the same files.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark import schemas
from spark.errors import (
    OutputBusy,
    OutputNotWritable,
    SchemaVersionUnknown,
    SegmentMissing,
    SegmentTorn,
)

VERSIONS_KEPT = 2
DRAFT = ".draft-"
LOST = "run the job again with another output directory"


class Version:
    """A complete version. `current` is resolved once, so a newer version does not disturb."""

    def __init__(self, path: Path, schema: str) -> None:
        self.path = path
        self._schema = schema
        try:
            self.manifest: dict[str, Any] = dict(json.loads((path / "manifest.json").read_bytes()))
        except FileNotFoundError:
            raise SegmentMissing(f"{path} has no manifest.json", LOST) from None
        except (OSError, ValueError, TypeError):
            raise SegmentTorn(f"{path}/manifest.json is truncated or malformed", LOST) from None
        if self.manifest.get("schema") != schema:
            written_as = self.manifest.get("schema")
            raise SchemaVersionUnknown(
                f"{path} has schema {written_as}, this program reads {schema}"
            )

    @property
    def memory(self) -> dict[str, Any]:
        remembered: dict[str, Any] = self.manifest["memory"]
        return remembered

    def has(self, table: str) -> bool:
        return any(name.startswith(f"{table}/") for name in self.manifest["files"])

    def days(self, table: str) -> set[str]:
        return {
            part.removeprefix("day=")
            for name in self.manifest["files"]
            if name.startswith(f"{table}/")
            for part in name.split("/")[1:2]
            if part.startswith("day=")
        }

    def read(self, spark: SparkSession, table: str) -> DataFrame:
        """The table with the columns of its schema; empty if nothing was written."""
        promised = schemas.tables(self._schema)[table]
        if not self.has(table):
            return spark.createDataFrame([], promised)
        missing = [
            name
            for name in self.manifest["files"]
            if name.startswith(f"{table}/") and not (self.path / name).is_file()
        ]
        if missing:
            raise SegmentTorn(f"{self.path / missing[0]} is in the manifest but does not exist")
        return spark.read.schema(promised).parquet(str(self.path / table)).select(*promised.names)


class Draft:
    """A version in progress, invisible to readers until `commit`."""

    def __init__(self, path: Path, schema: str) -> None:
        self.path = path
        self._promised = schemas.tables(schema)
        self._partitions = schemas.partitions(schema)
        self.schema = schema

    def write(self, frame: DataFrame, table: str, distinct: Collection[str] = ()) -> None:
        """`distinct`: columns with few repeated values, for which a dictionary is useless."""
        promised = self._promised[table]
        wrong = schemas.differences(frame.schema, promised)
        if wrong:
            raise SchemaVersionUnknown(
                f"table {table} does not match its schema: {'; '.join(wrong)}"
            )
        writer = frame.select(*promised.names).write.mode("append")
        if day := self._partitions[table]:
            writer = writer.partitionBy(day)
        for column in distinct:
            writer = writer.option(f"parquet.enable.dictionary#{column}", "false")
        writer.parquet(str(self.path / table))

    def keep(self, former: Version, table: str, without_days: Collection[str] = ()) -> None:
        """Link the files of the former version of a table, except some days."""
        for name in former.manifest["files"]:
            segments = name.split("/")
            if segments[0] != table or segments[1].removeprefix("day=") in without_days:
                continue
            target = self.path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            _link(former.path / name, target)

    def read(self, spark: SparkSession, table: str) -> DataFrame:
        """The rows written so far, for checks before the commit."""
        promised = self._promised[table]
        if not any((self.path / table).rglob("*.parquet")):
            return spark.createDataFrame([], promised)
        return spark.read.schema(promised).parquet(str(self.path / table)).select(*promised.names)

    def files(self) -> dict[str, int]:
        files = (file for file in self.path.rglob("*.parquet") if file.is_file())
        return {str(file.relative_to(self.path)): file.stat().st_size for file in sorted(files)}


class Dataset:
    """All versions of a dataset, such as `silver`."""

    def __init__(self, root: Path, schema: str) -> None:
        self.root = root
        self.schema = schema

    def current(self) -> Version | None:
        path = self.root / "current"
        return Version(path.resolve(), self.schema) if path.exists() else None

    @contextmanager
    def writing(self) -> Iterator["Dataset"]:
        """Lock the dataset for one writer, also between containers that share a volume."""
        with writable(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            lock = (self.root / ".lock").open("w")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OutputBusy(f"another job is writing to {self.root}") from None
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
        number = self._newest() + 1
        target = self.root / f"v{number:08d}"
        manifest = {"schema": self.schema, "files": draft.files(), "memory": memory}
        with writable(self.root):
            _write_synced(draft.path / "manifest.json", json.dumps(manifest, indent=1))
            _write_synced(draft.path / "_SUCCESS", "")
            draft.path.rename(target)
            pointer = self.root / ".current"
            pointer.unlink(missing_ok=True)
            pointer.symlink_to(target.name)
            pointer.rename(self.root / "current")
            _sync_folder(self.root)
        for old in sorted(self.root.glob("v*"))[:-VERSIONS_KEPT]:
            shutil.rmtree(old, ignore_errors=True)
        return Version(target, self.schema)

    def _newest(self) -> int:
        return max((int(path.name[1:]) for path in self.root.glob("v????????")), default=0)


@contextmanager
def writable(root: Path) -> Iterator[None]:
    """Convert OSError to OutputNotWritable."""
    try:
        yield
    except OSError as error:
        raise OutputNotWritable(f"{root} cannot be written: {error.strerror}") from None


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or no support for links
        shutil.copyfile(source, target)


def _write_synced(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
