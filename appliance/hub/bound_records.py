"""Defines pauses and ceilings as clients see them, in replies and in events."""

from msgspec import Struct

from appliance.kernel.pauses import PauseCause, PauseKind


class ShownPause(Struct, frozen=True):
    """A pause. `subject`: a name, a topic's id, or empty for all. `topic`: as CHANNEL/TITLE.
    `ask_id`: the question that may lift it."""

    id: int
    kind: PauseKind
    subject: str
    topic: str | None
    cause: PauseCause
    by: str
    at: str
    reason: str | None
    until: str | None
    ask_id: str | None = None


class PauseEvent(Struct, frozen=True):
    """Data in `pause.began` and `pause.ended`. `principal`: the acting token."""

    pause: ShownPause
    principal: str | None = None


class DayUsage(Struct, frozen=True):
    """A name's use on a UTC day. `granted`: how often its ceiling was granted again."""

    day: str
    messages: int = 0
    turns: int = 0
    claims: int = 0
    tokens: int = 0
    cost: float = 0.0
    granted: int = 0
    warned: bool = False


class Ceiling(Struct, frozen=True):
    name: str
    messages: int | None
    turns: int | None
    claims: int | None
    tokens: int | None
    cost: float | None
    set_by: str
    set_at: str
    usage: DayUsage


class CeilingWarned(Struct, frozen=True):
    """Data in `ceiling.warned`: a name has used 80 % in one unit."""

    ceiling: Ceiling
