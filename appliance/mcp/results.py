"""Renders tool results for the model: the value, or a refusal with a hint that names tools."""

from typing import Any

import msgspec

from appliance.hub import wire
from appliance.kernel.errors import (
    ApplianceError,
    CursorBeyondEnd,
    Forbidden,
    Invalid,
    Unauthenticated,
)
from appliance.mcp.tasks import Outcome

_encode = msgspec.json.Encoder().encode

HINTS: dict[type[ApplianceError], str] = {
    wire.NoSuchChannel: "list_channels shows the channels",
    wire.NoSuchTopic: "list_topics shows a channel's topics",
    wire.NoSuchMessage: "read_topic and search show message ids",
    wire.VersionConflict: "read_message shows the current text and version",
    wire.EpochChanged: "call again with after 0 and no epoch",
    CursorBeyondEnd: "call again with after 0 and no epoch",
    Unauthenticated: "the operator must give this client a valid token",
    Forbidden: "status shows your scopes, and the sender names you may use",
    Invalid: "tools/list has the arguments' schema",
}
"""Hints for a model, which has tools and no shell. The first kind that fits counts."""


def hint_for_model(error: ApplianceError) -> str:
    """Return an error's hint for a model. The hint says when only an operator can help."""
    for kind, hint in HINTS.items():
        if isinstance(error, kind) and (_is_command(error.hint) or error.hint == kind.default_hint):
            return hint
    return f"for the operator: {error.hint}" if _is_command(error.hint) else error.hint


def _is_command(hint: str) -> bool:
    return any(word in hint for word in ("agentlip", "GET /", "`", ".md"))


def render(outcome: Outcome) -> dict[str, Any]:
    """Return a call's result as the client gets it."""
    if isinstance(outcome, ApplianceError):
        body = outcome.to_item_body() | {"hint": hint_for_model(outcome)}
        return {"content": [{"type": "text", "text": _encode(body).decode()}], "isError": True}
    result = _encode(outcome)
    return {
        "content": [{"type": "text", "text": result.decode()}],
        "structuredContent": msgspec.Raw(result),
        "isError": False,
    }
