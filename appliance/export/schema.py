"""The columns of what is exported, as the JSON files in schemas/ tell them."""

from functools import cache
from importlib.resources import files
from typing import Any, Literal

import msgspec

Type = Literal["int64", "string", "timestamp_us_utc"]


class Column(msgspec.Struct, frozen=True):
    name: str
    type: Type
    nullable: bool
    about: str = ""


class Table(msgspec.Struct, frozen=True):
    name: str
    key: list[str]
    columns: list[Column]


class _Events(msgspec.Struct, frozen=True):
    schema_version: int
    columns: list[Column]


class _Snapshot(msgspec.Struct, frozen=True):
    schema_version: int
    tables: list[Table]


@cache
def events() -> tuple[Column, ...]:
    return tuple(_load("events-1.json", _Events).columns)


@cache
def snapshot() -> tuple[Table, ...]:
    return tuple(_load("snapshot-1.json", _Snapshot).tables)


def _load(name: str, kind: Any) -> Any:
    text = files("appliance.export").joinpath("schemas", name).read_bytes()
    return msgspec.json.decode(text, type=kind)
