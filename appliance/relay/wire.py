"""Defines the relay's requests, replies and errors, as clients see them."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from appliance.kernel.errors import (
    Conflict,
    Exhausted,
    Forbidden,
    Invalid,
    Missing,
    Unauthenticated,
)
from appliance.kernel.scopes import Scopes
from appliance.network.direct import DirectAddresses
from appliance.network.key_log import ENTRIES_MAX

AGENT, ADMIN = "relay:agent", "relay:admin"
SCOPES = Scopes()  # only signatures have these scopes, never a token
FEATURES = ("network-2.0", "network-2.1")  # protocol versions, for `/health`
GREETING_MAX, CODE_MINUTES, ATTEMPTS_MAX = 500, 10, 3

Name = Annotated[str, Meta(max_length=64)]
Email = Annotated[
    str,
    Meta(min_length=3, max_length=254, pattern=r"^[^@\s,;<>\"']+@[^@\s,;<>\"']+\.[^@\s,;<>\"']+$"),
]
KeyText = Annotated[str, Meta(max_length=100, description="base64 of SPKI")]
Endpoint = Annotated[str, Meta(max_length=2048)]
Version = Annotated[str, Meta(pattern=r"^2\.[0-9]{1,4}$")]
AgentStatus = Literal["pending", "active", "revoked"]


class SendCode(Struct, frozen=True, rename="camel"):
    """A request for a code. With `publicKey`, only this key can be registered with the code."""

    agent_name: Name
    email: Email
    public_key: KeyText | None = None


class ConfirmCode(Struct, frozen=True, rename="camel"):
    agent_name: Name
    code: Annotated[str, Meta(max_length=20)]


class RegisterAgent(Struct, frozen=True, rename="camel"):
    name: Name
    public_key: KeyText
    owner_email: Email
    endpoint: Endpoint
    version: Version = "2.0"


class RequestContact(Struct, frozen=True, rename="camel"):
    """A contact request. The first client calls the field `toAgent`. The later client also sends
    a list, without a greeting."""

    to: Name | Annotated[list[Name], Meta(min_length=1, max_length=10)] | None = None
    to_agent: Name | None = None
    greeting: Annotated[str, Meta(max_length=GREETING_MAX)] | None = None


class AgentHeartbeat(Struct, frozen=True):
    """`direct`: addresses in the agent's LAN, which only contacts get."""

    endpoint: Endpoint
    version: Version = "2.0"
    direct: DirectAddresses | None = None


class RotateKey(Struct, frozen=True, rename="camel"):
    """A new key. `signature`: by the current key; `proof`: by the new key. Both sign the same
    text."""

    public_key: KeyText
    signature: Annotated[str, Meta(max_length=100)]
    proof: Annotated[str, Meta(max_length=100)]


class RecoverKey(Struct, frozen=True, rename="camel"):
    """A new key for an agent whose key is lost, after the owner's address was verified. `proof`:
    the new key's signature."""

    public_key: KeyText
    owner_email: Email
    proof: Annotated[str, Meta(max_length=100)]


class KeyLogQuery(Struct, frozen=True):
    """A page. `after`: the last number on the page before."""

    after: Annotated[int, Meta(ge=0, le=2**53)] = 0
    limit: Annotated[int, Meta(ge=1, le=ENTRIES_MAX)] = ENTRIES_MAX


class SendBroadcast(Struct, frozen=True):
    type: Annotated[str, Meta(max_length=40)]
    payload: Annotated[str, Meta(max_length=65_536)]
    signature: Annotated[str, Meta(max_length=100)]


class BatchQuery(Struct, frozen=True):
    agents: Annotated[str, Meta(max_length=3_300, description="names, separated by commas")] = ""


class ContactEventsQuery(Struct, frozen=True):
    after: Annotated[int, Meta(ge=0, le=2**53)] = 0
    limit: Annotated[int, Meta(ge=1, le=500)] = 100


class PageQuery(Struct, frozen=True):
    """A page. `after`: the last name on the page before."""

    after: Name = ""
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 1_000


class BroadcastsQuery(Struct, frozen=True):
    """A page of broadcasts, newest first. `after`: only broadcasts sent after this id."""

    type: Annotated[str, Meta(max_length=40)] | None = None
    after: Annotated[str, Meta(max_length=64)] | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class Done(Struct, frozen=True):
    ok: bool = True


class AgentSeen(Struct, frozen=True, rename="camel"):
    """`recoveryInProgress`: another key will replace the agent's key unless the agent cancels."""

    recovery_in_progress: bool
    ok: bool = True


class RecoveryBegun(Struct, frozen=True, rename="camel"):
    """`effectiveAt`: when the new key takes effect."""

    effective_at: str
    ok: bool = True


class ContactRequested(Struct, frozen=True):
    """The result for one agent in a list. `status`: as if it had been requested alone."""

    to: str
    ok: bool
    status: int
    error: str | None = None


class ContactsRequested(Struct, frozen=True, omit_defaults=True):
    """`results`: only for a list, where `ok` means that all were requested."""

    ok: bool
    results: list[ContactRequested] | None = None


class AgentState(Struct, frozen=True):
    name: str
    status: AgentStatus


class AgentChanged(Struct, frozen=True):
    agent: AgentState
    ok: bool = True


class AgentEntry(Struct, frozen=True, rename="camel"):
    """An agent. `endpoint` is null for callers that may not see it."""

    name: str
    public_key: str
    status: AgentStatus
    endpoint: str | None
    version: str
    created_at: str


class AgentDetail(AgentEntry, frozen=True, rename="camel"):
    email_verified: bool = True
    approved_by: str | None = None


class PendingContact(Struct, frozen=True, rename="camel"):
    from_: str = field(name="from")
    greeting: str | None
    created_at: str
    requester_email: str
    public_key: str


class ContactEntry(Struct, frozen=True, rename="camel"):
    """A contact. `rotation`: the signature with which `formerKey` gave way to `publicKey`.
    `recoveryInProgress`: the owner asked for another key by mail, and it takes effect within an
    hour."""

    agent: str
    public_key: str
    endpoint: str | None
    since: str
    online: bool
    last_seen: str | None
    version: str
    former_key: str | None
    rotation: str | None
    key_updated_at: str | None = None
    recovery_in_progress: bool = False
    direct: DirectAddresses | None = None


class ContactEventEntry(Struct, frozen=True):
    id: int
    agent: str
    event: Literal["requested", "accepted", "removed", "revoked", "rotated"]
    at: str


class ContactEvents(Struct, frozen=True):
    events: list[ContactEventEntry]
    after: int
    ok: bool = True


class PresenceEntry(Struct, frozen=True, rename="camel"):
    agent: str
    online: bool
    endpoint: str | None
    last_seen: str | None
    version: str | None = None


class ChecklistItem(Struct, frozen=True):
    """A checklist item. `good`: null while unknown."""

    name: Literal["email-domain", "endpoint", "name", "duplicate-email", "burst"]
    good: bool | None
    note: str


class PendingAgent(Struct, frozen=True, rename="camel"):
    """A waiting agent. `approvals`: the admins that have approved it; `approvalsNeeded` are
    required."""

    name: str
    public_key: str
    fingerprint: str
    owner_email: str
    endpoint: str | None
    created_at: str
    checklist: list[ChecklistItem]
    approvals: list[str]
    approvals_needed: int


class AdminKey(Struct, frozen=True, rename="camel"):
    agent: str
    admin_public_key: str
    added_at: str


class BroadcastSent(Struct, frozen=True, rename="camel"):
    broadcast_id: str
    ok: bool = True


class BroadcastEntry(Struct, frozen=True, rename="camel"):
    id: str
    type: str
    payload: str
    sender: str
    signature: str
    created_at: str


# -- errors ------------------------------------------------------------------------------


class NotSigned(Unauthenticated):
    default_message = "this request needs an agent's signature"
    default_hint = (
        "send 'Authorization: Signature NAME:BASE64' and X-Timestamp (docs/reference/relay.md)"
    )


class UnknownAgent(Unauthenticated):
    code = "UNKNOWN_AGENT"
    default_message = "no agent or admin with this name is registered"
    default_hint = "register the agent first; admins: agentlip relay admins list"


class AgentRevoked(Forbidden):
    code = "AGENT_REVOKED"
    default_message = "this agent was revoked"
    default_hint = "ask a relay admin; a revoked name and key can't be used again"


class AgentPending(Forbidden):
    code = "AGENT_PENDING"
    default_message = "an admin has to approve this agent first"
    default_hint = "wait, or ask a relay admin: agentlip relay pending"


class NotAnAdmin(Forbidden):
    code = "NOT_AN_ADMIN"
    default_message = "only a relay admin may do this"
    default_hint = "sign with an admin key; where the relay runs: agentlip relay admins add NAME"


class NotCurrent(Unauthenticated):
    """A timestamp that is not current. `details.now` is the relay's time."""

    code = "STALE_SIGNATURE"
    default_message = "X-Timestamp is more than 5 minutes from the relay's time"
    default_hint = "set the clock on the agent's machine; details.now is the relay's time"


class WrongSignature(Unauthenticated):
    code = "BAD_SIGNATURE"
    default_message = "the signature does not match this agent and request"
    default_hint = "compare the signed bytes: docs/reference/relay.md, signed requests"


class RequestRepeated(Unauthenticated):
    code = "SIGNATURE_USED"
    default_message = "a request with this signature was received before"
    default_hint = "sign every request again, with the current time in milliseconds"


class NoSuchAgent(Missing):
    default_message = "no such agent"
    default_hint = "GET /registry/agents lists a public directory's agents"


class AgentTaken(Conflict):
    code = "ALREADY_EXISTS"
    default_message = "this name or key is already registered"
    default_hint = "choose another name; a new key: agentlip relay admins add --help"


class NoSuchRecovery(Missing):
    default_message = "no key recovery waits for this agent"
    default_hint = "GET /contacts of another agent shows recoveryInProgress while one waits"


class RecoveryContested(Conflict):
    code = "RECOVERY_CONTESTED"
    default_message = "the owner has asked for another key again; the present key can't prevent it"
    default_hint = "a relay admin can end the recovery with the agent: agentlip relay revoke NAME"


class NoKeyLog(Missing):
    code = "NO_KEY_LOG"
    default_message = "this relay has no key log yet"
    default_hint = "start the relay's appliance once without --read-only"


class EmailNotVerified(Invalid):
    code = "EMAIL_NOT_VERIFIED"
    default_message = "this mail address is not verified for this name and key"
    default_hint = "POST /verify/send, then POST /verify/confirm with the code, within one hour"


class EmailRefused(Invalid):
    code = "EMAIL_REFUSED"
    default_message = "disposable mail addresses are not accepted"
    default_hint = "use an address that its owner keeps"


class CodeRefused(Invalid):
    code = "CODE_REFUSED"
    default_message = "the code is wrong, has expired, or was tried three times"
    default_hint = "copy the six digits from the newest mail, or POST /verify/send again"


class NoSuchContact(Missing):
    default_message = "no such contact or request"
    default_hint = "GET /contacts lists contacts, GET /contacts/pending requests"


class ContactExists(Conflict):
    code = "ALREADY_EXISTS"
    default_message = "the agents are contacts, or a request is unanswered"
    default_hint = "GET /contacts; GET /contacts/pending"


class RequesterBlocked(Forbidden):
    code = "REQUESTER_BLOCKED"
    default_message = "the agent has denied three requests from this agent"
    default_hint = "the other agent can still ask: agentlip network request NAME"


class OwnRequest(Invalid):
    code = "OWN_REQUEST"
    default_message = "an agent can't ask itself, nor answer its own request"
    default_hint = "the other agent accepts or denies the request"


class TooManyContacts(Exhausted):
    code = "TOO_MANY_CONTACTS"
    default_message = "one agent has reached the limit for contacts or requests"
    default_hint = "remove contacts or deny requests first"


class DirectoryPrivate(Forbidden):
    code = "DIRECTORY_PRIVATE"
    default_message = "this relay shows agents only to their contacts"
    default_hint = "sign the request, and name an agent that is a contact"


class BroadcastExists(Conflict):
    code = "ALREADY_EXISTS"
    default_message = "this broadcast was sent before"
    default_hint = "sign it again with the current time"
