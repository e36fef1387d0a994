"""The rows of tools: thin, well-formed, and each with what a client has to know."""

import json
import re

import jsonschema
import msgspec
import pytest

from appliance.hub.wire import SCOPES
from appliance.mcp.catalogue import describe
from appliance.mcp.tools import TOOLS
from appliance.web.guard import FREE_ON_LOOPBACK
from appliance.web.health import READ_DOCTOR

LISTED = describe(TOOLS)
# A list is in the context of every conversation: about four characters a token.
LIST_CHARACTERS_MAX = 14_000
MODEL_CHARACTERS_MAX = 6_500


def size(value):
    return len(json.dumps(value, separators=(",", ":")))


def test_catalogue_is_small():
    assert len(TOOLS) <= 13
    assert size(LISTED) < LIST_CHARACTERS_MAX
    # Most clients show a model these three only.
    fields = ("name", "description", "inputSchema")
    assert size([{key: tool[key] for key in fields} for tool in LISTED]) < MODEL_CHARACTERS_MAX


@pytest.mark.parametrize("tool", LISTED, ids=lambda tool: tool["name"])
def test_tool_rows_follow_the_specification(tool):
    assert re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", tool["name"])
    assert len(tool["description"]) < 200
    for name in ("inputSchema", "outputSchema"):
        jsonschema.Draft202012Validator.check_schema(tool[name])
        assert tool[name]["type"] == "object"
        for reference in re.findall(r'"\$ref": "([^"]*)"', json.dumps(tool[name])):
            assert reference.removeprefix("#/$defs/") in tool[name]["$defs"]
    assert tool["inputSchema"]["additionalProperties"] is False


@pytest.mark.parametrize("row", TOOLS, ids=lambda row: row.name)
def test_hints_fit_scopes(row):
    """What is free on loopback changes nothing, and what changes something is not free."""
    hints = describe([row])[0]["annotations"]
    free = row.scope in FREE_ON_LOOPBACK | SCOPES.free
    assert hints["readOnlyHint"] == (row.changes == "nothing")
    assert free == (hints["readOnlyHint"] and row.scope != READ_DOCTOR)
    assert not (hints["readOnlyHint"] and hints["destructiveHint"])
    assert hints["openWorldHint"] is False


def test_changing_tools_take_an_idempotency_key():
    for row in TOOLS:
        fields = {field.name for field in msgspec.structs.fields(row.takes)}
        assert ("idempotency_key" in fields) == (row.changes != "nothing"), row.name
