"""What crosses the door about sends: requests, replies, errors."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from appliance.kernel.errors import Conflict, Exhausted, Forbidden, Invalid, Missing, Unavailable
from appliance.kernel.scopes import Scopes

SEND, READ, ADMIN = "outbox:send", "outbox:read", "outbox:admin"
SCOPES = Scopes(frozenset({SEND, READ, ADMIN}))
Priority = Literal["now", "next", "low"]
Status = Literal["pending", "inflight", "done", "dead", "aborted"]
ClientMessageId = Annotated[
    str, Meta(min_length=1, max_length=255, pattern=r"^[\x21-\x7e]+$", description="visible ASCII")
]
Destination = Annotated[
    str,
    Meta(
        min_length=1, max_length=300, description="`#topic`, a public key, `queue:ID`, `mailto:…`"
    ),
]
Reference = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[\x21-\x7e]+$")]
Name = Annotated[str, Meta(min_length=1, max_length=64)]
Member = Annotated[str, Meta(min_length=1, max_length=200)]
RowId = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[\x21-\x7e]+$")]
Seconds = Annotated[float, Meta(ge=0, le=315_360_000)]
Limit = Annotated[int, Meta(ge=1, description="clamped to the maximum")]
CHAIN_LIMIT = 500  # requeues of one send shown, unless asked for fewer or more


class Send(Struct, frozen=True, forbid_unknown_fields=True):
    """`mesh` and `target` left out: those of the settings, and the mesh's broker."""

    to: Destination
    message: str
    priority: Priority = "next"
    meta: dict[str, Any] | None = None
    reply_to_id: Reference | None = field(name="replyToId", default=None)
    client_message_id: ClientMessageId | None = None
    mesh: Name | None = None
    target: Name | None = None


class SendBatch(Struct, frozen=True, forbid_unknown_fields=True):
    items: Annotated[list[Send], Meta(min_length=1)]


class TopicPost(Struct, frozen=True, forbid_unknown_fields=True):
    """`mentions` travel in `meta.mentions`, so they are part of what is sent and compared."""

    topic: Annotated[str, Meta(min_length=1, max_length=200)]
    message: str
    priority: Priority = "next"
    mentions: Annotated[list[Member], Meta(max_length=100)] | None = None
    client_message_id: ClientMessageId | None = None
    mesh: Name | None = None


class Accepted(Struct, frozen=True, omit_defaults=True):
    """202: `status` is `queued` or `inflight`. 200: delivered before, under `broker_message_id`."""

    client_message_id: str
    status: Literal["queued", "inflight"] | UnsetType = UNSET
    broker_message_id: str | UnsetType | None = UNSET
    history_id: str | UnsetType | None = UNSET
    duplicate: bool = False


class SendResult(Struct, frozen=True):
    """One item of a batch: the status and body that a single send would have got."""

    status: int
    body: dict[str, Any]


class SendResults(Struct, frozen=True):
    results: list[SendResult]


class OutboxRow(Struct, frozen=True):
    """One send as it stands. `payload_kept` is false once its payload was dropped. `principal`:
    the token, or the part of the appliance, that asked for it."""

    id: str
    client_message_id: str
    fingerprint: str
    status: Status
    mesh: str
    target: str
    to: str
    priority: Priority
    reply_to_id: str | None
    attempts: int
    enqueued_at: str
    next_attempt_at: str | None
    last_error: str | None
    delivered_at: str | None
    broker_message_id: str | None
    history_id: str | None
    died_at: str | None
    aborted_at: str | None
    aborted_by: str | None
    superseded_by: str | None
    payload_kept: bool
    payload_bytes: int
    principal: str | None = None


class OutboxPage(Struct, frozen=True):
    """Newest first, or oldest first with `after`; `next` is the id to go on from."""

    sends: list[OutboxRow]
    next: str | None


class OutboxSend(Struct, frozen=True):
    """One send whole, and the chain of requeues it is part of, oldest first. While `has_more` is
    true, the chain continues with `after` set to `next`."""

    send: OutboxRow
    message: str | None
    meta: dict[str, Any] | None
    chain: list[OutboxRow]
    has_more: bool = False
    next: str | None = None


class ListQuery(Struct, frozen=True):
    """`after`: oldest first, after that id. `failed` is `status=dead`."""

    status: Status | None = None
    mesh: Name | None = None
    to: Destination | None = None
    failed: bool = False
    after: RowId | None = None
    before: RowId | None = None
    limit: Limit = 100


class ExportQuery(Struct, frozen=True):
    """Oldest first, with payloads."""

    status: Status | None = None
    after: RowId | None = None
    limit: Limit = 100


class InspectQuery(Struct, frozen=True):
    """`id` of the row, or the client's. `after`: the rest of the chain, behind that row's id."""

    id: RowId
    after: RowId | None = None
    limit: Limit = CHAIN_LIMIT


class ExportedSend(Struct, frozen=True):
    send: OutboxRow
    message: str | None
    meta: dict[str, Any] | None


class ExportPage(Struct, frozen=True):
    sends: list[ExportedSend]
    next: str | None


class Patch(Struct, frozen=True, forbid_unknown_fields=True):
    """What the new send says instead; what is left out stays."""

    message: str | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType | None = UNSET


class Requeue(Struct, frozen=True, forbid_unknown_fields=True):
    """One send by `id` (of the row or of the client), or all that fit the rest. Exactly one of
    `new_client_id` and `auto`. `dry_run` changes nothing and tells what would be."""

    id: RowId | None = None
    new_client_id: ClientMessageId | None = None
    auto: bool = False
    patch: Patch | None = None
    status: Literal["pending", "dead"] | None = None
    mesh: Name | None = None
    to: Destination | None = None
    error_contains: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    older_than_seconds: Seconds | None = None
    limit: Limit = 100
    dry_run: bool = False


class Requeued(Struct, frozen=True):
    """`new_*` are null in a dry run."""

    id: str
    client_message_id: str
    new_id: str | None
    new_client_message_id: str | None


class RequeueResult(Struct, frozen=True):
    """`more`: as many as the limit; others may fit the filter too."""

    requeued: list[Requeued]
    dry_run: bool
    more: bool = False


class Drop(Struct, frozen=True, forbid_unknown_fields=True):
    id: RowId


class Dropped(Struct, frozen=True):
    """The send is retired and its payload gone; the id stays, for ever."""

    send: OutboxRow


class Prune(Struct, frozen=True, forbid_unknown_fields=True):
    """Drops payloads of delivered and retired sends; with `dead` also of dead ones, which are
    retired by that."""

    confirm: bool = False
    dead: bool = False
    older_than_seconds: Seconds = 0.0


class Pruned(Struct, frozen=True):
    pruned: int
    more: bool


class Reload(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Reloaded(Struct, frozen=True):
    """Names of [outbox] settings: those that hold now, and those that wait for a restart."""

    changed: list[str]
    needs_restart: list[str]


class OutboxState(Struct, frozen=True):
    """State of the outbox: `level` is normal, high, full or degraded.

    `clock_jump_seconds`: by how much the clock was set last, at `clock_jumped_at`. The times of
    waiting sends were moved with it.
    """

    enabled: bool
    level: str
    fill: float
    depth: dict[str, int]
    oldest_pending_seconds: float
    inflight: int
    max_age_hours: dict[str, int]
    meshes: list[str]
    open_routes: list[str]
    clock_jump_seconds: float = 0.0
    clock_jumped_at: str | None = None


class IdReused(Conflict):
    """The table of the specification: `extra` carries its fields."""

    code = "IDEMPOTENCY_KEY_REUSED"
    sentence = "idempotency_key_reused"
    advice = "send it with a new client_message_id; 'agentlip outbox inspect ID' shows the old"


class TwoIds(Invalid):
    code = "TWO_IDS"
    sentence = "Idempotency-Key and client_message_id differ"
    advice = "give one of them, or the same twice"


class NoSuchMesh(Invalid):
    code = "MESH_UNKNOWN"
    sentence = "no broker is known for that mesh"
    advice = "name it under [[outbox.brokers]] in agentlip.toml, and restart"


class MemberRevoked(Forbidden):
    """The broker has said so of the key that this appliance has, or had."""

    code = "MEMBER_REVOKED"
    sentence = "the broker of this mesh has revoked the appliance's member key"
    advice = (
        "stop the appliance, make another key with 'agentlip identity remint --yes', and have that"
        " added where the broker runs: agentlip mesh add-member MESH NAME --key KEY"
    )


class NoSuchTarget(Invalid):
    code = "TARGET_UNKNOWN"
    sentence = "nothing here delivers to that target"
    advice = "leave the target out to send through the broker; details name those there are"


class MessageTooLarge(Invalid):
    code = "PAYLOAD_TOO_LARGE"
    sentence = "the message is too large"
    advice = "send a link to it instead; the limit is in details"


class MailNotAllowed(Forbidden):
    code = "MAIL_NOT_ALLOWED"
    sentence = "mail may not go to that address"
    advice = "name it, or @ and its domain, under mail.allow in agentlip.toml, and restart"


class InsufficientStorage(Unavailable):
    code = "INSUFFICIENT_STORAGE"
    status = 507
    sentence = "insufficient_storage"
    advice = "let it drain, or 'agentlip outbox prune --confirm'"


class DaemonBusy(Exhausted):
    code = "DAEMON_BUSY"
    sentence = "daemon_busy"
    advice = "send batches, or fewer requests at the same time"


class OutboxOff(Unavailable):
    code = "OUTBOX_OFF"
    sentence = "the outbox is switched off here"
    advice = "set outbox.enabled in agentlip.toml, and restart"


class NoSuchSend(Missing):
    sentence = "there is no such send"
    advice = "agentlip outbox list"


class WrongState(Conflict):
    code = "WRONG_STATE"
    sentence = "the send is not in a state in which that can be done"
    advice = "agentlip outbox inspect ID"


class IdTaken(Conflict):
    code = "ALREADY_EXISTS"
    sentence = "that client_message_id was used before; ids are never released"
    advice = "give another, or --auto"


class PayloadGone(Conflict):
    code = "PAYLOAD_GONE"
    sentence = "the payload was dropped"
    advice = "give a new one with --patch-payload"
