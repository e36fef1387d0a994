"""Renders `tools/list`: tools with JSON schemas reduced to a model's needs."""

from collections.abc import Sequence
from typing import Any

import msgspec

from appliance.kernel.tool import Tool


def describe(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    return [
        {
            "name": tool.name,
            "title": tool.title,
            "description": tool.description,
            "inputSchema": schema_of(tool.takes),
            **({} if tool.gives is None else {"outputSchema": schema_of(tool.gives)}),
            "annotations": {
                "readOnlyHint": tool.changes == "nothing",
                "destructiveHint": tool.changes == "replaces",
                "idempotentHint": tool.idempotent or tool.changes == "nothing",
                "openWorldHint": False,
            },
            **({} if tool.unfinished is None else {"execution": {"taskSupport": "optional"}}),
        }
        for tool in tools
    ]


def schema_of(kind: type) -> dict[str, Any]:
    """Return a schema with its root inlined, as MCP requires; inner structs are under `$defs`."""
    (_root,), parts = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    parts = {name: _thin(part) for name, part in parts.items()}
    root: dict[str, Any] = parts.pop(kind.__name__)
    if parts:
        root["$defs"] = parts
    return root


def _thin(part: dict[str, Any]) -> dict[str, Any]:
    """Remove titles, which repeat the name, and null, which may be omitted."""
    fields = {name: _field(field) for name, field in part["properties"].items()}
    return {
        **{name: value for name, value in part.items() if name != "title" and value != []},
        "properties": fields,
    }


def _field(schema: dict[str, Any]) -> dict[str, Any]:
    schema = dict(schema)
    choices = [kind for kind in schema.pop("anyOf", []) if kind != {"type": "null"}]
    if len(choices) == 1:
        schema |= choices[0]
    elif choices:
        schema["anyOf"] = choices
    if schema.get("default") in (None, False, []):
        schema.pop("default", None)
    return schema
