"""Loads schemas from JSON files: those of the appliance for segments, and those of our tables."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import types as t

OURS = Path(__file__).with_name("schemas")
SHIPPED = Path(__file__).parents[1] / "appliance/export/schemas"


@cache
def load(name: str) -> dict[str, Any]:
    """The schema file, such as `silver-2`. The image has all of them in one folder."""
    folders = [OURS, Path(os.environ.get("AGENTLIP_SCHEMAS", SHIPPED))]
    for folder in folders:
        file = folder / f"{name}.json"
        if file.is_file():
            loaded: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            return loaded
    raise FileNotFoundError(f"no schema {name} in {' or '.join(map(str, folders))}")


@cache
def types() -> dict[str, t.DataType]:
    """The types of columns by their names in schema files."""
    from pyspark.sql import types as t  # a run with nothing to do does without Spark

    return {
        "boolean": t.BooleanType(),
        "date": t.DateType(),
        "double": t.DoubleType(),
        "int64": t.LongType(),
        "map<int64,int64>": t.MapType(t.LongType(), t.LongType()),
        "map<string,string>": t.MapType(t.StringType(), t.StringType()),
        "string": t.StringType(),
        "strings": t.ArrayType(t.StringType()),
        "timestamp_us_utc": t.TimestampType(),
    }


def struct(columns: list[dict[str, Any]]) -> t.StructType:
    from pyspark.sql import types as t

    kinds = types()
    return t.StructType(
        [
            t.StructField(column["name"], kinds[column["type"]], column["nullable"])
            for column in columns
        ]
    )


def segments(kind: str = "events", version: int = 1) -> t.StructType:
    return struct(load(f"{kind}-{version}")["columns"])


def tables(name: str) -> dict[str, t.StructType]:
    """The columns of each table, the partition column last, as Spark reads files."""
    return {table["name"]: struct(table["columns"]) for table in load(name)["tables"]}


def partitions(name: str) -> dict[str, str | None]:
    return {table["name"]: table.get("partition") for table in load(name)["tables"]}


def ranges(name: str) -> dict[str, str]:
    """The id whose range each file of a table remembers, by table."""
    return {table["name"]: table["ranges"] for table in load(name)["tables"] if "ranges" in table}


def differences(actual: t.StructType, promised: t.StructType) -> list[str]:
    """A message for each difference between the columns of `actual` and `promised`."""
    there = {field.name: field.dataType for field in actual}
    problems = []
    for field in promised:
        if field.name not in there:
            problems.append(f"column {field.name} is missing")
        elif _plain(there[field.name]) != _plain(field.dataType):
            kind = there[field.name].simpleString()
            problems.append(f"{field.name} is {kind}, not {field.dataType.simpleString()}")
    expected = set(promised.names)
    return problems + [
        f"column {name} is not in the schema" for name in actual.names if name not in expected
    ]


def _plain(kind: t.DataType) -> str:
    """The type without the nullability inside arrays and maps."""
    return str(kind.simpleString())
