"""A version of a dataset as Delta tables, for programs that read this format.

    <root>/delta/<table>/_delta_log/             written by deltalake, without a JVM
    <root>/delta/<table>/[day=…/]part-….parquet  hard links to the files of the version
    <root>/delta/version                         the name of the published version

One commit for each table adds the new files and removes those that the version lacks. A removed
file is deleted once no kept version has it, so a reader can finish.
"""

from __future__ import annotations

import json
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any

from spark import schemas
from spark.dataset import Dataset, Version, link, part_of, writable, write_synced
from spark.errors import Usage

if TYPE_CHECKING:
    from deltalake import DeltaTable

FOLDER = "delta"
TYPES: dict[str, Any] = {
    "boolean": "boolean",
    "date": "date",
    "double": "double",
    "int64": "long",
    "map<int64,int64>": {
        "type": "map", "keyType": "long", "valueType": "long", "valueContainsNull": True
    },
    "map<string,string>": {
        "type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": True
    },
    "string": "string",
    "strings": {"type": "array", "elementType": "string", "containsNull": True},
    "timestamp_us_utc": "timestamp",
}  # fmt: skip


def is_published(dataset: Dataset) -> bool:
    """Whether the Delta tables have the files of the current version."""
    current, marker = dataset.current(), dataset.root / FOLDER / "version"
    return current is not None and marker.is_file() and marker.read_text() == current.path.name


def publish(dataset: Dataset) -> None:
    """Make the Delta tables equal to the current version. To be called by its only writer."""
    version = dataset.current()
    if version is None or is_published(dataset):
        return
    try:
        import deltalake  # noqa: F401 -- half a second, which other runs do without
    except ImportError:
        raise Usage("--delta needs the package deltalake", "pip install deltalake") from None
    root = dataset.root / FOLDER
    kept = {name for manifest in dataset.kept() for name in manifest["files"]}
    with writable(root):
        for table in schemas.partitions(dataset.schema):
            _publish_table(version, root / table, table, dataset.schema)
            _delete_files(root, table, kept)
        write_synced(root / "version", version.path.name)


def _publish_table(version: Version, folder: Path, table: str, schema: str) -> None:
    wanted = version.files(table)
    for name in wanted:
        target = folder.parent / name
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            link(version.path / name, target)
    column = schemas.partitions(schema)[table]
    by = [column] if column else []
    promised = _schema(schema, table)
    present = _table(folder)
    if present is None:
        from deltalake.transaction import create_table_with_add_actions

        folder.mkdir(parents=True, exist_ok=True)
        adds = [_add(version, name, column) for name in wanted]
        create_table_with_add_actions(str(folder), promised, adds, partition_by=by, name=table)
        return
    there = {f"{table}/{name}" for name in _paths(present)}
    adds = [_add(version, name, column) for name in wanted if name not in there]
    removes = [_remove(name, column) for name in sorted(there - set(wanted))]
    if adds or removes:
        present.create_write_transaction(
            [*adds, *removes], mode="append", schema=promised, partition_by=by
        )


def _table(folder: Path) -> DeltaTable | None:
    from deltalake import DeltaTable

    return DeltaTable(str(folder)) if (folder / "_delta_log").is_dir() else None


def _paths(table: DeltaTable) -> list[str]:
    actions: Any = table.get_add_actions(flatten=True)
    return [str(path) for path in actions.column("path").to_pylist()]


def _add(version: Version, name: str, column: str | None) -> Any:
    from deltalake.transaction import AddAction
    from pyarrow import parquet

    file = version.path / name
    stat = file.stat()
    rows = parquet.read_metadata(file).num_rows
    return AddAction(
        path=name.split("/", 1)[1],
        size=stat.st_size,
        partition_values={column: part_of(name)} if column else {},
        modification_time=stat.st_mtime_ns // 1_000_000,
        data_change=True,
        stats=f'{{"numRecords":{rows}}}',
    )


def _remove(name: str, column: str | None) -> Any:
    from deltalake.transaction import RemoveAction

    return RemoveAction(
        name.split("/", 1)[1],
        data_change=True,
        deletion_timestamp=int(time() * 1000),
        partition_values={column: part_of(name)} if column else {},
    )


def _delete_files(root: Path, table: str, kept: set[str]) -> None:
    for file in (root / table).rglob("*.parquet"):
        if "_delta_log" not in file.parts and str(file.relative_to(root)) not in kept:
            file.unlink()


def _schema(schema: str, table: str) -> Any:
    from deltalake import Schema

    (columns,) = [
        described["columns"]
        for described in schemas.load(schema)["tables"]
        if described["name"] == table
    ]
    fields = [
        {"name": column["name"], "type": TYPES[column["type"]], "nullable": True, "metadata": {}}
        for column in columns
    ]
    return Schema.from_json(json.dumps({"type": "struct", "fields": fields}))
