"""Defines the broker's requests, replies and errors: sends, meshes, history, diagnostics."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw, Struct, field

from appliance.kernel.errors import (
    Conflict,
    Exhausted,
    Forbidden,
    Invalid,
    Missing,
    PayloadTooLarge,
    Unauthenticated,
    Unavailable,
)
from appliance.kernel.scopes import Scopes
from appliance.mesh.fingerprint import DestinationKind, Priority
from appliance.mesh.push import Push

ACCEPT, READ, ADMIN, SUBSCRIBE = "broker:accept", "broker:read", "broker:admin", "broker:subscribe"
SCOPES = Scopes(  # broker:admin includes what members may do
    frozenset({ACCEPT, READ, ADMIN}), {READ: (ADMIN,), SUBSCRIBE: (ADMIN,)}
)
BATCH_MAX = 200
INLINE_BYTES_MAX = 65_536  # a message with a larger text is refused
UNKNOWN_MAX = 1000  # one read of a few milliseconds
RETENTION_DAYS_MIN = 7
RETENTION_DAYS_MAX = 3_999
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"

TopicOrQueue = Literal["topic", "queue"]
Mode = Literal["retention_scoped", "permanent"]
Concurrency = Literal["prefer_newest", "prefer_oldest", "allow_concurrent"]
Slug = Annotated[str, Meta(min_length=1, max_length=63, pattern=r"^[a-z0-9][a-z0-9-]*$")]
Name = Annotated[str, Meta(min_length=1, max_length=100, pattern=NAME_PATTERN)]
Pubkey = Annotated[str, Meta(min_length=64, max_length=64, description="ed25519, hexadecimal")]
Hex32 = Annotated[str, Meta(min_length=64, max_length=64, description="lowercase hexadecimal")]
Hex64 = Annotated[str, Meta(min_length=128, max_length=128, description="lowercase hexadecimal")]
Id = Annotated[str, Meta(min_length=1, max_length=255)]
RetentionDays = Annotated[int, Meta(ge=RETENTION_DAYS_MIN, le=RETENTION_DAYS_MAX)]
KeepDays = Annotated[int, Meta(ge=1, le=36_500)]
Limit = Annotated[int, Meta(ge=1, description="clamped to the maximum")]


# -- sending -------------------------------------------------------------------------------


class AcceptItem(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One send. `meta.mentions` may name members by key or name; meta is part of the
    fingerprint."""

    mesh: Slug
    client_message_id: Id
    request_fingerprint: Hex32
    destination_kind: DestinationKind
    destination_ref: Id
    body: str
    priority: Priority = "next"
    envelope_version: Literal[1] = 1
    reply_to_id: Id | None = None
    meta: dict[str, Any] | None = None


class AcceptBatch(Struct, frozen=True, forbid_unknown_fields=True):
    """Each item is accepted or refused separately, with a separate result."""

    items: Annotated[list[Raw], Meta(min_length=1, max_length=BATCH_MAX)]


class Receipt(Struct, frozen=True):
    """201, or 200 with `duplicate` if the same send was accepted before: then `first_seen_at` says
    when, and `history_available` whether the message is still stored."""

    broker_message_id: str
    client_message_id: str
    history_id: str
    duplicate: bool = False
    history_available: bool | None = None
    first_seen_at: str | None = None

    def to_body(self) -> dict[str, Any]:
        fields = msgspec.structs.asdict(self)
        return {name: value for name, value in fields.items() if value is not None}


class BatchItemResult(Struct, frozen=True):
    status: int
    body: dict[str, Any]


class AcceptBatchReply(Struct, frozen=True):
    results: list[BatchItemResult]


class UnknownQuery(Struct, frozen=True, forbid_unknown_fields=True):
    mesh: Slug
    client_message_ids: Annotated[list[Id], Meta(min_length=1, max_length=UNKNOWN_MAX)]


class UnknownIds(Struct, frozen=True):
    """The request's ids that the broker has not accepted: lost in a restore, or too old."""

    unknown: list[str]


# -- meshes --------------------------------------------------------------------------------


class CreateMesh(Struct, frozen=True):
    slug: Slug
    dedupe_mode: Mode = "retention_scoped"
    dedupe_retention_days: RetentionDays = 365
    message_retention_days: KeepDays = 90
    concurrency: Concurrency = "prefer_newest"


class ChangeMesh(Struct, frozen=True):
    """Omitted fields stay as they are. A new dedupe window applies to ids accepted from now on."""

    dedupe_mode: Mode | None = None
    dedupe_retention_days: RetentionDays | None = None
    message_retention_days: KeepDays | None = None
    concurrency: Concurrency | None = None


class Mesh(Struct, frozen=True):
    slug: str
    dedupe_mode: Mode
    dedupe_retention_days: int
    message_retention_days: int
    concurrency: Concurrency
    created_at: str


class MeshReply(Struct, frozen=True):
    mesh: Mesh


class MeshList(Struct, frozen=True):
    meshes: list[Mesh]


class AddMember(Struct, frozen=True):
    pubkey: Pubkey
    name: Name


class RenameMember(Struct, frozen=True):
    name: Name


class RotateMember(Struct, frozen=True):
    """Sent by the member and signed with its old key; `proof` is signed with the new one."""

    pubkey: Pubkey
    proof: Hex64


class Member(Struct, frozen=True):
    """A member. `state` is active or revoked; `connected` is from this reply's moment.
    `running_on`: host and workspace of its connection, if known; `refused`: a copy's host and
    workspace that tried to connect meanwhile."""

    pubkey: str
    name: str
    state: Literal["active", "revoked"]
    added_at: str
    connected: bool = False
    successor: str | None = None
    running_on: str | None = None
    refused: str | None = None


class MemberReply(Struct, frozen=True):
    member: Member


class MeshRowsQuery(Struct, frozen=True):
    """Without a limit, a page holds as many rows as fit into its size in bytes."""

    after: Annotated[str, Meta(max_length=200, description="`next` from the page before")] = ""
    limit: Limit = 10_000


class MemberList(Struct, frozen=True):
    """A page ordered by name. `next`: `after` for the next page."""

    members: list[Member]
    has_more: bool = False
    next: str = ""


class CreateDestination(Struct, frozen=True):
    name: Name


class Destination(Struct, frozen=True):
    kind: TopicOrQueue
    name: str
    created_at: str
    subscribers: list[str]


class DestinationReply(Struct, frozen=True):
    destination: Destination = field(name="place")


class DestinationList(Struct, frozen=True):
    """A page ordered by name. `next`: `after` for the next page."""

    destinations: list[Destination] = field(name="places")
    has_more: bool = False
    next: str = ""


class ChangeReply(Struct, frozen=True):
    changed: bool


# -- reading -------------------------------------------------------------------------------


class HistoryQuery(Struct, frozen=True):
    """A member gets sent messages, received messages, and messages in subscribed topics."""

    after: Annotated[
        str, Meta(max_length=64, description="a history_id; empty: begin with the oldest")
    ] = ""
    limit: Limit = 100


class HistoryEntry(Struct, frozen=True):
    history_id: str
    message: Push


class HistoryPage(Struct, frozen=True):
    """A page of history. `next`: `after` for the next page."""

    history: list[HistoryEntry]
    next: str
    has_more: bool


class BrokerStatus(Struct, frozen=True):
    """Counts over all meshes. `waiting`: deliveries without a lease; `orphans`: orphaned rows
    found by the last check, null before the first.

    `clock_jump_seconds`: how far the clock was last set, at `clock_jumped_at`. Delays, leases and
    ages are not affected. `epoch` changes with each restore of the broker.
    """

    meshes: int
    members: int
    links: int
    messages: int
    dedupe: int
    waiting: int
    leased: int
    orphans: int | None
    pruned_at: str | None
    broker_id: str
    clock_jump_seconds: float = 0.0
    clock_jumped_at: str | None = None
    epoch: str = ""


# -- errors --------------------------------------------------------------------------------


class MeshNotFound(Missing):
    code = "MESH_NOT_FOUND"
    default_message = "there is no such mesh"
    default_hint = "agentlip mesh list"


class NoSuchMember(Missing):
    code = "MEMBER_NOT_FOUND"
    default_message = "there is no such member"
    default_hint = "agentlip mesh members MESH"


class NotAMember(Forbidden):
    code = "NOT_A_MEMBER"
    default_message = "this key does not belong to a member of the mesh"
    default_hint = "add it where the broker runs: agentlip mesh add-member MESH NAME --key KEY"


class MemberIsRevoked(Forbidden):
    """`details.successor` is the new key if the member rotated its key."""

    code = "MEMBER_REVOKED"
    default_message = "this member was revoked"
    default_hint = (
        "stop the member's appliance, make a new key with 'agentlip identity remint --yes', and"
        " add it where the broker runs: agentlip mesh add-member MESH NAME --key KEY"
    )


class NotYours(Forbidden):
    default_message = "a member may do this only for itself"
    default_hint = "sign as that member, or use a token with the scope broker:admin"


class NoSuchDestination(Missing):
    code = "DESTINATION_NOT_FOUND"
    default_message = "the destination does not exist"
    default_hint = (
        "agentlip mesh topics MESH lists topics; a dm needs the member's whole public key"
    )


class FingerprintDiffers(Invalid):
    """The fingerprints differ. `broker_fingerprint_prefix`: the first bytes that the broker
    computed."""

    code = "FINGERPRINT_DIFFERS"
    default_message = "request_fingerprint does not match this request"
    default_hint = "compare the canonical form: docs/reference/broker.md, fingerprint"


class ClientMessageIdReused(Conflict):
    """Another request with an id that was used before; the sender must take a new id."""

    code = "IDEMPOTENCY_KEY_REUSED"
    default_message = "client_message_id was used for another request"
    default_hint = "send this one under a new client_message_id"


class ClientMessageIdOfOther(ClientMessageIdReused):
    """Another member used the id: all members in a mesh share one set of ids."""

    default_message = "another member has used this client_message_id"
    default_hint = "use an id that begins with your member name, or omit --id"


class MeshBusy(Exhausted):
    default_message = "the mesh reached its rate limit (broker.rate_per_second)"
    default_hint = "send the same again after retry_after seconds, or raise broker.rate_per_second"


class BodyTooLarge(PayloadTooLarge):
    default_message = "the message is larger than the broker accepts"
    default_hint = "send a link to the content instead; details.bytes_max is the limit"


class TooManyMentions(Invalid):
    default_message = "meta.mentions names too many members"
    default_hint = "send it to a topic instead"


class BadSignature(Unauthenticated):
    code = "BAD_SIGNATURE"
    default_message = "the signature does not match this member and request"
    default_hint = "compare the signed bytes: docs/reference/broker.md, signatures"


class StaleSignature(Unauthenticated):
    """`details` contains the broker's time, so that the member's clock can be corrected."""

    code = "STALE_SIGNATURE"
    default_message = "the signature's timestamp is too far from the broker's time"
    default_hint = "set the clock on the member's machine; details.now is the broker's time"


class SignatureUsed(Unauthenticated):
    code = "SIGNATURE_USED"
    default_message = "this signature was used before"
    default_hint = "sign every request with a new nonce (docs/reference/broker.md, signatures)"


class WrongBroker(Unauthenticated):
    """`details.broker_id` is the id to sign for."""

    code = "WRONG_BROKER"
    default_message = "the signature is for another broker"
    default_hint = (
        "compare broker_id in [[outbox.brokers]] with 'agentlip broker status --json' on the"
        " broker's machine"
    )


class TooManySignatures(Exhausted):
    default_message = "too many signed requests"
    default_hint = "send batches instead of single messages"


class MeshTaken(Conflict):
    code = "ALREADY_EXISTS"
    default_message = "a mesh with that name exists"
    default_hint = "agentlip mesh list"


class MemberTaken(Conflict):
    code = "ALREADY_EXISTS"
    default_message = "another member has this name, or this key was used before"
    default_hint = "agentlip mesh members MESH"


class TooManyRows(Conflict):
    code = "TOO_MANY"
    default_message = "the limit for this resource has been reached"
    default_hint = "details.limit is the limit; raise it under [broker] in agentlip.toml"


class TooManyLinks(Unavailable):
    default_message = "too many members are connected"
    default_hint = "agentlip mesh members MESH"


def decode(item: Any) -> AcceptItem:
    """Return an item from JSON or a mapping. Raises Invalid, which names the field."""
    if isinstance(item, AcceptItem):
        return item
    try:
        if isinstance(item, Raw):
            return _item(item)
        return msgspec.convert(item, AcceptItem)
    except msgspec.ValidationError as error:
        raise Invalid(f"the item is not valid: {error}") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise Invalid("the item is not valid JSON") from None


_item = msgspec.json.Decoder(AcceptItem).decode
