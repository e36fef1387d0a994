"""Offers the bus as tools for agents."""

from collections.abc import Sequence

from appliance.bus import wire
from appliance.bus.service import Bus, as_agent
from appliance.busfile.claims import ClaimHeld
from appliance.kernel.tool import Tool


def tools(bus: Bus) -> Sequence[Tool]:
    return [
        Tool(
            "claim_task", "Claim a task",
            "Claim a task, `path:GLOB` or `slot:NAME:N` for `lease_seconds`; waits up to `wait`"
            " seconds. Keep the fence. Renew before the lease ends.",
            wire.ClaimTask, None, wire.WRITE, as_agent(bus.claim), "adds",
            unfinished=lambda outcome: isinstance(outcome, ClaimHeld), bounded="use",
        ),
        Tool(
            "renew_claim", "Renew a claim", "Begin a new lease of your claim.",
            wire.RenewClaim, None, wire.WRITE, as_agent(bus.renew), "adds", True,
        ),
        Tool(
            "complete_task", "Complete a task",
            "Publish task_done for a task that you have claimed, and release the claim.",
            wire.CompleteTask, None, wire.WRITE, as_agent(bus.complete), "replaces",
        ),
        Tool(
            "release_claim", "Release a claim", "Release your claim without a message.",
            wire.ReleaseClaim, None, wire.WRITE, as_agent(bus.release), "replaces", True,
        ),
        Tool(
            "change_task_state", "Change a task's state",
            "Change your task's state, if it still is `from`: from WORKING to IN_REVIEW when you"
            " have finished. `actor`: your name.",
            wire.ChangeTaskState, None, wire.WRITE,
            lambda command, who: bus.change_state(command.task, command, who), "replaces", True,
        ),
        Tool(
            "send_heartbeat", "Send a heartbeat",
            "Report every ten seconds that you are alive, with your activity.",
            wire.Beat, None, wire.WRITE, as_agent(bus.beat), "adds", True,
        ),
        Tool(
            "bus_send", "Send a bus message",
            "Publish a message to an agent, or to all; one `id` is published once.",
            wire.PublishBusMessage, None, wire.WRITE, as_agent(bus.publish), "adds",
        ),
        Tool(
            "bus_ack", "Ack bus messages", "Report all messages up to `seq` as handled.",
            wire.BusAck, None, wire.WRITE, as_agent(bus.ack), "adds", True,
        ),
        Tool(
            "bus_poll", "Poll the bus",
            "The next messages for an agent; waits up to `wait` seconds. `after`: the last seq"
            " that you have handled.",
            wire.BusPollQuery, None, wire.READ, lambda query, _: bus.poll(query),
            unfinished=lambda outcome: (
                isinstance(outcome, wire.BusMessages) and not outcome.messages
            ),
            bounded="wait",
        ),
    ]  # fmt: skip
