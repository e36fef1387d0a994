"""What a hook may send goes the way of every send."""

from appliance.hooks.service import Order
from appliance.outbox import wire
from appliance.outbox.service import Outbox

PRINCIPAL = "appliance:hooks"  # no token is called like that


class HookSender:
    """Accepts a hook's message as a send; raises what the outbox raises."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def __call__(self, order: Order) -> None:
        self._outbox.send(
            wire.Send(
                to=order.to,
                message=order.message,
                meta=order.meta,
                reply_to_id=order.reply_to_id,
                client_message_id=order.client_message_id,
                mesh=order.mesh,
            ),
            principal=PRINCIPAL,
        )
