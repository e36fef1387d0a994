"""Reads the exported files' columns from the JSON files in schemas/."""

from functools import cache
from importlib.resources import files
from typing import Any, Literal

import msgspec

Type = Literal["int64", "double", "string", "timestamp_us_utc"]


class ExportColumn(msgspec.Struct, frozen=True):
    name: str
    type: Type
    nullable: bool
    about: str = ""


class ExportTable(msgspec.Struct, frozen=True):
    name: str
    key: list[str]
    columns: list[ExportColumn]


@cache
def columns(kind: str) -> tuple[ExportColumn, ...]:
    """Return a log's segment columns."""
    return tuple(_load(f"{kind}-1.json", "columns", list[ExportColumn]))


@cache
def snapshot() -> tuple[ExportTable, ...]:
    return tuple(_load("snapshot-1.json", "tables", list[ExportTable]))


def _load(name: str, field: str, kind: Any) -> Any:
    text = files("appliance.export").joinpath("schemas", name).read_bytes()
    return msgspec.convert(msgspec.json.decode(text)[field], kind)
