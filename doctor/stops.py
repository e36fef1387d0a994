"""Which steps of a repair a running appliance prevents, why, and the commands that apply them."""

from collections.abc import Iterable

import msgspec

from doctor.actions import ACTIONS
from doctor.context import Context
from doctor.settings import MIB
from doctor.step import Step

AGAIN = "agentlip doctor repair --yes"


class NeededStop(msgspec.Struct, frozen=True):
    """A step of a plan, by its index from 0, that needs the appliance stopped. `reason`: why;
    `command`: what to run."""

    step: int
    reason: str
    command: str


def stopped(command: str) -> str:
    """The commands that stop the appliance, run `command` and start the appliance."""
    return f"agentlipd down; {command}; agentlipd up"


def needed_stops(context: Context, steps: Iterable[Step], again: str) -> tuple[NeededStop, ...]:
    """Empty if no process uses the workspace. `again`: the command that applies the steps."""
    if not context.lock().held:
        return ()
    reasons = enumerate(_reason(context, step) for step in steps)
    return tuple(NeededStop(index, reason, stopped(again)) for index, reason in reasons if reason)


def _reason(context: Context, step: Step) -> str:
    action = ACTIONS[step.action]
    if action.beside_owner or not action.by_owner:
        return action.stopped
    if context.live is None:
        return f"the appliance can't be reached: {context.live_error or 'it does not respond'}"
    store, limit = step.arguments["store"], context.settings.owner_step_bytes_max
    if store in context.off:
        return f"the appliance does not use {store}: its role is off"
    try:
        size = context.datadir.database(store).stat().st_size
    except OSError as error:
        return f"the file of {store} can't be read: {error.strerror}"
    if size > limit:
        return (
            f"{store} has {size // MIB} MiB, more than `doctor.owner_step_bytes_max`"
            f" ({limit // MIB} MiB), so writes would wait too long"
        )
    return ""
