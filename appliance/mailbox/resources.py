"""Serves `POST /network/inbox`, which receives envelopes for the appliance's agents, and the routes
by which programs use these agents."""

from typing import Any

import falcon

from appliance.kernel.route import OPEN, Operation, Route
from appliance.mailbox import wire
from appliance.mailbox.service import Mailbox
from appliance.mailbox.verbs import NetworkVerbs
from appliance.network import envelope
from appliance.network.broadcast import BroadcastRefused
from appliance.network.names import BadAgentName
from appliance.sdk.network.folder import NoNetworkAgent
from appliance.sdk.network.incoming import MessageBeingHandled
from appliance.sdk.network.outgoing import NoSuchReport
from appliance.sdk.network.peers import ContactsNotCurrent, NotAContact
from appliance.sdk.network.pins import KeyChanged
from appliance.sdk.network.relay_client import RelayRefused, RelayUnreachable
from appliance.web.media import reply
from appliance.web.responders import Responders, Verb, reply_with

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


PATH = "/api/v1/network"
REFUSED = (NoNetworkAgent, RelayRefused, RelayUnreachable)
NAME = {"name": "anna"}


def _read(path: str, verb: Verb, reply: type, summary: str, **more: Any) -> Route:
    more.setdefault("errors", (NoNetworkAgent,))
    operation = Operation(wire.READ, reply=reply, summary=summary, **more)
    return Route(f"{PATH}/{path}", Responders(get=reply_with(verb)), {"GET": operation})


def _change(path: str, verb: Verb, body: type, summary: str, **more: Any) -> Route:
    more.setdefault("errors", (*REFUSED, BadAgentName))
    operation = Operation(
        wire.WRITE, body=body, reply=wire.ContactChanged, summary=summary, audited=True, **more
    )
    return Route(f"{PATH}/{path}", Responders(post=reply_with(verb)), {"POST": operation})


def routes(mailbox: Mailbox, verbs: NetworkVerbs) -> list[Route]:
    own = wire.OwnQuery
    return [
        _read("agents", verbs.agents, wire.OwnAgentList, "List the appliance's network agents",
              errors=()),
        _read("contacts", verbs.contacts, wire.ContactList, "List an agent's contacts and pins",
              query=own),
        _read("contacts/{name}", verbs.contact_key, wire.ContactKey, query=own,
              summary="Show a contact's safety number", errors=(NoNetworkAgent, NotAContact)),
        _read("requests", verbs.requests, wire.RequestList, query=own,
              summary="List contact requests that wait for an answer"),
        _read("broadcasts", verbs.broadcasts, wire.BroadcastList, query=wire.KeptBroadcastsQuery,
              summary="List the relay admins' verified broadcasts, newest first"),
        _read("reports", verbs.reports, wire.ReportList, query=wire.ReportsQuery,
              summary="List delivery reports, newest first", errors=(NoNetworkAgent, NoSuchReport)),
        _change("request", verbs.request_contact, wire.RequestToAgent, example=NAME,
                summary="Ask another agent to become a contact"),
        _change("answer", verbs.answer_request, wire.AnswerRequest,
                example={**NAME, "answer": "accept"},
                summary="Accept or deny a contact request, or block the agent",
                errors=(*REFUSED, BadAgentName, wire.NoSuchRequest)),
        _change("remove", verbs.remove_contact, wire.RemoveContact, example=NAME,
                summary="End a contact, and delete its pinned key"),
        _change("confirm", verbs.confirm_key, wire.ConfirmKey,
                example={**NAME, "fingerprint": "SHA256:…"},
                summary="Confirm a contact's key after comparing the safety number",
                errors=(NoNetworkAgent, NotAContact, KeyChanged)),
        Route("/network/inbox", EndpointResource(mailbox), {
            "POST": Operation(OPEN, "Receive an encrypted message for an agent in this appliance",
                              body=wire.EnvelopeToAgent, reply=wire.EnvelopeReceived, errors=ERRORS,
                              refusal={"ok": False}),
        }),
    ]  # fmt: skip
