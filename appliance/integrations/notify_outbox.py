"""Messages to the operator by mail and webhook: through the outbox, or without it."""

import msgspec

from appliance.kernel.clock import Clock
from appliance.kernel.errors import Unavailable
from appliance.notify.wire import Notice, Via
from appliance.outbox import wire
from appliance.outbox.service import Outbox
from appliance.outbox.target import MAIL, Delivered, DeliveryTarget, Outgoing

PRINCIPAL = "appliance:notify"  # no token has this name


class OutboxNotices:
    """Directly means by the target of the outbox without its queue: the same addresses are refused,
    and receivers get the same id."""

    def __init__(self, outbox: Outbox | None, target: DeliveryTarget, clock: Clock) -> None:
        """`outbox`: None if it does not run."""
        self._outbox = outbox
        self._target = target
        self._clock = clock

    def send(self, to: str, notice: Notice, *, direct: bool) -> Via:
        is_mail = self._target.name == MAIL
        body = notice.text if is_mail else msgspec.json.encode(notice).decode()
        meta = {"subject": notice.subject} if is_mail else None
        send = wire.Send(to, body, meta=meta, client_message_id=notice.id_for(to),
                         target=self._target.name)  # fmt: skip
        if direct:
            self._deliver(send)
            return "direct"
        if self._outbox is None:
            raise Unavailable("the outbox does not run")
        self._outbox.send(send, internal=True, principal=PRINCIPAL)
        return "outbox"

    def _deliver(self, send: wire.Send) -> None:
        kind, ref, _ = self._target.resolve(send.to) or ("queue", send.to, "")
        result = self._target.deliver(Outgoing(
            "", send.client_message_id or "", b"", kind, ref, None, send.priority, send.meta,
            send.message, 1, self._clock.now_ms(), self._target.name,
        ))  # fmt: skip
        if not isinstance(result, Delivered):
            raise Unavailable(result.reason)
