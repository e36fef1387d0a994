"""Defines the request and response structs for the agents' endpoint, and for the routes by which
programs use the appliance's agents. Field names are those of the agent network."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from appliance.kernel.errors import Missing
from appliance.kernel.scopes import Scopes
from appliance.network.group_log import GroupChange
from appliance.sdk.network.broadcasts import KeptBroadcast
from appliance.sdk.network.outgoing import PAYLOAD_BYTES_MAX, SendReport
from appliance.sdk.network.peers import CachedContact
from appliance.sdk.network.pins import KeyPin, PinState
from appliance.sdk.network.requests import GREETING_CHARACTERS_MAX, ContactRequest

READ, WRITE = "network:read", "network:write"
SCOPES = Scopes(frozenset({READ, WRITE}))
PAGE_MAX, CHANGES_MAX = 200, 500
AgentName = Annotated[str, Meta(min_length=1, max_length=32)]
OwnName = Annotated[AgentName, Meta(description="the appliance's agent; missing: its only agent")]
GroupId = Annotated[str, Meta(min_length=36, max_length=36)]
GroupAction = Literal[
    "invite", "accept", "decline", "leave", "transfer", "remove", "delete", "trust"
]
Limit = Annotated[int, Meta(ge=1, le=PAGE_MAX)]


class EnvelopeToAgent(Struct, frozen=True, rename="camel"):
    """An envelope. Fields may have any value here, because the recipient is checked before the
    remaining fields. `appliance/network/envelope.py` checks all fields, including the ones
    without a name here."""

    recipient: Any = None
    sender: Any = None
    version: Any = None
    type: Any = None
    message_id: Any = None
    timestamp: Any = None
    payload: Any = None
    signature: Any = None


class EnvelopeReceived(Struct, frozen=True):
    """The response to an envelope. `duplicate`: the message was stored before."""

    duplicate: bool
    ok: bool = True


class OwnQuery(Struct, frozen=True):
    own: OwnName | None = None


class KeptBroadcastsQuery(OwnQuery, frozen=True):
    """`before`: a page's last number."""

    before: Annotated[int, Meta(ge=0)] = 0
    limit: Limit = 50
    type: Annotated[str, Meta(max_length=30)] = ""


class ReportsQuery(OwnQuery, frozen=True):
    """`waiting`: only messages that are not sent yet. `id`: only this message."""

    waiting: bool = False
    id: Annotated[str, Meta(max_length=36)] = ""
    limit: Limit = 50


class OwnAgent(Struct, frozen=True, rename="camel"):
    """An agent in the appliance. `problem`: why the last heartbeat failed."""

    name: str
    relay: str
    endpoint: str
    fingerprint: str
    problem: str | None


class OwnAgentList(Struct, frozen=True):
    agents: list[OwnAgent]


class ContactList(Struct, frozen=True):
    """Contacts, and the keys that are pinned for them and for former contacts."""

    contacts: list[CachedContact]
    pins: list[KeyPin]


class ContactKey(Struct, frozen=True, rename="camel"):
    """A key, which the owners compare by its safety number. `state`: None for an agent that asks to
    become a contact."""

    agent: str
    state: PinState | None
    safety_number: str
    fingerprint: str


class RequestList(Struct, frozen=True):
    """Requests that wait for an answer, oldest first."""

    requests: list[ContactRequest]


class BroadcastList(Struct, frozen=True):
    broadcasts: list[KeptBroadcast]


class ReportList(Struct, frozen=True):
    """Reports, newest first."""

    reports: list[SendReport]


class RequestToAgent(Struct, frozen=True, omit_defaults=True):
    name: AgentName
    greeting: Annotated[str, Meta(max_length=GREETING_CHARACTERS_MAX)] = ""
    own: OwnName | None = None


class AnswerRequest(Struct, frozen=True, omit_defaults=True):
    name: AgentName
    answer: Literal["accept", "deny", "block"]
    own: OwnName | None = None


class RemoveContact(Struct, frozen=True, omit_defaults=True):
    name: AgentName
    own: OwnName | None = None


class ConfirmKey(Struct, frozen=True, omit_defaults=True):
    """`fingerprint`: the key that a person compared. `accept`: take the changed key with this
    fingerprint in place of the former one, without comparing."""

    name: AgentName
    fingerprint: Annotated[str, Meta(max_length=60)]
    accept: bool = False
    own: OwnName | None = None


class ContactChanged(Struct, frozen=True):
    name: str


# -- groups and keys -----------------------------------------------------------------------------


class GroupQuery(OwnQuery, frozen=True, kw_only=True):
    group: GroupId


class GroupChangesQuery(GroupQuery, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=CHANGES_MAX)] = CHANGES_MAX


class ListedGroup(Struct, frozen=True, rename="camel"):
    """A group. `role`: the appliance's agent's."""

    group_id: str
    name: str
    owner: str
    role: str
    member_count: int
    created_at: str


class GroupInvitation(Struct, frozen=True, rename="camel"):
    """An invitation that waits. `greeting`: a text by the inviting agent."""

    group_id: str
    group_name: str
    invited_by: str
    greeting: str | None
    created_at: str


class GroupMember(Struct, frozen=True, rename="camel"):
    agent: str
    role: str
    joined_at: str


class GroupList(Struct, frozen=True):
    """Groups, newest first, and invitations that wait for an answer."""

    groups: list[ListedGroup]
    invitations: list[GroupInvitation]


class GroupMemberList(Struct, frozen=True):
    members: list[GroupMember]


class GroupChangeList(Struct, frozen=True):
    """The newest changes in a group's verified log, oldest first."""

    changes: list[GroupChange]


class MakeGroup(Struct, frozen=True, omit_defaults=True):
    name: Annotated[str, Meta(min_length=1, max_length=64)]
    members_can_invite: bool = False
    members_can_send: bool = True
    max_members: Annotated[int, Meta(ge=1, le=50)] = 50
    own: OwnName | None = None


class ChangeGroup(Struct, frozen=True, omit_defaults=True):
    """`name`: the agent to invite, make the owner, or remove; only for these actions. `trust`
    accepts the log that the relay shows now; ask the members first."""

    group: GroupId
    action: GroupAction
    name: AgentName | None = None
    greeting: Annotated[str, Meta(max_length=GREETING_CHARACTERS_MAX)] = ""
    own: OwnName | None = None


class SendToGroup(Struct, frozen=True, omit_defaults=True):
    group: GroupId
    text: Annotated[str, Meta(max_length=PAYLOAD_BYTES_MAX)]
    own: OwnName | None = None


class GroupChanged(Struct, frozen=True, rename="camel"):
    group_id: str


class ChangeKey(Struct, frozen=True, omit_defaults=True):
    """`rotate` replaces the key, `cancel-recovery` keeps it although a recovery was begun, and
    `accept-log` pins the key log that the relay shows now."""

    action: Literal["rotate", "cancel-recovery", "accept-log"]
    own: OwnName | None = None


class OwnKey(Struct, frozen=True, rename="camel"):
    public_key: str
    fingerprint: str


class KeyRecovery(Struct, frozen=True, omit_defaults=True):
    """Without `code`, the relay mails one to the owner."""

    email: Annotated[str, Meta(max_length=254)]
    code: Annotated[str, Meta(max_length=6)] = ""
    own: OwnName | None = None


class Recovery(Struct, frozen=True, rename="camel"):
    """`effectiveAt`: when the key replaces the present one; None before the code is confirmed."""

    status: Literal["code-sent", "begun"]
    effective_at: str | None = None


class NoSuchRequest(Missing):
    code = "NO_SUCH_REQUEST"
    default_message = "this request no longer waits, or is another one than listed"
    default_hint = "agentlip network contacts --pending"
