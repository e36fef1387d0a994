"""What crosses the broker's door: sends and their answers, meshes, frames of the link, errors."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from appliance.kernel.errors import (
    ApplianceError,
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

ACCEPT, READ, ADMIN, SUBSCRIBE = "broker:accept", "broker:read", "broker:admin", "broker:subscribe"
SCOPES = Scopes(  # whoever manages members may do what they may
    frozenset({ACCEPT, READ, ADMIN}), {READ: (ADMIN,), SUBSCRIBE: (ADMIN,)}
)
BATCH_MAX = 200
RETENTION_DAYS_MIN = 7
RETENTION_DAYS_MAX = 3_999
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"

Kind = Literal["topic", "dm", "queue"]
PlaceKind = Literal["topic", "queue"]
Priority = Literal["now", "next", "low"]
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
    """One send. `meta.mentions` may name members, by key or name; it is part of the fingerprint."""

    mesh: Slug
    client_message_id: Id
    request_fingerprint: Hex32
    destination_kind: Kind
    destination_ref: Id
    body: str
    priority: Priority = "next"
    envelope_version: Literal[1] = 1
    reply_to_id: Id | None = None
    meta: dict[str, Any] | None = None


class AcceptBatch(Struct, frozen=True, forbid_unknown_fields=True):
    """Items are judged one by one: what is wrong with one is told in its own result."""

    items: Annotated[list[Raw], Meta(min_length=1, max_length=BATCH_MAX)]


class Receipt(Struct, frozen=True):
    """201, or 200 with `duplicate` when the same was accepted before. Then it is also told when
    that was, and whether the message is still there (`history_available`)."""

    broker_message_id: str
    client_message_id: str
    history_id: str
    duplicate: bool = False
    history_available: bool | None = None
    first_seen_at: str | None = None

    def told(self) -> dict[str, Any]:
        named = msgspec.structs.asdict(self)
        return {name: value for name, value in named.items() if value is not None}


class Result(Struct, frozen=True):
    status: int
    body: dict[str, Any]


class Results(Struct, frozen=True):
    results: list[Result]


# -- meshes --------------------------------------------------------------------------------


class CreateMesh(Struct, frozen=True):
    slug: Slug
    dedupe_mode: Mode = "retention_scoped"
    dedupe_retention_days: RetentionDays = 365
    message_retention_days: KeepDays = 90
    concurrency: Concurrency = "prefer_newest"


class ChangeMesh(Struct, frozen=True):
    """What is left out stays. Ids that were given an end keep it."""

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


class MeshShown(Struct, frozen=True):
    mesh: Mesh


class MeshList(Struct, frozen=True):
    meshes: list[Mesh]


class AddMember(Struct, frozen=True):
    pubkey: Pubkey
    name: Name


class RenameMember(Struct, frozen=True):
    name: Name


class RotateMember(Struct, frozen=True):
    """Asked for by the member itself, signed with its old key; `proof` is signed by the new."""

    pubkey: Pubkey
    proof: Hex64


class Member(Struct, frozen=True):
    """`state` is active or revoked; `connected` holds for this moment."""

    pubkey: str
    name: str
    state: Literal["active", "revoked"]
    added_at: str
    connected: bool = False
    successor: str | None = None


class MemberShown(Struct, frozen=True):
    member: Member


class MeshRowsQuery(Struct, frozen=True):
    """Without a limit, as many as a page holds in bytes."""

    after: Annotated[str, Meta(max_length=200, description="`next` of the page before")] = ""
    limit: Limit = 10_000


class MemberList(Struct, frozen=True):
    """By name. `next`: what to ask for after this page."""

    members: list[Member]
    has_more: bool = False
    next: str = ""


class CreatePlace(Struct, frozen=True):
    name: Name


class Place(Struct, frozen=True):
    kind: PlaceKind
    name: str
    created_at: str
    subscribers: list[str]


class PlaceShown(Struct, frozen=True):
    place: Place


class PlaceList(Struct, frozen=True):
    """By name. `next`: what to ask for after this page."""

    places: list[Place]
    has_more: bool = False
    next: str = ""


class Done(Struct, frozen=True):
    changed: bool


# -- looking -------------------------------------------------------------------------------


class HistoryQuery(Struct, frozen=True):
    """A member gets what went to it, from it, and into its topics."""

    after: Annotated[str, Meta(max_length=64, description="a history_id; none: the oldest")] = ""
    limit: Limit = 100


class Push(Struct, frozen=True):
    """A message as receivers get it. `topic` is null unless it went to one."""

    message_id: str
    client_message_id: str | None
    mesh: str
    topic: str | None
    destination_kind: Kind
    destination_ref: str
    sender_pubkey: str
    sender_name: str
    priority: Priority
    meta: dict[str, Any] | None
    body: str
    reply_to_id: str | None
    created_at: str


class Past(Struct, frozen=True):
    history_id: str
    message: Push


class History(Struct, frozen=True):
    """`next`: what to ask for after this page."""

    history: list[Past]
    next: str
    has_more: bool


class Status(Struct, frozen=True):
    """Counts of all meshes. `waiting`: deliveries nobody holds; `orphans`: of the last look.

    `clock_jump_seconds`: by how much the clock was set last, at `clock_jumped_at`. Pauses, leases
    and ages were not changed by it.
    """

    meshes: int
    members: int
    links: int
    messages: int
    dedupe: int
    waiting: int
    leased: int
    orphans: int | None
    swept_at: str | None
    broker_id: str
    clock_jump_seconds: float = 0.0
    clock_jumped_at: str | None = None


class Orphan(Struct, frozen=True):
    """A row that breaks the promise: which rule, of which message, in a sentence."""

    rule: str
    mesh: str
    broker_message_id: str
    sentence: str


class Orphans(Struct, frozen=True):
    orphans: list[Orphan]


# -- errors --------------------------------------------------------------------------------


class NoSuchMesh(Missing):
    code = "MESH_NOT_FOUND"
    sentence = "there is no such mesh"
    advice = "agentlip mesh list"


class NoSuchMember(Missing):
    code = "MEMBER_NOT_FOUND"
    sentence = "there is no such member"
    advice = "agentlip mesh members MESH"


class NotAMember(Forbidden):
    code = "NOT_A_MEMBER"
    sentence = "this key is not a member of the mesh"
    advice = "add it where the broker runs: agentlip mesh add-member MESH NAME --key KEY"


class MemberIsRevoked(Forbidden):
    """`details.successor` is there when the member went on under another key."""

    code = "MEMBER_REVOKED"
    sentence = "this member was revoked"
    advice = (
        "stop the member's appliance, make another key with 'agentlip identity remint --yes', and"
        " have that added: agentlip mesh add-member MESH NAME --key KEY"
    )


class NotYours(Forbidden):
    sentence = "a member may do that for itself only"
    advice = "sign as that member, or use a token with the scope broker:admin"


class NoSuchDestination(Missing):
    code = "DESTINATION_NOT_FOUND"
    sentence = "the destination does not exist"
    advice = "a dm goes to a member's whole public key; agentlip mesh topics MESH lists topics"


class FingerprintDiffers(Invalid):
    """`broker_fingerprint_prefix`: what we make of what was sent."""

    code = "FINGERPRINT_DIFFERS"
    sentence = "request_fingerprint is not that of this request"
    advice = "compare the canonical form: docs/broker.md, fingerprint"


class KeyReused(Conflict):
    """Another request under an id that is used up; the sender has to take a new id."""

    code = "IDEMPOTENCY_KEY_REUSED"
    sentence = "client_message_id was used for another request"
    advice = "send this one under a new client_message_id"


class IdOfAnother(KeyReused):
    """The same request, but of another member: ids are shared by all members of a mesh."""

    sentence = "another member has used this client_message_id"
    advice = "use an id that begins with your own name, or omit --id"


class MeshBusy(Exhausted):
    sentence = "this mesh accepts no more messages in this second"
    advice = "send the same again after retry_after seconds, or raise broker.rate_per_second"


class BodyTooLarge(PayloadTooLarge):
    sentence = "the message is larger than the broker takes"
    advice = "max_payload of the negotiation says how much; broker.inline_bytes_max sets it"


class TooManyMentions(Invalid):
    sentence = "meta.mentions names too many members"
    advice = "send it to a topic instead"


class BadSignature(Unauthenticated):
    code = "BAD_SIGNATURE"
    sentence = "the signature is not this member's over this request"
    advice = "what is signed, byte for byte: docs/broker.md, signatures"


class StaleSignature(Unauthenticated):
    """`details` carries the broker's time, so that a clock can be set right."""

    code = "STALE_SIGNATURE"
    sentence = "the signature's timestamp is too far from the broker's time"
    advice = "set the clock of the member's machine; details.now is the broker's time"


class SignatureUsed(Unauthenticated):
    code = "SIGNATURE_USED"
    sentence = "this signature was used before"
    advice = "sign every request with a new nonce (docs/broker.md, signatures)"


class OldSignature(Unauthenticated):
    """`details.version` is the version that the broker requires."""

    code = "SIGNATURE_VERSION"
    sentence = "signatures of version 1 are not accepted"
    advice = "sign as version 2 (docs/broker.md, signatures), or set broker.signature_v1 = true"


class WrongBroker(Unauthenticated):
    """`details.broker_id` is the id to sign for."""

    code = "WRONG_BROKER"
    sentence = "the signature is for another broker"
    advice = (
        "compare broker_id in [[outbox.brokers]] with 'agentlip broker status --json' on the"
        " broker's machine"
    )


class TooManySignatures(Exhausted):
    sentence = "too many signed requests (broker.nonces_max, broker.nonces_member_max)"
    advice = "send batches instead of single messages, or raise these settings"


class MeshTaken(Conflict):
    code = "ALREADY_EXISTS"
    sentence = "there is a mesh of that name"
    advice = "agentlip mesh list"


class MemberTaken(Conflict):
    code = "ALREADY_EXISTS"
    sentence = "a member has that key or that name, or had that key"
    advice = "agentlip mesh members MESH"


class TooManyRows(Conflict):
    code = "TOO_MANY"
    sentence = "there are as many of them as there may be"
    advice = "the limits stand in [broker] of agentlip.toml"


class TooManyLinks(Unavailable):
    sentence = "too many receivers are connected"
    advice = "raise broker.links_max"


def refused(error: ApplianceError, status: int) -> tuple[int, dict[str, Any]]:
    """A refusal as the result of one item: the usual body without a request's id."""
    body: dict[str, Any] = {
        "error": error.message,
        "code": error.code,
        "details": error.details,
        "hint": error.hint,
        **error.extra,
    }
    if error.retry_after is not None:
        body["retry_after"] = error.retry_after
    return status, body


def decoded(item: Any) -> AcceptItem:
    """An item from JSON or a mapping; raises Invalid naming the field."""
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
