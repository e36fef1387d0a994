"""Defines requests, replies and errors for pauses and ceilings."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from appliance.hub.bound_records import Ceiling as Ceiling
from appliance.hub.bound_records import ShownPause as ShownPause
from appliance.hub.wire import Limit, Sender, TopicReference
from appliance.kernel.errors import Exhausted, Invalid, Missing

PAUSE_SECONDS_MAX = 90 * 86_400
PAGE_MAX = 200

Because = Annotated[str, Meta(min_length=1, max_length=500)]
PauseSeconds = Annotated[int, Meta(ge=1, le=PAUSE_SECONDS_MAX)]
Count = Annotated[int, Meta(ge=1, le=1_000_000_000_000)]
Cost = Annotated[float, Meta(gt=0, le=1e12, description="in the unit that the turns report")]


class PauseTarget(Struct, frozen=True, omit_defaults=True):
    """Exactly one field is set. `principal`: a token's name, or a sender's."""

    principal: Sender | None = None
    topic_id: TopicReference | None = None
    all: bool = False


class BeginPause(PauseTarget, frozen=True, omit_defaults=True):
    """Without `seconds` and `until`, the pause lasts until somebody resumes the target."""

    reason: Because | None = None
    seconds: PauseSeconds | None = None
    until: Annotated[datetime, Meta(tz=True)] | None = None


class EndPause(PauseTarget, frozen=True, omit_defaults=True):
    pass


class PauseChanged(Struct, frozen=True):
    pause: ShownPause


class PausesQuery(Struct, frozen=True):
    after: Annotated[int, Meta(ge=0, description="`next` of the previous page")] = 0
    limit: Limit = 50


class PauseList(Struct, frozen=True):
    """Pauses, oldest first."""

    pauses: list[ShownPause]
    has_more: bool = False
    next: int = 0


class SetCeiling(Struct, frozen=True, omit_defaults=True):
    """A name's limits for a UTC day; null: no limit. Replaces the name's former ceiling."""

    name: Sender
    messages: Count | None = None
    turns: Count | None = None
    claims: Count | None = None
    tokens: Count | None = None
    cost: Cost | None = None


class RemoveCeiling(Struct, frozen=True):
    name: Sender


class CeilingShown(Struct, frozen=True):
    ceiling: Ceiling


class CeilingRemoved(Struct, frozen=True):
    name: str


class CeilingsQuery(Struct, frozen=True):
    after: Annotated[str, Meta(max_length=200, description="`next` of the previous page")] = ""
    limit: Limit = 50


class CeilingList(Struct, frozen=True):
    ceilings: list[Ceiling]
    has_more: bool = False
    next: str = ""


class BadPause(Invalid):
    default_message = "a pause needs exactly one target and at most one end"


class NotPaused(Missing):
    default_message = "this target is not paused"
    default_hint = "agentlip pauses"


class TooManyPauses(Exhausted):
    code = "TOO_MANY_PAUSES"
    default_message = "too many pauses"
    default_hint = "agentlip pauses; agentlip resume --principal NAME"


class BadCeiling(Invalid):
    default_message = "a ceiling needs at least one limit"
    default_hint = "agentlip ceiling set NAME --messages 500"


class NoSuchCeiling(Missing):
    default_message = "this name has no ceiling"
    default_hint = "agentlip ceiling list"


class TooManyCeilings(Exhausted):
    code = "TOO_MANY_CEILINGS"
    default_message = "too many ceilings"
    default_hint = "agentlip ceiling list; agentlip ceiling remove NAME"
