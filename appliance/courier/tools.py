"""The courier's tools for agents."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from appliance.courier import wire
from appliance.courier.access import USE
from appliance.courier.service import Courier
from appliance.kernel.auth import Principal
from appliance.kernel.caller import is_there
from appliance.kernel.clock import iso
from appliance.kernel.ids import random_id
from appliance.kernel.tool import Tool


class EnqueueArguments(Struct, frozen=True, forbid_unknown_fields=True):
    to: wire.StreamName
    type: wire.Short
    payload: Any
    id: (
        Annotated[wire.EnvelopeId, Meta(description="for safe retries: one id is enqueued once")]
        | None
    ) = None


def tools(courier: Courier) -> Sequence[Tool]:
    def enqueue(arguments: EnqueueArguments, who: Principal) -> wire.Enqueued:
        envelope = {
            "id": arguments.id or random_id(),
            "ts": iso(courier.clock.now_ms()),
            "type": arguments.type,
            "payload": arguments.payload,
        }
        return courier.enqueue(who, arguments.to, msgspec.Raw(msgspec.json.encode(envelope)))

    def receive(arguments: wire.ReceiveRequest, who: Principal) -> wire.Received:
        return courier.receive_envelopes(who, arguments, is_there)

    def ack(arguments: wire.AckRequest, who: Principal) -> wire.LeaseResult:
        consumer = courier.receiver(who, arguments.receiver)
        return courier.report_leases(consumer, arguments.ids, courier.ack(consumer, arguments.ids))

    return [
        Tool(
            "courier_enqueue", "Enqueue an envelope", "Enqueue work in a stream.",
            EnqueueArguments, None, USE, enqueue, "adds",
        ),
        Tool(
            "courier_receive", "Receive envelopes",
            "Lease envelopes from a stream; waits up to `wait` seconds (50) for the first. Ack them"
            " before the lease ends, or they are delivered again.",
            wire.ReceiveRequest, None, USE, receive, "adds", bounded="use",
        ),
        Tool(
            "courier_ack", "Ack envelopes", "End the work on received envelopes.",
            wire.AckRequest, None, USE, ack, "replaces",
        ),
    ]  # fmt: skip
