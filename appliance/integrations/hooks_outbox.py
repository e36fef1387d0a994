"""Sends messages of hooks through the outbox."""

import msgspec

from appliance.inbox.hooks.service import HookMessage
from appliance.outbox import wire
from appliance.outbox.service import Outbox

PRINCIPAL = "appliance:hooks"  # no token has this name


def send_hook_message(outbox: Outbox, message: HookMessage) -> None:
    """Raises what the outbox raises."""
    outbox.send(wire.Send(**msgspec.structs.asdict(message)), principal=PRINCIPAL)
