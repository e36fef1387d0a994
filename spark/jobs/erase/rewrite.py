"""Writes a segment again with some payloads erased. Runs on executors: pyarrow, no Spark.

The new file is beside the segment under a temporary name, complete and synced. It has the rows,
the order, the row groups and the columns of the segment.
"""

import hashlib
import json
import os
from collections.abc import Callable, Collection
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

TEMPORARY = ".erase-"
Erase = Callable[[str, str], str]  # name and data_json → data_json


class Rewritten(NamedTuple):
    """changed: rows with another payload; with none there is no new file, and no hash."""

    changed: int
    bytes: int = 0
    sha256: str = ""


def temporary(path: Path) -> Path:
    return path.with_name(f"{TEMPORARY}{path.name}")


def rewrite(path: Path, event_ids: Collection[int], erase: Erase) -> Rewritten:
    """Write the segment at `path` again; only events with these ids are given to `erase`."""
    target = temporary(path)
    write = _parquet if path.suffix == ".parquet" else _lines
    try:
        changed = write(path, target, event_ids, erase)
        if not changed:
            target.unlink()
            return Rewritten(0)
        return Rewritten(changed, target.stat().st_size, _sync_and_hash(target))
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def _parquet(path: Path, target: Path, event_ids: Collection[int], erase: Erase) -> int:
    parquet = import_module("pyarrow.parquet")
    changed = 0
    with (
        parquet.ParquetFile(path) as segment,
        parquet.ParquetWriter(
            target, segment.schema_arrow, compression="zstd", use_dictionary=_few_values(segment)
        ) as writer,
    ):
        for index in range(segment.num_row_groups):
            table, count = _group(segment.read_row_group(index), event_ids, erase)
            writer.write_table(table, row_group_size=max(table.num_rows, 1))
            changed += count
    return changed


def _few_values(segment: Any) -> list[str]:
    """The columns that have a dictionary in the segment."""
    if not segment.num_row_groups:
        return []
    group = segment.metadata.row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    return [column.path_in_schema for column in columns if column.has_dictionary_page]


def _group(table: Any, event_ids: Collection[int], erase: Erase) -> tuple[Any, int]:
    arrow, compute = import_module("pyarrow"), import_module("pyarrow.compute")
    ids = table.column("event_id").to_pylist()
    indexes = [index for index, number in enumerate(ids) if number in event_ids]
    rows = table.select(["name", "data_json"]).take(indexes).to_pylist()
    replaced = {}
    for index, row in zip(indexes, rows, strict=True):
        text = erase(row["name"], row["data_json"])
        if text != row["data_json"]:
            replaced[index] = text
    if not replaced:
        return table, 0
    at = table.schema.get_field_index("data_json")
    field = table.schema.field(at)
    mask = arrow.array([index in replaced for index in range(len(ids))])
    texts = arrow.array(list(replaced.values()), field.type)
    column = compute.replace_with_mask(table.column(at).combine_chunks(), mask, texts)
    return table.set_column(at, field, column), len(replaced)


def _lines(path: Path, target: Path, event_ids: Collection[int], erase: Erase) -> int:
    changed = 0
    with path.open("rb") as segment, target.open("wb") as file:
        for line in segment:
            row = json.loads(line)
            if row.get("event_id") in event_ids:
                text = erase(row.get("name"), row.get("data_json"))
                if text != row.get("data_json"):
                    changed += 1
                    row["data_json"] = text
                    line = json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()
                    line += b"\n"
            file.write(line)
    return changed


def _sync_and_hash(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    return digest
