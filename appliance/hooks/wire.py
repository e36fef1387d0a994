"""What crosses the door about hooks: acts by a grant, and the list of runs."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from appliance.kernel.errors import Forbidden, Unavailable

ACT, READ = "hooks:act", "inbox:read"


class Act(Struct, frozen=True, forbid_unknown_fields=True):
    """`scope` is one of those that the event's JSON names."""

    scope: Annotated[str, Meta(min_length=1, max_length=240)]
    message: Annotated[str, Meta(min_length=1, max_length=65_536)]
    meta: dict[str, Any] | None = None


class Acted(Struct, frozen=True):
    client_message_id: str


class RunsQuery(Struct, frozen=True):
    """Newest first; `before`: runs older than that one's number."""

    mesh: Annotated[str, Meta(max_length=63)] | None = None
    before: Annotated[int, Meta(ge=1)] | None = None
    limit: Annotated[int, Meta(ge=1, description="clamped to the maximum")] = 100


class HookRun(Struct, frozen=True):
    """`outcome`: running, ok, failed, timeout, not_started, lost (the appliance ended first)."""

    number: int
    id: str
    at: str
    hook: str
    event: str
    mesh: str
    inbox_id: str | None
    outcome: str
    exit_code: int | None
    duration_ms: int
    truncated: bool
    said_bytes: int
    acts: list[dict[str, Any]]


class HookRuns(Struct, frozen=True):
    """While `has_more` is true, `before` the last number continues."""

    runs: list[HookRun]
    has_more: bool = False


class NotGranted(Forbidden):
    code = "NOT_GRANTED"
    sentence = "this run was not granted that scope, or its time is over"
    advice = "declare the scope under [[hooks.commands]]; a grant holds for one event"


class TooManyActs(Forbidden):
    code = "TOO_MANY_ACTS"
    sentence = "this run has asked for as many sends as hooks.acts_max allows"
    advice = "send fewer messages for one event, or raise hooks.acts_max"


class NoSender(Unavailable):
    code = "OUTBOX_OFF"
    sentence = "hooks can't send: the outbox is switched off here"
    advice = "set roles.outbox = true in agentlip.toml, then: agentlipd restart"
