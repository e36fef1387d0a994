"""Defines the payloads for the specification's message types. Pure.

Every type may have more keys, which are kept, and other types may have any payload.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from appliance.kernel.errors import Invalid

Progress = Annotated[float, Meta(ge=0, le=1)]


class BusPayload(Struct, frozen=True):
    """A payload without known keys: agent_started, agent_stopped, review_request, task_claim."""


class TaskAssign(BusPayload, frozen=True):
    description: str | None = None
    branch: str | None = None


class TaskProgress(BusPayload, frozen=True):
    progress: Progress | None = None
    message: str | None = None


class TaskDone(BusPayload, frozen=True):
    branch: str | None = None
    commit: str | None = None


class TaskFailed(BusPayload, frozen=True):
    reason: str | None = None


class TaskBlocked(BusPayload, frozen=True):
    on: str | list[str] | None = None
    reason: str | None = None


class HeartbeatPayload(BusPayload, frozen=True):
    status: str | None = None
    current_task: str | None = None
    progress: Progress | None = None


class StateChange(BusPayload, frozen=True, rename={"from_state": "from", "to_state": "to"}):
    to_state: str
    from_state: str | None = None  # None: the worker is new


class ReviewResult(BusPayload, frozen=True):
    approved: bool | None = None
    comment: str | None = None


PAYLOADS: dict[str, type[BusPayload]] = {
    "task_assign": TaskAssign,
    "task_claim": BusPayload,
    "task_progress": TaskProgress,
    "task_done": TaskDone,
    "task_failed": TaskFailed,
    "task_blocked": TaskBlocked,
    "heartbeat": HeartbeatPayload,
    "state_change": StateChange,
    "review_request": BusPayload,
    "review_result": ReviewResult,
    "agent_started": BusPayload,
    "agent_stopped": BusPayload,
}


def typed_payload(type_: str, payload: Any) -> BusPayload | None:
    """Return the payload as its type defines it; None for other types.

    Raises Invalid for a wrong payload. Other programs may write any payload, so a reader has to
    expect errors.
    """
    kind = PAYLOADS.get(type_)
    try:
        return msgspec.convert(payload or {}, kind) if kind else None
    except msgspec.ValidationError as error:
        known = ", ".join(PAYLOADS[type_].__struct_encode_fields__) or "any object"
        raise Invalid(f"payload for {type_}: {error}", hint=f"keys in {type_}: {known}") from None
