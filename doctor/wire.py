"""Structs and errors for the request that makes a running appliance build derived data again."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from appliance.kernel.errors import Conflict, Invalid

PATH = "/api/v1/doctor/repair"
STOP = "agentlipd down; agentlip doctor repair --yes; agentlipd up"
SECONDS_MAX = 5.0  # one transaction's limit, while all writes to the store wait


class RebuildRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part to build again, and its store. `fts` and `event-scopes` exist only in the hub's
    store."""

    what: Literal["fts", "views", "indexes", "event-scopes"]
    store: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[a-z-]*$")]


class RebuildDone(msgspec.Struct, frozen=True):
    """A finished rebuild. `done`: what changed; `seconds`: how long the rebuild took."""

    what: str
    store: str
    done: str
    seconds: float


class InvalidArguments(Invalid):
    code = "INVALID_ARGUMENTS"
    default_message = "this store has no such derived data"
    default_hint = "agentlip doctor repair"


class RebuildNeedsStop(Conflict):
    code = "STEP_NEEDS_STOP"
    default_message = "this step is not possible while the appliance runs"
    default_hint = STOP


class RebuildRunning(Conflict):
    code = "STEP_RUNNING"
    default_message = "the appliance is applying another step"
    default_hint = "wait some seconds, then do the same again"


class RebuildTooLong(Conflict):
    code = "STEP_TOO_LONG"
    default_message = (
        f"the step took longer than {SECONDS_MAX:.0f} seconds; it was undone, so that writes do not"
        " wait longer"
    )
    default_hint = STOP


class RebuildOnDamage(Conflict):
    code = "STEP_ON_DAMAGE"
    default_message = "the store is damaged, so it was not changed"
    default_hint = "agentlip doctor --all"
