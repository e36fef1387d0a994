"""Defines the inbox's requests, replies and errors."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from appliance.kernel.errors import Exhausted, Forbidden, Invalid, Missing, Unavailable
from appliance.kernel.scopes import Scopes
from appliance.mesh.fingerprint import DestinationKind, Priority
from appliance.mesh.push import Push

READ, WRITE, ADMIN = "inbox:read", "inbox:write", "inbox:admin"
SCOPES = Scopes(frozenset({READ, WRITE, ADMIN}))
NETWORK = "network"
"""The reserved mesh for agent network messages. No broker may have a mesh with this name."""

Status = Literal["idle", "working", "dnd"]
MeshName = Annotated[str, Meta(max_length=63, pattern=r"^[a-z0-9][a-z0-9_-]*$")]
Pubkey = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
Id = Annotated[str, Meta(min_length=1, max_length=255)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
TopicName = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[^\s\x00-\x1f\x7f]+$")]
RowsAfter = Annotated[str, Meta(max_length=300)]
NO_NUL = Meta(pattern=r"\A[^\0]*\Z")  # SQLite ends a text at NUL


class ReceivedPush(Push, frozen=True, forbid_unknown_fields=True):
    """A push from a broker elsewhere, with the limits that it must keep."""

    message_id: Id
    client_message_id: Id | None
    mesh: MeshName
    topic: Annotated[Name, NO_NUL] | None
    destination_ref: Annotated[Id, NO_NUL]
    sender_pubkey: Pubkey
    sender_name: Annotated[Name, NO_NUL]
    body: Annotated[str, NO_NUL]
    reply_to_id: Id | None
    created_at: Annotated[str, Meta(min_length=1, max_length=40)]


class InboxMessage(Struct, frozen=True):
    """A received message. `own`: this member sent it."""

    number: int
    id: str
    client_message_id: str
    broker_message_id: str | None
    mesh: str
    topic: str | None
    destination_kind: DestinationKind
    destination_ref: str
    sender_pubkey: str
    sender_name: str
    priority: Priority
    meta: Any
    body: str | None
    reply_to_id: str | None
    created_at: str
    received_at: str
    own: bool


class InboxPage(Struct, frozen=True):
    """`next`: `since` for the next page. `reset`: the cursor in the request belongs
    to another store, so this page begins with the oldest message."""

    mesh: str
    messages: list[InboxMessage]
    next: int
    has_more: bool
    reset: bool = False


class InboxQuery(Struct, frozen=True, rename={"sender": "from"}):
    """`since`: a cursor or a time in ISO 8601. `from`: a member's key or name. `wait`: seconds to
    wait for a message if there is none."""

    since: Annotated[str, Meta(min_length=1, max_length=40)] | None = None
    mesh: MeshName | None = None
    topic: TopicName | None = None
    sender: Name | None = None
    own: bool = True
    limit: Annotated[int, Meta(ge=1, description="clamped to the maximum")] = 100
    wait: Annotated[float, Meta(ge=0, description="seconds")] = 0.0


class InboxEventsQuery(Struct, frozen=True):
    """First the messages after the cursor `since`, then new events."""

    mesh: MeshName | None = None
    since: Annotated[int, Meta(ge=0)] | None = None


class MeshQuery(Struct, frozen=True):
    mesh: MeshName | None = None


class MeshListQuery(Struct, frozen=True):
    """`after`: `next` from the previous page."""

    mesh: MeshName | None = None
    after: RowsAfter = ""
    limit: Annotated[int, Meta(ge=1, description="clamped to the maximum")] = 10_000


class ChangeProfile(Struct, frozen=True, forbid_unknown_fields=True):
    """Omitted fields stay as they are. With the status `working` or `dnd`, the broker sends only
    messages with priority `now`. `name` is changed at the broker first."""

    name: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    summary: Annotated[str, Meta(max_length=500)] | None = None
    status: Status | None = None
    visible: bool | None = None
    mesh: MeshName | None = None


class ProfileReply(Struct, frozen=True):
    mesh: str
    summary: str
    status: Status
    visible: bool
    changed_at: str | None


class BrokerPage(Struct, frozen=True, kw_only=True):
    """A page from a broker's list. Brokers limit pages in bytes too."""

    has_more: bool = False
    next: RowsAfter = ""

    def following(self, after: str) -> str | None:
        """Return the next page's cursor; None at the end, and if the broker repeats the cursor."""
        return self.next if self.has_more and self.next != after else None


class BrokerTopic(Struct, frozen=True):
    name: Id
    subscribers: list[str]


class BrokerTopics(BrokerPage, frozen=True, kw_only=True):
    destinations: list[BrokerTopic] = field(name="places")


class BrokerMember(Struct, frozen=True):
    pubkey: Id
    name: Id
    state: Id
    connected: bool = False


class BrokerMembers(BrokerPage, frozen=True, kw_only=True):
    members: list[BrokerMember]


class Peer(Struct, frozen=True):
    pubkey: str
    name: str
    state: str
    connected: bool
    own: bool


class Peers(Struct, frozen=True):
    """While `has_more` is true, the list continues with `after` set to `next`."""

    mesh: str
    peers: list[Peer]
    has_more: bool = False
    next: str | None = None


class TopicChange(Struct, frozen=True, forbid_unknown_fields=True):
    topic: TopicName
    mesh: MeshName | None = None


class TopicSubscriptionReply(Struct, frozen=True):
    mesh: str
    topic: str
    subscribed: bool
    changed: bool


class InboxTopic(Struct, frozen=True):
    name: str
    subscribed: bool


class InboxTopics(Struct, frozen=True):
    """The broker's topics, ordered by name. While `has_more` is true, the list continues with
    `after` set to `next`."""

    mesh: str
    topics: list[InboxTopic]
    has_more: bool = False
    next: str | None = None


class LinkState(Struct, frozen=True):
    """`state`: connecting, connected, waiting, stopped or local. `reason`: why it is not up."""

    mesh: str
    state: str
    reason: str
    since: str
    features: list[str]


class MeshHealth(Struct, frozen=True):
    """One mesh's health; `links` lists all meshes."""

    connected: bool
    lag_ms: int | None
    queue_depth: int
    inflight: int
    mesh: str
    member_pubkey: str
    uptime_s: float
    schema_version: int
    daemon_version: str
    broker_version: str | None
    links: list[LinkState]
    ipc_features: list[str]


class IpcVersion(Struct, frozen=True):
    daemon_version: str
    ipc_api: str
    ipc_features: list[str]
    schema_version: int
    broker_features_negotiated: list[str]


class Compat(Struct, frozen=True):
    daemon: str
    compatible_brokers: list[str]
    required_broker_features: list[str]
    compatible_clis: list[str]
    compatible_sdks: dict[str, list[str]]


class Heartbeat(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class HeartbeatReply(Struct, frozen=True):
    ok: bool
    now: str


class MeshUnknown(Missing):
    code = "MESH_UNKNOWN"
    default_message = "this appliance is not a member of that mesh"
    default_hint = (
        "add its broker under [[inbox.brokers]] in agentlip.toml: docs/reference/inbox.md"
    )


class OtherMesh(Forbidden):
    default_message = "this token may not read that mesh"
    default_hint = "agentlip token list shows which mesh a token reads"


class BrokerNotReached(Unavailable):
    code = "BROKER_NOT_REACHED"
    default_message = "the mesh's broker is unreachable"
    default_hint = "agentlip inbox health shows the link state"


class BrokerUnknown(Missing):
    code = "BROKER_UNKNOWN"
    default_message = "no broker is configured for this mesh"
    default_hint = "add it under [[inbox.brokers]] in agentlip.toml: docs/reference/inbox.md"


class BrokerRefused(Invalid):
    """`details.status` and `details.code` come from the broker's reply."""

    code = "BROKER_REFUSED"
    status = 502
    default_message = "the broker refused the request"
    default_hint = "details.code is the broker's error code: docs/reference/errors.md explains it"


class BadCursor(Invalid):
    default_message = "since is neither a cursor nor a time"
    default_hint = "pass 'next' from an earlier page, or a time such as 2026-02-04T20:00:00Z"


class TooManyEventStreams(Exhausted):
    code = "TOO_MANY_STREAMS"
    default_message = "too_many_streams"
    default_hint = "close another connection first"


class TooManyPolls(Exhausted):
    code = "DAEMON_BUSY"
    default_message = "daemon_busy"
    default_hint = "use GET /v1/events"
