"""Sends other subsystems' mails through the outbox."""

from contextlib import suppress

from appliance.outbox import wire
from appliance.outbox.destination import MAILTO
from appliance.outbox.service import Outbox


class OutboxMail:
    """Accepts mails. Raises the outbox errors."""

    def __init__(self, outbox: Outbox, target: str, principal: str) -> None:
        """Record `principal` with each mail. No token has this name."""
        self._outbox = outbox
        self._target = target
        self._principal = principal

    def send(self, key: str, address: str, subject: str, text: str) -> None:
        send = wire.Send(
            to=MAILTO + address,
            message=text,
            meta={"subject": subject},
            client_message_id=key,
            target=self._target,
        )
        with suppress(wire.IdReused):  # accepted before
            self._outbox.send(send, internal=True, principal=self._principal)
