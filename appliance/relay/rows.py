"""Generated from the migrations of the relay by `just models`: its rows as tuples."""

from typing import Literal, NamedTuple


class RelayAdminRow(NamedTuple):
    """A row in `admins`."""

    agent: str
    public_key: str
    added_ms: int
    removed_ms: int | None


class AgentRow(NamedTuple):
    """A row in `agents`."""

    name: str
    public_key: str
    owner_email: str
    endpoint: str | None
    version: str
    status: Literal["pending", "active", "revoked"]
    address: str
    created_ms: int
    decided_by: str | None
    decided_ms: int | None
    last_seen_ms: int | None
    former_key: str | None
    rotation: str | None
    reach_problem: str | None
    reach_ms: int | None


class ApprovalRow(NamedTuple):
    """A row in `approvals`."""

    agent: str
    admin: str
    ask_id: str | None
    approved_ms: int | None


class BroadcastRow(NamedTuple):
    """A row in `broadcasts`."""

    number: int
    id: str
    type: str
    payload: str
    sender: str
    signature: str
    created_ms: int


class ContactEventRow(NamedTuple):
    """A row in `contact_events`."""

    id: int
    agent: str
    contact: str
    event: Literal["requested", "accepted", "removed", "revoked", "rotated"]
    at_ms: int


class ContactRow(NamedTuple):
    """A row in `contacts`."""

    agent_a: str
    agent_b: str
    status: Literal["pending", "active"]
    requested_by: str
    greeting: str | None
    requested_ms: int
    accepted_ms: int | None


class GroupChangeRow(NamedTuple):
    """A row in `group_changes`."""

    group_id: str
    number: int
    agent: str
    action: Literal[
        "invited", "joined", "declined", "left", "removed", "ownership-transferred", "dissolved"
    ]
    by_agent: str
    at_ms: int
    previous: str
    hash: str
    signature: str


class GroupMemberRow(NamedTuple):
    """A row in `group_members`."""

    group_id: str
    agent: str
    role: Literal["owner", "admin", "member"]
    status: Literal["pending", "active", "left", "removed"]
    invited_by: str | None
    greeting: str | None
    invited_ms: int
    joined_ms: int | None
    left_ms: int | None


class GroupRow(NamedTuple):
    """A row in `groups`."""

    id: str
    name: str
    owner: str
    members_can_invite: int
    members_can_send: int
    max_members: int
    created_ms: int
    dissolved_ms: int | None


class UsedSignatureRow(NamedTuple):
    """A row in `used_signature`."""

    digest: bytes
    expires_ms: int
