"""The bus's tools for agents."""

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct

from appliance.bus import wire
from appliance.bus.service import Bus
from appliance.busfile.claims import ClaimHeld
from appliance.busfile.messages import Published
from appliance.kernel.auth import Principal
from appliance.kernel.tool import Tool


class SendArguments(Struct, frozen=True, forbid_unknown_fields=True):
    from_agent: wire.BusName
    type: wire.BusName
    payload: Any = None
    to_agent: wire.BusName | None = None
    correlation_id: wire.BusName | None = None
    id: Annotated[str, Meta(description="for safe retries: one id is published once")] | None = None


class CompleteArguments(Struct, frozen=True, forbid_unknown_fields=True):
    task: wire.BusName
    agent: wire.BusName
    fence: int
    payload: Any = None


def tools(bus: Bus) -> Sequence[Tool]:
    def complete(arguments: CompleteArguments, _who: Principal) -> Published:
        return bus.complete(arguments.task, arguments.agent, arguments.fence, arguments.payload)

    def send(arguments: SendArguments, _who: Principal) -> Published:
        return bus.publish(
            wire.PublishBusMessage(
                arguments.from_agent, arguments.type, arguments.to_agent,
                arguments.correlation_id, None, arguments.payload, arguments.id,
            ),
            None,
        )  # fmt: skip

    return [
        Tool(
            "claim_task", "Claim a task",
            "Claim a task, `path:GLOB` or `slot:NAME:N` for `lease_seconds`; waits up to `wait`"
            " seconds. Keep the fence. Renew before the lease ends.",
            wire.ClaimTask, None, wire.WRITE, lambda arguments, _who: bus.claim(arguments), "adds",
            unfinished=lambda outcome: isinstance(outcome, ClaimHeld),
        ),
        Tool(
            "renew_claim", "Renew a claim", "Begin a new lease of your claim.",
            wire.RenewClaim, None, wire.WRITE, lambda arguments, _who: bus.renew(arguments), "adds",
            True,
        ),
        Tool(
            "complete_task", "Complete a task",
            "Publish task_done for a task that you have claimed, and release the claim.",
            CompleteArguments, None, wire.WRITE, complete, "replaces",
        ),
        Tool(
            "bus_send", "Send a bus message", "Publish a message to an agent, or to all.",
            SendArguments, None, wire.WRITE, send, "adds",
        ),
        Tool(
            "bus_poll", "Poll the bus",
            "The next messages for an agent; waits up to `wait` seconds. `after`: the last seq"
            " that you have handled.",
            wire.BusPollQuery, None, wire.READ, lambda arguments, _who: bus.poll(arguments),
            unfinished=lambda outcome: (
                isinstance(outcome, wire.BusMessages) and not outcome.messages
            ),
        ),
    ]  # fmt: skip
