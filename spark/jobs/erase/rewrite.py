"""Writes a segment again with some payloads erased. Runs on executors.

The new file is beside the segment under a temporary name, complete and synced. It has the rows,
the order, the row groups and the columns of the segment.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Collection
from importlib import import_module
from tempfile import TemporaryFile
from typing import Any

from spark.errors import ChecksFailed
from spark.files import sync_folder
from spark.locations import Location, location

TEMPORARY = ".erase-"
TEXT = "data_json"
Erase = Callable[[str, str], str]  # name and data_json → data_json


def temporary(path: Location) -> Location:
    return path.with_name(f"{TEMPORARY}{path.name}")


def rewrite(url: str, entity_ids: Collection[str], erase: Erase) -> dict[str, Any]:
    """Write a segment again, without the contents of these entities. Returns the hashes of both
    files, the new size, and how many payloads changed."""
    path = location(url)
    write = _write_parquet if path.name.endswith(".parquet") else _write_lines
    with path.open("rb") as segment, TemporaryFile() as made:
        before = hashlib.file_digest(segment, "sha256").hexdigest()
        segment.seek(0)
        changed = write(segment, made, entity_ids, erase)
        made.seek(0)
        after = hashlib.file_digest(made, "sha256").hexdigest()
        size = made.tell()
        made.seek(0)
        with temporary(path).open("wb") as file:
            shutil.copyfileobj(made, file)
    sync_folder(temporary(path))
    return {"file_path": url, "before": before, "after": after, "bytes": size, "changed": changed}


def _write_parquet(segment: Any, made: Any, entity_ids: Collection[str], erase: Erase) -> int:
    parquet = import_module("pyarrow.parquet")
    before, changed = parquet.ParquetFile(segment), 0
    groups = range(before.num_row_groups)
    with parquet.ParquetWriter(made, before.schema_arrow, compression="zstd") as writer:
        for index in groups:
            table, count = _erase_group(before.read_row_group(index), entity_ids, erase)
            writer.write_table(table, row_group_size=max(table.num_rows, 1))
            changed += count
    after = parquet.ParquetFile(made)
    for index in groups:
        _require_same(before.read_row_group(index), after.read_row_group(index), entity_ids)
    return changed


def _erase_group(table: Any, entity_ids: Collection[str], erase: Erase) -> tuple[Any, int]:
    names, texts = table.column("name").to_pylist(), table.column(TEXT).to_pylist()
    entities = table.column("entity_id").to_pylist()
    made = [
        erase(name, text) if entity_id in entity_ids else text
        for entity_id, name, text in zip(entities, names, texts, strict=True)
    ]
    changed = sum(old != new for old, new in zip(texts, made, strict=True))
    at = table.schema.get_field_index(TEXT)
    field = table.schema.field(at)
    return table.set_column(at, field, import_module("pyarrow").array(made, field.type)), changed


def _require_same(before: Any, after: Any, entity_ids: Collection[str]) -> None:
    """Compare all that must stay. Raises ChecksFailed."""
    entities = before.column("entity_id").to_pylist()
    others = [entity_id not in entity_ids for entity_id in entities]
    kept = [name for name in before.column_names if name != TEXT]
    is_same = before.select(kept).equals(after.select(kept))
    if not is_same or not before.filter(others).equals(after.filter(others)):
        raise ChecksFailed("other rows of a segment would change; nothing was replaced")


def _write_lines(segment: Any, made: Any, entity_ids: Collection[str], erase: Erase) -> int:
    changed = 0
    for line in segment:
        try:
            row = json.loads(line)
        except ValueError:  # ingest puts it into the quarantine
            row = None
        if isinstance(row, dict) and row.get("entity_id") in entity_ids:
            text = erase(row.get("name", ""), row.get(TEXT, ""))
            if text != row.get(TEXT):
                changed += 1
                row[TEXT] = text
                line = json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        made.write(line)
    return changed
