"""Writes a segment again with some payloads erased. Runs on executors.

The new file is beside the segment under a temporary name, complete and synced. It has the rows,
the order, the row groups and the columns of the segment. A column that the schema does not have may
be content, so it becomes null in rows that are erased.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Collection
from importlib import import_module
from tempfile import TemporaryFile
from typing import Any

from spark import schemas
from spark.errors import ChecksFailed
from spark.files import sync_folder
from spark.locations import Location, location
from spark.segments import EVENTS

TEMPORARY = ".erase-"
TEXT = "data_json"
PROMISED = frozenset(column["name"] for column in schemas.load(f"{EVENTS}-1")["columns"])
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
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    before, changed = parquet.ParquetFile(segment), 0
    fields = before.schema_arrow
    fields = arrow.schema(
        [each if each.name in PROMISED else each.with_nullable(True) for each in fields],
        fields.metadata,
    )
    groups = range(before.num_row_groups)
    with parquet.ParquetWriter(made, fields, compression="zstd") as writer:
        for index in groups:
            table = _erase_group(before.read_row_group(index).cast(fields), entity_ids, erase)
            writer.write_table(table, row_group_size=max(table.num_rows, 1))
    after = parquet.ParquetFile(made)
    for index in groups:
        former = before.read_row_group(index).cast(fields)
        changed += _count_changed(former, after.read_row_group(index), entity_ids)
    return changed


def _erase_group(table: Any, entity_ids: Collection[str], erase: Erase) -> Any:
    arrow = import_module("pyarrow")
    mine = [entity_id in entity_ids for entity_id in table.column("entity_id").to_pylist()]
    names, texts = table.column("name").to_pylist(), table.column(TEXT).to_pylist()
    made = [
        erase(name, text) if chosen else text
        for chosen, name, text in zip(mine, names, texts, strict=True)
    ]
    others = [None if chosen else row for row, chosen in enumerate(mine)]
    for at, field in enumerate(table.schema):
        if field.name == TEXT:
            table = table.set_column(at, field, arrow.array(made, field.type))
        elif field.name not in PROMISED:
            empty = table.column(at).take(arrow.array(others, arrow.int64()))
            table = table.set_column(at, field, empty)
    return table


def _count_changed(before: Any, after: Any, entity_ids: Collection[str]) -> int:
    """Return how many rows were erased. Compare everything that must stay, and raise
    ChecksFailed."""
    mine = [entity_id in entity_ids for entity_id in before.column("entity_id").to_pylist()]
    others = [not chosen for chosen in mine]
    kept = [name for name in before.column_names if name in PROMISED and name != TEXT]
    is_same = before.select(kept).equals(after.select(kept))
    if not is_same or not before.filter(others).equals(after.filter(others)):
        raise ChecksFailed("other rows of a segment would change; nothing was replaced")
    both = zip(before.filter(mine).to_pylist(), after.filter(mine).to_pylist(), strict=True)
    return sum(old != new for old, new in both)


def _write_lines(segment: Any, made: Any, entity_ids: Collection[str], erase: Erase) -> int:
    changed = 0
    for line in segment:
        try:
            row = json.loads(line)
        except ValueError:  # ingest puts it into the quarantine
            row = None
        if isinstance(row, dict) and row.get("entity_id") in entity_ids:
            erased = {name: row[name] if name in PROMISED else None for name in row}
            erased[TEXT] = erase(row.get("name", ""), row.get(TEXT, ""))
            if erased != row:
                changed += 1
                text = json.dumps(erased, ensure_ascii=False, separators=(",", ":"))
                line = text.encode() + b"\n"
        made.write(line)
    return changed
