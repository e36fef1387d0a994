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
from appliance.network.group_log import GroupLogRefused
from appliance.network.names import BadAgentName
from appliance.sdk.network.folder import NoNetworkAgent
from appliance.sdk.network.groups import BadGroupId, NotInGroup
from appliance.sdk.network.incoming import MessageBeingHandled
from appliance.sdk.network.key_verbs import KeyLogEnd
from appliance.sdk.network.outgoing import NetworkMessageTooLarge, NetworkQueueFull, NoSuchReport
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
GROUP_REFUSED = (*REFUSED, BadGroupId, GroupLogRefused)
GROUP = {"group": "7f9c24e8-3b12-4fef-91e0-56a2d5a1c001"}
NAME = {"name": "anna"}


def _read(path: str, verb: Verb, reply: type, summary: str, **more: Any) -> Route:
    more.setdefault("errors", (NoNetworkAgent,))
    operation = Operation(wire.READ, reply=reply, summary=summary, **more)
    return Route(f"{PATH}/{path}", Responders(get=reply_with(verb)), {"GET": operation})


def _change(path: str, verb: Verb, body: type, summary: str, **more: Any) -> Route:
    more.setdefault("errors", (*REFUSED, BadAgentName))
    more.setdefault("reply", wire.ContactChanged)
    more.setdefault("audited", True)
    operation = Operation(wire.WRITE, body=body, summary=summary, **more)
    return Route(f"{PATH}/{path}", Responders(post=reply_with(verb)), {"POST": operation})


def _group_routes(verbs: NetworkVerbs) -> list[Route]:
    listed = _read("groups", verbs.groups, wire.GroupList, query=wire.OwnQuery, errors=REFUSED,
                   summary="List an agent's groups, and invitations that wait")  # fmt: skip
    created = _change("groups", verbs.create_group, wire.MakeGroup, reply=wire.GroupChanged,
                      example={"name": "builders"}, errors=GROUP_REFUSED,
                      summary="Make a group with an agent as the owner")  # fmt: skip
    return [
        Route(listed.path,
              Responders(get=reply_with(verbs.groups), post=reply_with(verbs.create_group)),
              {**listed.operations, **created.operations}),
        _read("group-members", verbs.group_members, wire.GroupMemberList, query=wire.GroupQuery,
              summary="List a group's members", errors=(*REFUSED, BadGroupId)),
        _read("group-changes", verbs.group_changes, wire.GroupChangeList, errors=GROUP_REFUSED,
              query=wire.GroupChangesQuery,
              summary="Verify a group's membership log, and list the newest changes"),
        _change("group-change", verbs.change_group, wire.ChangeGroup, reply=wire.GroupChanged,
                example={**GROUP, "action": "accept"}, errors=(*GROUP_REFUSED, BadAgentName),
                summary="Invite to, join, leave, transfer or delete a group, or remove a member"),
        _change("group-send", verbs.send_to_group, wire.SendToGroup, reply=wire.ReportList,
                example={**GROUP, "text": "The build is green"}, audited=False,
                errors=(*GROUP_REFUSED, NotInGroup, NetworkQueueFull, NetworkMessageTooLarge),
                summary="Send a text to a group's other members"),
    ]  # fmt: skip


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
        *_group_routes(verbs),
        _read("key-log", verbs.key_log, KeyLogEnd, query=own,
              summary="Follow the relay's key log, and show its pinned end"),
        _change("key", verbs.change_key, wire.ChangeKey, reply=wire.OwnKey,
                example={"action": "rotate"}, errors=REFUSED,
                summary="Replace an agent's key, cancel its recovery, or accept the key log"),
        _change("recover", verbs.recover_key, wire.KeyRecovery, reply=wire.Recovery,
                example={"email": "anna@example.org"}, errors=REFUSED,
                summary="Recover a lost key by mail"),
        Route("/network/inbox", EndpointResource(mailbox), {
            "POST": Operation(OPEN, "Receive an encrypted message for an agent in this appliance",
                              body=wire.EnvelopeToAgent, reply=wire.EnvelopeReceived, errors=ERRORS,
                              refusal={"ok": False}),
        }),
    ]  # fmt: skip
