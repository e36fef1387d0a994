"""The relay's HTTP resources and the table of its routes."""

from email.utils import formatdate
from typing import Any

import falcon
import msgspec

from appliance.kernel.errors import Invalid
from appliance.kernel.route import OPEN, Operation, Route
from appliance.network.encoding import is_current
from appliance.network.names import BadAgentName
from appliance.relay import v1, wire, writes
from appliance.relay.access import agent_of
from appliance.relay.service import Relay
from appliance.relay.states import ACTIVE
from appliance.web.address import BadWebhookUrl
from appliance.web.media import reply
from appliance.web.responders import Responders, reply_with

REFUSAL = {"ok": False}
SIGNED = (
    wire.UnknownAgent, wire.AgentRevoked, wire.AgentPending, wire.NotCurrent,
    wire.WrongSignature, wire.RequestRepeated,
)  # fmt: skip


class SignedResource:
    """Finds the agent that signed a request, and counts the request against its limit."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def _signed_by(self, req: Any) -> str:
        name = agent_of(req.context.principal)
        if name is None:  # a token can't act as an agent
            raise wire.NotSigned
        req.context.allowance = self._relay.limits.take("requests", name)
        return name

    def _viewer(self, req: Any) -> str | None:
        return None if agent_of(req.context.principal) is None else self._signed_by(req)


class VerifyResource:
    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def on_post_send(self, req: Any, resp: falcon.Response, command: wire.SendCode) -> None:
        reply(resp, self._relay.send_code(command, req.context.address))

    def on_post_confirm(self, req: Any, resp: falcon.Response, command: wire.ConfirmCode) -> None:
        reply(resp, self._relay.confirm_code(command, req.context.address))


class RegistryResource(SignedResource):
    def on_get(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._relay.agents(req.context.query))

    def on_post(self, req: Any, resp: falcon.Response, command: wire.RegisterAgent) -> None:
        reply(resp, self._relay.register(command, req.context.address), 201)

    def on_get_item(self, req: Any, resp: falcon.Response, agent: str) -> None:
        reply(resp, self._relay.agent(agent, self._viewer(req)))

    def on_post_rotate(
        self, req: Any, resp: falcon.Response, agent: str, command: wire.RotateKey
    ) -> None:
        if self._signed_by(req) != agent:
            raise wire.NotAnAdmin("an agent can replace only its own key")
        reply(resp, self._relay.rotate(agent, command))

    def on_post_approve(self, req: Any, resp: falcon.Response, agent: str) -> None:
        reply(resp, self._relay.approve(agent, self._signed_by(req)))

    def on_post_revoke(self, req: Any, resp: falcon.Response, agent: str) -> None:
        reply(resp, self._relay.revoke(agent, self._signed_by(req)))


class ContactsResource(SignedResource):
    def on_get(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._relay.contacts(self._signed_by(req)))

    def on_get_pending(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._relay.pending_contacts(self._signed_by(req)))

    def on_get_events(self, req: Any, resp: falcon.Response) -> None:
        reply(resp, self._relay.events(self._signed_by(req), req.context.query))

    def on_post_request(
        self, req: Any, resp: falcon.Response, command: wire.RequestContact
    ) -> None:
        reply(resp, self._relay.request_contact(self._signed_by(req), command), 201)

    def on_post_accept(self, req: Any, resp: falcon.Response, agent: str) -> None:
        self._answer(req, resp, writes.accept_contact, agent)

    def on_post_deny(self, req: Any, resp: falcon.Response, agent: str) -> None:
        self._answer(req, resp, writes.deny_contact, agent)

    def on_delete_item(self, req: Any, resp: falcon.Response, agent: str) -> None:
        self._answer(req, resp, writes.remove_contact, agent)

    def _answer(self, req: Any, resp: falcon.Response, verb: Any, agent: str) -> None:
        reply(resp, self._relay.answer_contact(verb, self._signed_by(req), agent))


class PresenceResource(SignedResource):
    def on_put(self, req: Any, resp: falcon.Response, command: wire.AgentHeartbeat) -> None:
        reply(resp, self._relay.note_seen(self._signed_by(req), command))

    def on_get_item(self, req: Any, resp: falcon.Response, agent: str) -> None:
        reply(resp, self._relay.presence(agent, self._viewer(req)))

    def on_get_batch(self, req: Any, resp: falcon.Response) -> None:
        names = [name for name in req.context.query.agents.split(",") if name]
        reply(resp, self._relay.presences(names, self._viewer(req)))


class RelayAdminResource(SignedResource):
    def on_get_pending(self, req: Any, resp: falcon.Response) -> None:
        self._signed_by(req)
        reply(resp, self._relay.pending_agents())

    def on_post_broadcast(
        self, req: Any, resp: falcon.Response, command: wire.SendBroadcast
    ) -> None:
        reply(resp, self._relay.send_broadcast(command, self._signed_by(req)), 201)

    def on_get_broadcasts(self, req: Any, resp: falcon.Response) -> None:
        self._signed_by(req)
        reply(resp, self._relay.broadcasts(req.context.query))


class V1Resource(SignedResource):
    """Version 1 of the protocol. Every response has its end in `Sunset`."""

    def on_post(self, req: Any, resp: falcon.Response, command: v1.V1Message) -> None:
        """The signature of the message itself is for its recipient."""
        sender = self._admit(req, resp)
        if command.from_ != sender:
            raise v1.V1NotYours
        try:
            current = is_current(command.timestamp, self._relay.clock.now_ms())
        except (ValueError, OverflowError):
            current = False
        if not current:
            raise Invalid("the message's timestamp is more than 5 minutes from the relay's time")
        row = self._relay.directory.agents.get(command.to)
        if row is None or row.status != ACTIVE:
            raise wire.NoSuchAgent
        body = msgspec.json.encode(command).decode()
        arguments = (command.to, sender, command.message_id, command.nonce, body)
        self._relay.store.write(v1.add, *arguments)
        reply(resp, wire.Done(), 201)

    def on_get_inbox(self, req: Any, resp: falcon.Response, agent: str) -> None:
        reply(resp, self._relay.store.read(v1.waiting, self._owner(req, resp, agent)))

    def on_post_ack(self, req: Any, resp: falcon.Response, agent: str, command: v1.V1Ack) -> None:
        self._relay.store.write(v1.ack, self._owner(req, resp, agent), command.message_ids)
        reply(resp, wire.Done())

    def _owner(self, req: Any, resp: falcon.Response, agent: str) -> str:
        if self._admit(req, resp) != agent:
            raise v1.V1NotYours
        return agent

    def _admit(self, req: Any, resp: falcon.Response) -> str:
        """Raises V1Gone after the 30 days, and without the option."""
        name, sunset_ms = self._signed_by(req), self._relay.v1_until_ms
        if self._relay.clock.now_ms() >= sunset_ms:
            raise v1.V1Gone
        resp.set_header("Deprecation", "true")
        resp.set_header("Sunset", formatdate(sunset_ms / 1000, usegmt=True))
        self._relay.log.warning("relay", event="v1.used", agent=name)
        return name


class Operations:
    """Makes operations that anybody, an agent, or an admin may call."""

    def __init__(self, relay: Relay) -> None:
        self._signatures = relay.signatures

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


def routes(relay: Relay) -> list[Route]:
    made = Operations(relay)
    return [
        *registry_routes(relay, made),
        *contact_routes(relay, made),
        *admin_routes(relay, made),
        *v1_routes(relay, made),
    ]


def registry_routes(relay: Relay, made: Operations) -> list[Route]:
    anybody, agent, admin = made.anybody, made.agent, made.admin
    verify, registry = VerifyResource(relay), RegistryResource(relay)
    return [
        Route("/verify/send", verify, {
            "POST": anybody("Mail a verification code to an agent's owner", body=wire.SendCode,
                            reply=wire.Done, errors=(BadAgentName, wire.EmailRefused)),
        }, suffix="send"),
        Route("/verify/confirm", verify, {
            "POST": anybody("Confirm a mail address with its code", body=wire.ConfirmCode,
                            reply=wire.Done, errors=(BadAgentName, wire.CodeRefused)),
        }, suffix="confirm"),
        Route("/registry/agents", registry, {
            "GET": anybody("List agents, by name", query=wire.PageQuery,
                           reply=list[wire.AgentEntry], errors=(wire.DirectoryPrivate,)),
            "POST": anybody("Register an agent whose mail address is verified", status=201,
                            body=wire.RegisterAgent, reply=wire.AgentChanged,
                            errors=(BadAgentName, BadWebhookUrl, wire.EmailRefused,
                                    wire.EmailNotVerified, wire.AgentTaken)),
        }),
        Route("/registry/agents/{agent}", registry, {
            "GET": anybody("Show an agent", reply=wire.AgentDetail,
                           errors=(wire.NoSuchAgent, wire.DirectoryPrivate)),
        }, suffix="item"),
        Route("/registry/agents/{agent}/rotate-key", registry, {
            "POST": agent("Replace the agent's key", body=wire.RotateKey, reply=wire.AgentChanged,
                          errors=(wire.AgentTaken,)),
        }, suffix="rotate"),
        Route("/registry/agents/{agent}/approve", registry, {
            "POST": admin("Approve a pending agent", (wire.NoSuchAgent,), reply=wire.AgentChanged,
                          audited=True),
        }, suffix="approve"),
        Route("/registry/agents/{agent}/revoke", registry, {
            "POST": admin("Revoke an agent", (wire.NoSuchAgent,), reply=wire.AgentChanged,
                          audited=True),
        }, suffix="revoke"),
    ]  # fmt: skip


def contact_routes(relay: Relay, made: Operations) -> list[Route]:
    anybody, agent = made.anybody, made.agent
    contacts, presence = ContactsResource(relay), PresenceResource(relay)
    return [
        Route("/contacts", contacts, {
            "GET": agent("List contacts", reply=list[wire.ContactEntry]),
        }),
        Route("/contacts/pending", contacts, {
            "GET": agent("List requests that wait for an answer", reply=list[wire.PendingContact]),
        }, suffix="pending"),
        Route("/contacts/events", contacts, {
            "GET": agent("List what happened to contacts", query=wire.ContactEventsQuery,
                         reply=wire.ContactEvents),
        }, suffix="events"),
        Route("/contacts/request", contacts, {
            "POST": agent("Ask another agent to become a contact", status=201,
                          body=wire.RequestContact, reply=wire.Done,
                          errors=(wire.NoSuchAgent, wire.ContactExists, wire.OwnRequest,
                                  wire.TooManyContacts)),
        }, suffix="request"),
        Route("/contacts/{agent}/accept", contacts, {
            "POST": agent("Accept a request", (wire.NoSuchContact, wire.OwnRequest),
                          reply=wire.Done),
        }, suffix="accept"),
        Route("/contacts/{agent}/deny", contacts, {
            "POST": agent("Deny a request", (wire.NoSuchContact, wire.OwnRequest),
                          reply=wire.Done),
        }, suffix="deny"),
        Route("/contacts/{agent}", contacts, {
            "DELETE": agent("Remove a contact", (wire.NoSuchContact,), reply=wire.Done),
        }, suffix="item"),
        Route("/presence", presence, {
            "PUT": agent("Send a heartbeat with the agent's endpoint", (BadWebhookUrl,),
                         body=wire.AgentHeartbeat, reply=wire.Done),
        }),
        Route("/presence/batch", presence, {
            "GET": anybody("Show whether agents are online", query=wire.BatchQuery,
                           reply=list[wire.PresenceEntry]),
        }, suffix="batch"),
        Route("/presence/{agent}", presence, {
            "GET": anybody("Show whether an agent is online", reply=wire.PresenceEntry,
                           errors=(wire.NoSuchAgent, wire.DirectoryPrivate)),
        }, suffix="item"),
    ]  # fmt: skip


def admin_routes(relay: Relay, made: Operations) -> list[Route]:
    anybody, agent, admin = made.anybody, made.agent, made.admin
    admins = RelayAdminResource(relay)
    return [
        Route("/admin/pending", admins, {
            "GET": admin("List agents that wait for approval, with the checklist",
                         reply=list[wire.PendingAgent]),
        }, suffix="pending"),
        Route("/admin/keys", Responders(get=reply_with(relay.admin_keys)), {
            "GET": anybody("List the admins' keys", reply=list[wire.AdminKey]),
        }),
        Route("/admin/broadcast", admins, {
            "POST": admin("Send a signed broadcast to all agents", status=201, audited=True,
                          body=wire.SendBroadcast, reply=wire.BroadcastSent,
                          errors=(wire.BroadcastExists,)),
        }, suffix="broadcast"),
        Route("/admin/broadcasts", admins, {
            "GET": agent("List broadcasts, newest first", query=wire.BroadcastsQuery,
                         reply=list[wire.BroadcastEntry]),
        }, suffix="broadcasts"),
    ]  # fmt: skip


def v1_routes(relay: Relay, made: Operations) -> list[Route]:
    resource, errors = V1Resource(relay), (v1.V1Gone, v1.V1NotYours)
    return [
        Route("/relay/send", resource, {
            "POST": made.agent("Send a message of version 1 (deprecated)", errors, status=201,
                               body=v1.V1Message, reply=wire.Done),
        }),
        Route("/relay/inbox/{agent}", resource, {
            "GET": made.agent("List messages of version 1 (deprecated)", errors,
                              reply=list[v1.V1Message]),
        }, suffix="inbox"),
        Route("/relay/inbox/{agent}/ack", resource, {
            "POST": made.agent("Ack messages of version 1 (deprecated)", errors, body=v1.V1Ack,
                               reply=wire.Done),
        }, suffix="ack"),
    ]  # fmt: skip
