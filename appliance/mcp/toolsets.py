"""Chooses the tools that `tools/list` shows: a default set, or the groups named in the URL.

A tool that is not listed can still be called: listing saves tokens, and scopes decide.
"""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from appliance.kernel.auth import Principal
from appliance.kernel.errors import Invalid
from appliance.kernel.tool import Tool

DAILY = (
    "catch_up", "my_inbox", "acknowledge", "read_topic", "search", "post_message", "ask_person",
    "claim_task", "release_claim", "complete_task", "write_handoff", "status",
)  # fmt: skip
"""The tools for daily work, in this order."""

LISTED_MAX = 12
ALL = "all"
DEFAULT = "default"


class ToolsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """`tools`: group names with commas, `default` or `all`."""

    tools: Annotated[
        str, Meta(max_length=500, description="tool groups with commas, `default` or `all`")
    ] = DEFAULT


class NoSuchToolGroup(Invalid):
    code = "NO_SUCH_TOOL_GROUP"
    default_message = "there is no tool group with that name"
    default_hint = "use `?tools=default`, or group names with commas"


def groups_of(tools: Sequence[Tool]) -> list[str]:
    return sorted({tool.group for tool in tools})


def check_groups(query: str, groups: Sequence[str]) -> None:
    """Raise NoSuchToolGroup for a name that is not in `groups`."""
    unknown = _names(query).difference(groups, (ALL, DEFAULT))
    if unknown:
        raise NoSuchToolGroup(
            details={"unknown": sorted(unknown), "groups": list(groups)},
            hint=f"tools= takes default, all, or some of: {','.join(groups)}",
        )


def choose(allowed: Sequence[Tool], query: str, who: Principal) -> list[Tool]:
    """Return the allowed tools that the query names."""
    names = _names(query)
    default = {tool.name for tool in _daily(allowed, who)} if DEFAULT in names else set()
    return [tool for tool in allowed if ALL in names or tool.group in names or tool.name in default]


def _names(query: str) -> set[str]:
    return {name.strip() for name in query.split(",")} - {""} or {DEFAULT}


def _daily(allowed: Sequence[Tool], who: Principal) -> list[Tool]:
    """Return the daily tools, then the tools that the token's scopes name, then others."""

    def rank(tool: Tool) -> tuple[bool, int, bool]:
        daily = tool.name in DAILY
        return not daily, DAILY.index(tool.name) if daily else 0, not who.allows(tool.scope)

    return sorted(allowed, key=rank)[:LISTED_MAX]
