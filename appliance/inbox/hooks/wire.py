"""Hook requests, replies and errors."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from appliance.kernel.errors import Forbidden, Unavailable

ACT, READ = "hooks:act", "inbox:read"


class Act(Struct, frozen=True, forbid_unknown_fields=True):
    """`scope` is a scope from the hook's input."""

    scope: Annotated[str, Meta(min_length=1, max_length=240)]
    message: Annotated[str, Meta(min_length=1, max_length=65_536)]
    meta: dict[str, Any] | None = None


class Acted(Struct, frozen=True):
    client_message_id: str


class RunsQuery(Struct, frozen=True):
    """Newest first; with `before`, only runs with a lower number."""

    mesh: Annotated[str, Meta(max_length=63)] | None = None
    before: Annotated[int, Meta(ge=1)] | None = None
    limit: Annotated[int, Meta(ge=1, description="clamped to the maximum")] = 100


class HookRun(Struct, frozen=True):
    """`outcome`: waiting, running, ok, failed, timeout, not_started, lost (the appliance stopped
    meanwhile)."""

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
    """While `has_more` is true, set `before` to the last number to get more."""

    runs: list[HookRun]
    has_more: bool = False


class NotGranted(Forbidden):
    code = "NOT_GRANTED"
    default_message = "this hook run does not have that scope, or its grant has expired"
    default_hint = (
        "add the scope to the hook under [[hooks.commands]]; a grant is for one event only"
    )


class TooManyActs(Forbidden):
    code = "TOO_MANY_ACTS"
    default_message = "this hook run has requested too many sends"
    default_hint = "send fewer messages for one event: at most 100"


class NoSender(Unavailable):
    code = "OUTBOX_OFF"
    default_message = "hooks can't send: the outbox is disabled"
    default_hint = "set roles.outbox = true in agentlip.toml, then: agentlipd restart"
