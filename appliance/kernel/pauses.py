"""Pauses, which refuse posts, claims, receives and waits for work.

`kernel/pause_book.py` has those in effect.
"""

import shlex
from typing import Literal

import msgspec

from appliance.kernel.errors import Conflict

Bounded = Literal["use", "wait"]
"""A pause refuses each use of an operation, or only a request that waits."""

PauseKind = Literal["principal", "topic", "all"]
PauseCause = Literal["operator", "ceiling", "hops"]


class StoredPause(msgspec.Struct, frozen=True):
    """A pause. `subject`: a name, a topic's id, or empty for all."""

    id: int
    kind: PauseKind
    subject: str
    cause: PauseCause
    by: str
    at: str
    reason: str | None
    until_steady_ms: int | None
    ask_id: str | None
    topic: str | None

    def has_ended(self, steady_ms: int) -> bool:
        return self.until_steady_ms is not None and self.until_steady_ms <= steady_ms


class Paused(Conflict):
    code = "PAUSED"
    default_message = "posting, claiming, receiving and waiting for work are paused"
    default_hint = "agentlip pauses"


def refusal_of(pause: StoredPause, until: str | None) -> Paused:
    """Return a paused caller's error: the pause's author, reason and end, and the command that
    lifts it."""
    subject = pause.topic or pause.subject
    target = "--all" if pause.kind == "all" else f"--{pause.kind} {shlex.quote(subject)}"
    end = f"until {until}" if until else "without an end"
    details = {
        "kind": pause.kind, "subject": pause.subject, "cause": pause.cause, "by": pause.by,
        "at": pause.at, "reason": pause.reason, "until": until,
    }  # fmt: skip
    hint = f"agentlip resume {target}; paused by {pause.by} {end}: {pause.reason or 'no reason'}"
    return Paused(details=details, hint=hint)
