"""What crosses the door of the inbox: messages, questions, events, errors."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from appliance.kernel.errors import Exhausted, Forbidden, Invalid, Missing, Unavailable
from appliance.kernel.scopes import Scopes

READ, WRITE, ADMIN = "inbox:read", "inbox:write", "inbox:admin"
SCOPES = Scopes(frozenset({READ, WRITE, ADMIN}))

Kind = Literal["topic", "dm", "queue"]
Priority = Literal["now", "next", "low"]
Status = Literal["idle", "working", "dnd"]
MeshName = Annotated[str, Meta(max_length=63, pattern=r"^[a-z0-9][a-z0-9_-]*$")]
Pubkey = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
Id = Annotated[str, Meta(min_length=1, max_length=255)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
TopicName = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[^\s\x00-\x1f\x7f]+$")]

SSE_NAMES = (
    "message",
    "peer_join",
    "peer_leave",
    "daemon_disconnect",
    "daemon_reconnect",
    "hook_executed",
    "feature_negotiation_failed",
)


class Push(Struct, frozen=True, forbid_unknown_fields=True):
    """A message as a broker hands it over."""

    message_id: Id
    client_message_id: Id | None
    mesh: MeshName
    topic: Name | None
    destination_kind: Kind
    destination_ref: Id
    sender_pubkey: Pubkey
    sender_name: Name
    priority: Priority
    meta: dict[str, Any] | None
    body: str
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
    destination_kind: Kind
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
    """`next` is the cursor to ask with after this page. `reset`: the cursor that was sent is of
    another store than this one, so the page begins at the oldest message."""

    mesh: str
    messages: list[InboxMessage]
    next: int
    has_more: bool
    reset: bool = False


class InboxQuery(Struct, frozen=True, rename={"sender": "from"}):
    """`since`: a cursor, or a time in ISO 8601. `from`: a member's key, or the name it has.
    `wait`: seconds to wait for the first message when there is none."""

    since: Annotated[str, Meta(min_length=1, max_length=40)] | None = None
    mesh: MeshName | None = None
    topic: TopicName | None = None
    sender: Name | None = None
    own: bool = True
    limit: Annotated[int, Meta(ge=1, description="clamped to the maximum")] = 100
    wait: Annotated[float, Meta(ge=0, description="seconds")] = 0.0


class InboxEventsQuery(Struct, frozen=True):
    """Messages after the cursor `since` first, then everything as it happens."""

    mesh: MeshName | None = None
    since: Annotated[int, Meta(ge=0)] | None = None


class MeshQuery(Struct, frozen=True):
    mesh: MeshName | None = None


class MeshListQuery(Struct, frozen=True):
    """`after`: `next` of the page before."""

    mesh: MeshName | None = None
    after: Annotated[str, Meta(max_length=300)] = ""
    limit: Annotated[int, Meta(ge=1, description="clamped to the maximum")] = 10_000


class Profile(Struct, frozen=True, forbid_unknown_fields=True):
    """What is left out stays. While `working` or `dnd` a broker hands over only `now`. `name` is
    the broker's to keep, for all members: it is asked first."""

    name: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    summary: Annotated[str, Meta(max_length=500)] | None = None
    status: Status | None = None
    visible: bool | None = None
    mesh: MeshName | None = None


class ProfileShown(Struct, frozen=True):
    mesh: str
    summary: str
    status: Status
    visible: bool
    changed_at: str | None


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


class TopicChanged(Struct, frozen=True):
    mesh: str
    topic: str
    subscribed: bool
    changed: bool


class InboxTopic(Struct, frozen=True):
    name: str
    subscribed: bool
    subscribed_at: str | None


class InboxTopics(Struct, frozen=True):
    """By name. `complete`: the broker was asked; else only what was subscribed to from here is
    known. While `has_more` is true, the list continues with `after` set to `next`."""

    mesh: str
    topics: list[InboxTopic]
    complete: bool
    has_more: bool = False
    next: str | None = None


class LinkState(Struct, frozen=True):
    """`state`: connecting, connected, waiting, stopped, local. `reason`: why it is not up."""

    mesh: str
    state: str
    reason: str
    since: str
    features: list[str]


class MeshHealth(Struct, frozen=True):
    """Of one mesh; `links` tells of all."""

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


class Beat(Struct, frozen=True):
    ok: bool
    now: str


class NoSuchMesh(Missing):
    code = "MESH_UNKNOWN"
    sentence = "this appliance is a member of no such mesh"
    advice = "name its broker in agentlip.toml: docs/inbox.md"


class OtherMesh(Forbidden):
    sentence = "this token reads another mesh"
    advice = "agentlip token list shows which mesh a token reads"


class NoBroker(Unavailable):
    code = "BROKER_NOT_REACHED"
    sentence = "the broker of the mesh can't be asked now"
    advice = "curl /v1/health says how the link is"


class NoBrokerKnown(Missing):
    code = "BROKER_UNKNOWN"
    sentence = "no broker of this mesh is known here"
    advice = "name it under [[inbox.brokers]] in agentlip.toml: docs/inbox.md"


class BrokerRefused(Invalid):
    """`details.status` and `details.code` are the broker's."""

    code = "BROKER_REFUSED"
    status = 502
    sentence = "the broker refused what it was asked"
    advice = "details.code is the broker's own: docs/errors.md says what it means"


class BadCursor(Invalid):
    sentence = "since is neither a cursor nor a time"
    advice = "give the 'next' of an earlier page, or a time such as 2026-02-04T20:00:00Z"


class TooManyStreams(Exhausted):
    code = "TOO_MANY_STREAMS"
    sentence = "too_many_streams"
    advice = "close one, or raise inbox.streams_max"


class TooManyPolls(Exhausted):
    code = "DAEMON_BUSY"
    sentence = "daemon_busy"
    advice = "use GET /v1/events, or raise inbox.waiting_max"


class TooManyTopics(Exhausted):
    code = "TOO_MANY_TOPICS"
    sentence = "too many topics are subscribed to"
    advice = "unsubscribe from one, or raise inbox.topics_max"
