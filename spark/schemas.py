"""Loads schemas from JSON files: the appliance's for segments, and the jobs' for tables."""

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
    """Return a schema file, such as `silver-3`. The image has all schema files in one folder."""
    folders = [OURS, Path(os.environ.get("AGENTLIP_SCHEMAS", SHIPPED))]
    for folder in folders:
        file = folder / f"{name}.json"
        if file.is_file():
            return dict(json.loads(file.read_text(encoding="utf-8")))
    raise FileNotFoundError(f"no schema {name} in {' or '.join(map(str, folders))}")


@cache
def types() -> dict[str, t.DataType]:
    """Return column types by their names in schema files."""
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
        [t.StructField(column["name"], kinds[column["type"]]) for column in columns]
    )


def segments(kind: str = "events", version: int = 1) -> t.StructType:
    return struct(load(f"{kind}-{version}")["columns"])


def tables(name: str) -> dict[str, t.StructType]:
    """Return each table's columns, the partition column last, as Spark reads files."""
    return {table["name"]: struct(table["columns"]) for table in load(name)["tables"]}


def partitions(name: str) -> dict[str, str | None]:
    return {table["name"]: table.get("partition") for table in load(name)["tables"]}
