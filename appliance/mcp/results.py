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
    Invalid: "the tool's input schema has the arguments",
}
"""Hints for a model, which has tools and no shell. The first kind that fits counts."""

TOOL_HINTS = {
    "agentlip inbox mine": "my_inbox lists your entries",
    "agentlip ask list": "catch_up lists your open questions",
    "agentlip ask show": "ask_person with ask_id shows the answer",
    "agentlip put FILE": "put_file stores the file again",
    "agentlip outbox list": "outbox_send returns a send's id",
    "agentlip outbox inspect": "outbox_inspect shows the send",
    "agentlip courier peek": "courier_receive leases envelopes, with their ids",
    "agentlip jobs history": "job_status shows a run, by the id that job_run returned",
    "agentlip jobs show": "job_status shows the run",
}
"""Hints in place of an operator's command that a tool replaces."""


def hint_for_model(error: ApplianceError) -> str:
    """Return an error's hint for a model. The hint says when only an operator can help."""
    for kind, hint in HINTS.items():
        if isinstance(error, kind) and (_is_command(error.hint) or error.hint == kind.default_hint):
            return hint
    for command, hint in TOOL_HINTS.items():
        if command in error.hint:
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
