"""Sends the mails of asks through the outbox."""

from contextlib import suppress

from appliance.outbox import wire
from appliance.outbox.destination import MAILTO
from appliance.outbox.service import Outbox
from appliance.outbox.target import MAIL

PRINCIPAL = "appliance:ask"  # no token has this name


class OutboxAskMail:
    """Accepts mails of asks. Raises the errors of the outbox."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def take(self, key: str, address: str, subject: str, text: str) -> None:
        send = wire.Send(
            to=MAILTO + address,
            message=text,
            meta={"subject": subject},
            client_message_id=key,
            target=MAIL,
        )
        with suppress(wire.IdReused):  # it was accepted before
            self._outbox.send(send, internal=True, principal=PRINCIPAL)
