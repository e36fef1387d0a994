"""Structs and errors of messages to the operator."""

import hashlib
from typing import Literal

from msgspec import Struct

from appliance.kernel.errors import Conflict
from appliance.kernel.scopes import Scopes

TEST = "notify:test"
SCOPES = Scopes(frozenset({TEST}))
Via = Literal["outbox", "direct", "hub"]


class NotifyTest(Struct, frozen=True):
    """`direct`: without the outbox, as when the outbox itself fails."""

    direct: bool = False


class NotifyResult(Struct, frozen=True):
    """`via`: what took the message; `direct` and `hub` have delivered it, `outbox` too, unless
    its first attempt had a `problem`; it tries again. None: nothing took the message."""

    to: str
    via: Via | None
    problem: str | None = None


class NotifyTested(Struct, frozen=True):
    """`id`: the sends of this message have ids that begin with it."""

    id: str
    results: list[NotifyResult]


class Notice(Struct, frozen=True):
    """A message, as webhooks get it. `workspace`: its folder's name."""

    id: str
    workspace: str
    at: str
    subject: str
    text: str

    def id_for(self, to: str) -> str:
        """Each destination has an id of its own, which stays the same when it is tried again."""
        return f"{self.id}_{hashlib.sha256(to.encode()).hexdigest()[:8]}"


class NothingToNotify(Conflict):
    code = "NOTIFY_OFF"
    default_message = "no destination is set for messages to the operator"
    default_hint = "set notify.to in agentlip.toml, then: agentlipd restart"
