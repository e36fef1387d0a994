"""Sends messages of hooks through the outbox."""

from appliance.hooks.service import HookMessage
from appliance.outbox import wire
from appliance.outbox.service import Outbox

PRINCIPAL = "appliance:hooks"  # no token has this name


class HookSender:
    """Sends a hook's message; raises what the outbox raises."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def __call__(self, message: HookMessage) -> None:
        self._outbox.send(
            wire.Send(
                to=message.to,
                message=message.message,
                meta=message.meta,
                reply_to_id=message.reply_to_id,
                client_message_id=message.client_message_id,
                mesh=message.mesh,
            ),
            principal=PRINCIPAL,
        )
