"""Sends the relay's verification codes through the outbox."""

from contextlib import suppress

from appliance.outbox import wire
from appliance.outbox.destination import MAILTO
from appliance.outbox.service import Outbox
from appliance.outbox.target import CODE_MAIL

PRINCIPAL = "appliance:relay"  # no token has this name


class OutboxCodeMail:
    """Accepts mails with codes. Raises the errors of the outbox."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def send(self, key: str, email: str, subject: str, text: str) -> None:
        send = wire.Send(
            to=MAILTO + email,
            message=text,
            meta={"subject": subject},
            client_message_id=key,
            target=CODE_MAIL,
        )
        with suppress(wire.IdReused):  # it was accepted before
            self._outbox.send(send, internal=True, principal=PRINCIPAL)
