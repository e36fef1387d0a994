"""Maps the relay's HTTP routes to its verbs."""

from email.utils import formatdate
from functools import partial
from typing import Any

import falcon

from appliance.kernel.errors import ApplianceError
from appliance.kernel.route import OPEN, Operation, Route
from appliance.network.key_log import KeyLogEntry, KeyLogHead
from appliance.network.keys import BadKey
from appliance.network.names import BadAgentName
from appliance.relay import v1, wire, writes
from appliance.relay.access import agent_of
from appliance.relay.service import Relay
from appliance.web.address import BadWebhookUrl
from appliance.web.media import reply
from appliance.web.responders import Responder, Responders, Verb, arguments_of, reply_with

REFUSAL = {"ok": False}
SIGNED = (
    wire.UnknownAgent, wire.AgentRevoked, wire.AgentPending, wire.NotCurrent,
    wire.WrongSignature, wire.RequestRepeated,
)  # fmt: skip


def reply_to_client(verb: Verb, status: int = 200) -> Responder:
    """Reply with the verb's result; the verb also gets the client's address."""

    def respond(req: Any, resp: falcon.Response, **fields: Any) -> None:
        reply(resp, verb(*arguments_of(req, fields), req.context.address), status)

    return respond


def reply_to_signer(
    relay: Relay, verb: Verb, status: int = 200, *, is_open: bool = False
) -> Responder:
    """Reply with the verb's result; the verb also gets the name of the agent or admin that signed
    the request, or None if the operation is open and unsigned. Count the request against the
    signer's limit. A refused change's signature is stored too."""

    limit = "heartbeats" if verb == relay.note_seen else "requests"

    def respond(req: Any, resp: falcon.Response, **fields: Any) -> None:
        name = agent_of(req.context.principal)
        if name is None and not is_open:  # a token can't act as an agent
            raise wire.NotSigned
        try:
            if name is not None:
                req.context.allowance = relay.limits.charge(limit, name)
            reply(resp, verb(*arguments_of(req, fields), name), status)
        except ApplianceError:
            relay.write(name or "")
            raise

    return respond


def reply_deprecated(relay: Relay, respond: Responder) -> Responder:
    """Add version 1's end to the response headers. After that time, and without the option,
    raise V1Gone."""

    def respond_until_end(req: Any, resp: falcon.Response, **fields: Any) -> None:
        resp.set_header("Deprecation", "true")
        if relay.v1_until_ms:
            resp.set_header("Sunset", formatdate(relay.v1_until_ms / 1000, usegmt=True))
        if relay.is_v1_gone():
            raise v1.V1Gone
        relay.log.warning("relay", event="v1.used", agent=agent_of(req.context.principal))
        respond(req, resp, **fields)

    return respond_until_end


class Operations:
    """Operations that anybody, an agent, or an admin may call."""

    def __init__(self, relay: Relay) -> None:
        self._relay, self._signatures = relay, relay.signatures

    def anybody(self, summary: str, **more: Any) -> Operation:
        signer = self._signatures.anybody
        return Operation(OPEN, signer=signer, summary=summary, refusal=REFUSAL, **more)

    def agent(self, summary: str, errors: tuple[Any, ...] = (), **more: Any) -> Operation:
        return Operation(
            wire.AGENT, signer=self._signatures.agent, summary=summary, refusal=REFUSAL,
            errors=(*SIGNED, *errors), **more,
        )  # fmt: skip

    def admin(self, summary: str, errors: tuple[Any, ...] = (), **more: Any) -> Operation:
        return Operation(
            wire.ADMIN, signer=self._signatures.admin, summary=summary, refusal=REFUSAL,
            errors=(*SIGNED, wire.NotAnAdmin, *errors), **more,
        )  # fmt: skip

    def version_1(self, summary: str, **more: Any) -> Operation:
        """Return an operation for agents until version 1 ends, then for anybody, who gets 410."""

        def signer(environ: Any) -> Any:
            return None if self._relay.is_v1_gone() else self._signatures.agent(environ)

        return Operation(
            OPEN, signer=signer, summary=f"{summary} in version 1 (deprecated)", refusal=REFUSAL,
            errors=(*SIGNED, v1.V1Gone, v1.V1NotYours), **more,
        )  # fmt: skip


def routes(relay: Relay) -> list[Route]:
    made = Operations(relay)
    return [
        *registry_routes(relay, made),
        *contact_routes(relay, made),
        *presence_routes(relay, made),
        *admin_routes(relay, made),
        *v1_routes(relay, made),
    ]


def registry_routes(relay: Relay, made: Operations) -> list[Route]:
    anybody, agent, admin = made.anybody, made.agent, made.admin
    signed = partial(reply_to_signer, relay)
    return [
        Route("/verify/send", Responders(post=reply_to_client(relay.send_code)), {
            "POST": anybody("Mail a verification code to an agent's owner", body=wire.SendCode,
                            reply=wire.Done, errors=(BadAgentName, wire.EmailRefused)),
        }),
        Route("/verify/confirm", Responders(post=reply_to_client(relay.confirm_code)), {
            "POST": anybody("Confirm a mail address with its code", body=wire.ConfirmCode,
                            reply=wire.Done, errors=(BadAgentName, wire.CodeRefused)),
        }),
        Route("/registry/agents", Responders(get=reply_with(relay.agents),
                                             post=reply_to_client(relay.register, 201)), {
            "GET": anybody("List agents, by name", query=wire.PageQuery,
                           reply=list[wire.AgentEntry], errors=(wire.DirectoryPrivate,)),
            "POST": anybody("Register an agent whose mail address is verified", status=201,
                            body=wire.RegisterAgent, reply=wire.AgentChanged,
                            errors=(BadAgentName, BadWebhookUrl, wire.EmailRefused,
                                    wire.EmailNotVerified, wire.AgentTaken)),
        }),
        Route("/registry/agents/{agent}", Responders(get=signed(relay.agent, is_open=True)), {
            "GET": anybody("Show an agent", reply=wire.AgentDetail,
                           errors=(wire.NoSuchAgent, wire.DirectoryPrivate)),
        }),
        Route("/registry/agents/{agent}/rotate-key", Responders(post=signed(relay.rotate)), {
            "POST": agent("Replace the agent's key", body=wire.RotateKey, reply=wire.AgentChanged,
                          errors=(wire.AgentTaken, wire.RecoveryContested)),
        }),
        Route("/registry/agents/{agent}/recover",
              Responders(post=reply_to_client(relay.recover, 202),
                         delete=signed(relay.cancel_recovery)), {
            "POST": anybody("Begin to replace a lost key, after the owner's code", status=202,
                            body=wire.RecoverKey, reply=wire.RecoveryBegun,
                            errors=(BadAgentName, BadKey, wire.WrongSignature, wire.AgentTaken,
                                    wire.EmailNotVerified)),
            "DELETE": agent("Cancel a key recovery with the present key",
                            (wire.NoSuchRecovery, wire.RecoveryContested), reply=wire.Done),
        }),
        Route("/registry/key-log", Responders(get=signed(relay.key_log, is_open=True)), {
            "GET": anybody("List key log entries, oldest first", query=wire.KeyLogQuery,
                           reply=list[KeyLogEntry]),
        }),
        Route("/registry/key-log/head", Responders(get=reply_with(relay.key_log_head)), {
            "GET": anybody("Show the key log's signed end", reply=KeyLogHead,
                           errors=(wire.NoKeyLog,)),
        }),
        Route("/registry/agents/{agent}/approve", Responders(post=signed(relay.approve)), {
            "POST": admin("Approve a pending agent", (wire.NoSuchAgent,), reply=wire.AgentChanged,
                          audited=True),
        }),
        Route("/registry/agents/{agent}/revoke", Responders(post=signed(relay.revoke)), {
            "POST": admin("Revoke an agent", (wire.NoSuchAgent,), reply=wire.AgentChanged,
                          audited=True),
        }),
    ]  # fmt: skip


def contact_routes(relay: Relay, made: Operations) -> list[Route]:
    agent, signed = made.agent, partial(reply_to_signer, relay)
    accept, deny, remove = (
        partial(relay.answer_contact, verb)
        for verb in (writes.accept_contact, writes.deny_contact, writes.remove_contact)
    )
    return [
        Route("/contacts", Responders(get=signed(relay.contacts)), {
            "GET": agent("List contacts", reply=list[wire.ContactEntry]),
        }),
        Route("/contacts/pending", Responders(get=signed(relay.pending_contacts)), {
            "GET": agent("List requests that wait for an answer", reply=list[wire.PendingContact]),
        }),
        Route("/contacts/events", Responders(get=signed(relay.events)), {
            "GET": agent("List contact events", query=wire.ContactEventsQuery,
                         reply=wire.ContactEvents),
        }),
        Route("/contacts/request", Responders(post=signed(relay.request_contact, 201)), {
            "POST": agent("Ask another agent to become a contact", status=201,
                          body=wire.RequestContact, reply=wire.ContactsRequested,
                          errors=(wire.NoSuchAgent, wire.ContactExists, wire.OwnRequest,
                                  wire.RequesterBlocked, wire.TooManyContacts)),
        }),
        Route("/contacts/{agent}/accept", Responders(post=signed(accept)), {
            "POST": agent("Accept a request", (wire.NoSuchContact, wire.OwnRequest),
                          reply=wire.Done),
        }),
        Route("/contacts/{agent}/deny", Responders(post=signed(deny)), {
            "POST": agent("Deny a request", (wire.NoSuchContact, wire.OwnRequest),
                          reply=wire.Done),
        }),
        Route("/contacts/{agent}", Responders(delete=signed(remove)), {
            "DELETE": agent("Remove a contact", (wire.NoSuchContact,), reply=wire.Done),
        }),
    ]  # fmt: skip


def presence_routes(relay: Relay, made: Operations) -> list[Route]:
    anybody, signed = made.anybody, partial(reply_to_signer, relay)
    return [
        Route("/presence", Responders(put=signed(relay.note_seen)), {
            "PUT": made.agent("Send a heartbeat with the agent's endpoint", (BadWebhookUrl,),
                              body=wire.AgentHeartbeat, reply=wire.AgentSeen),
        }),
        Route("/presence/batch", Responders(get=signed(relay.presences, is_open=True)), {
            "GET": anybody("Show whether agents are online", query=wire.BatchQuery,
                           reply=list[wire.PresenceEntry]),
        }),
        Route("/presence/{agent}", Responders(get=signed(relay.presence, is_open=True)), {
            "GET": anybody("Show whether an agent is online", reply=wire.PresenceEntry,
                           errors=(wire.NoSuchAgent, wire.DirectoryPrivate)),
        }),
    ]  # fmt: skip


def admin_routes(relay: Relay, made: Operations) -> list[Route]:
    admin, signed = made.admin, partial(reply_to_signer, relay)
    return [
        Route("/admin/pending", Responders(get=signed(relay.pending_agents)), {
            "GET": admin("List agents that wait for approval, with the checklist",
                         reply=list[wire.PendingAgent]),
        }),
        Route("/admin/keys", Responders(get=reply_with(relay.admin_keys)), {
            "GET": made.anybody("List the admins' keys", reply=list[wire.AdminKey]),
        }),
        Route("/admin/broadcast", Responders(post=signed(relay.send_broadcast, 201)), {
            "POST": admin("Send a signed broadcast to all agents", status=201, audited=True,
                          body=wire.SendBroadcast, reply=wire.BroadcastSent,
                          errors=(wire.BroadcastExists, wire.NoSuchAgent)),
        }),
        Route("/admin/broadcasts", Responders(get=signed(relay.broadcasts)), {
            "GET": made.agent("List broadcasts, newest first", query=wire.BroadcastsQuery,
                              reply=list[wire.BroadcastEntry]),
        }),
    ]  # fmt: skip


def v1_routes(relay: Relay, made: Operations) -> list[Route]:
    messages, signed = v1.V1Messages(relay), partial(reply_to_signer, relay)
    send, inbox, ack = (
        reply_deprecated(relay, respond)
        for respond in (signed(messages.send, 201), signed(messages.inbox), signed(messages.ack))
    )
    return [
        Route("/relay/send", Responders(post=send), {
            "POST": made.version_1("Send a message", status=201, body=v1.V1Message,
                                   reply=wire.Done),
        }),
        Route("/relay/inbox/{agent}", Responders(get=inbox), {
            "GET": made.version_1("List messages", reply=list[v1.V1Message]),
        }),
        Route("/relay/inbox/{agent}/ack", Responders(post=ack), {
            "POST": made.version_1("Ack messages", body=v1.V1Ack, reply=wire.Done),
        }),
    ]  # fmt: skip
