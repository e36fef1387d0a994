"""Serves `POST /network/inbox`, which receives envelopes for the appliance's agents."""

from typing import Any

import falcon

from appliance.kernel.route import OPEN, Operation, Route
from appliance.mailbox import wire
from appliance.mailbox.service import Mailbox
from appliance.network import envelope
from appliance.network.broadcast import BroadcastRefused
from appliance.sdk.network.incoming import MessageBeingHandled
from appliance.sdk.network.peers import ContactsNotCurrent
from appliance.web.media import reply

ERRORS = (
    envelope.NotTheRecipient, envelope.SenderNotAContact, envelope.MalformedEnvelope,
    envelope.UnsupportedEnvelope, envelope.EnvelopeNotCurrent, envelope.EnvelopeNotSigned,
    envelope.NotDecrypted, BroadcastRefused, ContactsNotCurrent, MessageBeingHandled,
)  # fmt: skip


class EndpointResource:
    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox

    def on_post(self, req: Any, resp: falcon.Response, command: wire.EnvelopeToAgent) -> None:
        new = self._mailbox.receive(command.recipient, req.context.raw_body)
        reply(resp, wire.EnvelopeReceived(duplicate=not new))


def routes(mailbox: Mailbox) -> list[Route]:
    return [
        Route("/network/inbox", EndpointResource(mailbox), {
            "POST": Operation(OPEN, "Receive an encrypted message for an agent in this appliance",
                              body=wire.EnvelopeToAgent, reply=wire.EnvelopeReceived, errors=ERRORS,
                              refusal={"ok": False}),
        }),
    ]  # fmt: skip
