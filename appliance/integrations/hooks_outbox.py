"""Sends hook messages through the outbox."""

import msgspec

from appliance.inbox.hooks.service import HookMessage
from appliance.outbox import wire
from appliance.outbox.service import Outbox

PRINCIPAL = "appliance:hooks"  # no token has this name


def send_hook_message(outbox: Outbox, message: HookMessage) -> None:
    """Queue a hook's message in the outbox. Raises the outbox errors."""
    outbox.send(wire.Send(**msgspec.structs.asdict(message)), principal=PRINCIPAL)
