"""Checks agent names. Pure."""

import re

from appliance.kernel.errors import Invalid

NAME_PATTERN = "[a-z0-9][a-z0-9_-]{0,31}"
# Routes: /presence/batch, /contacts/pending, /contacts/request, /contacts/events.
RESERVED = frozenset({"batch", "events", "pending", "request"})
_NAME = re.compile(NAME_PATTERN)


class BadAgentName(Invalid):
    code = "BAD_AGENT_NAME"
    default_message = "this name cannot belong to an agent"
    default_hint = (
        "use 1 to 32 lowercase letters, digits, `_` or `-`, and begin with a letter or digit;"
        " batch, events, pending and request are reserved"
    )


def is_agent_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None and text not in RESERVED


def check_agent_name(text: str) -> str:
    """Return the name. Raises BadAgentName."""
    if not is_agent_name(text):
        raise BadAgentName
    return text
