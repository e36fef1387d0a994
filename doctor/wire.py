"""The request that makes a running appliance apply a step of a repair: its structs and errors."""

from typing import Annotated

import msgspec
from msgspec import Meta

from appliance.kernel.errors import Conflict, Invalid

PATH = "/api/v1/doctor/repair"
STOP = "agentlipd down; agentlip doctor repair --yes; agentlipd up"
ARGUMENTS_MAX = 8

Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[a-z-]*$")]
Value = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_.-]*$")]


class RepairStepRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An action that a running appliance can apply, and its arguments: `store` and, for
    `recreate-object`, `object`."""

    action: Name
    arguments: Annotated[dict[Name, Value], Meta(max_length=ARGUMENTS_MAX)] = {}


class RepairStepDone(msgspec.Struct, frozen=True):
    """The step was applied. `done`: what it did; `seconds`: how long it took."""

    action: str
    arguments: dict[str, str]
    done: str
    seconds: float


class UnknownAction(Invalid):
    code = "UNKNOWN_ACTION"
    default_message = "a repair has no such action"
    default_hint = "agentlip doctor repair"


class InvalidArguments(Invalid):
    code = "INVALID_ARGUMENTS"
    default_message = "the action does not take these arguments"
    default_hint = "agentlip doctor repair"


class StepNeedsStop(Conflict):
    code = "STEP_NEEDS_STOP"
    default_message = "this step is not possible while the appliance runs"
    default_hint = STOP


class StepRunning(Conflict):
    code = "STEP_RUNNING"
    default_message = "the appliance is applying another step"
    default_hint = "wait the seconds in Retry-After, then send the same request again"


class StepTooLong(Conflict):
    code = "STEP_TOO_LONG"
    default_message = (
        "the step took longer than `doctor.owner_step_seconds_max`; it was undone, so that writes"
        " do not wait longer"
    )
    default_hint = STOP


class StepOnDamage(Conflict):
    code = "STEP_ON_DAMAGE"
    default_message = "the store is damaged, so it was not changed"
    default_hint = "agentlip doctor --all"
