"""Defines the outbox's requests, replies and errors."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from appliance.kernel.errors import Conflict, Exhausted, Forbidden, Invalid, Missing, Unavailable
from appliance.kernel.scopes import Scopes

BATCH_MAX = 500  # sends in one POST /v1/send/batch

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
RouteName = Annotated[
    str, Meta(min_length=1, max_length=300, description="as in a send's `route`; or a target")
]
Limit = Annotated[int, Meta(ge=1, description="clamped to the maximum")]


class Send(Struct, frozen=True, forbid_unknown_fields=True):
    """A send. Defaults: `mesh` from the settings, `target` the mesh's broker."""

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
    """A post. `mentions` are sent in `meta.mentions`, so they are part of the fingerprint."""

    topic: Annotated[str, Meta(min_length=1, max_length=200)]
    message: str
    priority: Priority = "next"
    mentions: Annotated[list[Member], Meta(max_length=100)] | None = None
    client_message_id: ClientMessageId | None = None
    mesh: Name | None = None


class Accepted(Struct, frozen=True, omit_defaults=True):
    """With 202, `status` is `queued` or `inflight`. With 200 the send was already delivered as
    `broker_message_id`."""

    client_message_id: str
    status: Literal["queued", "inflight"] | UnsetType = UNSET
    broker_message_id: str | UnsetType | None = UNSET
    history_id: str | UnsetType | None = UNSET
    duplicate: bool = False


class SendResult(Struct, frozen=True):
    """One batch item's result: status and body as `POST /v1/send` returns them."""

    status: int
    body: dict[str, Any]


class SendResults(Struct, frozen=True):
    results: list[SendResult]


class OutboxRow(Struct, frozen=True):
    """A send's state. `payload_kept` is false after its payload was dropped. `principal` is the
    token, or the appliance's part, that requested it; `traceparent`: the request's, which is
    sent on to webhooks. A pause stops all sends with one `route`."""

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
    traceparent: str | None = None
    route: str = ""


class OutboxPage(Struct, frozen=True):
    """Newest first, or oldest first with `after`. `next` is the id to continue from."""

    sends: list[OutboxRow]
    next: str | None


class OutboxSend(Struct, frozen=True):
    """One send with its payload, and its redrive chain's newest 100 sends, oldest first."""

    send: OutboxRow
    message: str | None
    meta: dict[str, Any] | None
    chain: list[OutboxRow]


class ListQuery(Struct, frozen=True):
    """With `after`: oldest first, from that id on."""

    status: Status | None = None
    mesh: Name | None = None
    to: Destination | None = None
    after: RowId | None = None
    before: RowId | None = None
    limit: Limit = 100


class InspectQuery(Struct, frozen=True):
    """A query for one send. `id` is the row's id or the client_message_id."""

    id: RowId


class Patch(Struct, frozen=True, forbid_unknown_fields=True):
    """Replaces the new send's `message` and `meta`; omitted fields are copied from the old send."""

    message: str | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType | None = UNSET


class Redrive(Struct, frozen=True, forbid_unknown_fields=True):
    """Redrives one send by `id` (row id or client_message_id), or all sends that match the filter.
    Give exactly one of `new_client_id` and `auto`. `dry_run` only returns the changes.

    With `lost`, sends that a restore of their broker lost are sent again under their own ids."""

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
    lost: bool = False


class Redriven(Struct, frozen=True):
    """`new_*` are null in a dry run, and the old ids for sends that were lost."""

    id: str
    client_message_id: str
    new_id: str | None
    new_client_message_id: str | None


class RedriveResult(Struct, frozen=True):
    """`more`: the limit was reached, so other sends may match the filter too."""

    redriven: list[Redriven] = field(name="requeued")
    dry_run: bool
    more: bool = False


class Drop(Struct, frozen=True, forbid_unknown_fields=True):
    id: RowId


class DropResult(Struct, frozen=True):
    """The retired send. The payload is gone, and the id can never be used again."""

    send: OutboxRow


class Prune(Struct, frozen=True, forbid_unknown_fields=True):
    """Drops payloads of delivered and retired sends. With `dead`, also retires dead letters and
    drops their payloads."""

    confirm: bool = False
    dead: bool = False
    older_than_seconds: Seconds = 0.0


class Pruned(Struct, frozen=True):
    pruned: int
    more: bool


class Pause(Struct, frozen=True, forbid_unknown_fields=True):
    """Stops deliveries on a route, for `seconds` or until resumed. Sends are still accepted."""

    route: RouteName
    seconds: Annotated[float, Meta(gt=0, le=366 * 86_400)] | None = None


class Resume(Struct, frozen=True, forbid_unknown_fields=True):
    route: RouteName


class PausedRoute(Struct, frozen=True):
    """A route, or a target with all its routes. `until` is null without an end."""

    route: str
    until: str | None


class PausedRoutes(Struct, frozen=True):
    paused: list[PausedRoute]


class Reload(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Reloaded(Struct, frozen=True):
    """[outbox] settings by name: those now in force, and those that need a restart."""

    changed: list[str]
    needs_restart: list[str]


class OutboxState(Struct, frozen=True):
    """The outbox's state: `level` is normal, high, full or degraded. `lost`: dead letters that a
    broker had accepted before it was restored."""

    level: str
    fill: float
    depth: dict[str, int]
    oldest_pending_seconds: float
    inflight: int
    max_age_hours: dict[str, int]
    meshes: list[str]
    open_routes: list[str]
    lost: int = 0
    paused: list[PausedRoute] = []


class IdReused(Conflict):
    """The id was used for another send. `extra` has the specification's duplicate table fields."""

    code = "IDEMPOTENCY_KEY_REUSED"
    default_message = "idempotency_key_reused"
    default_hint = (
        "use a new client_message_id; 'agentlip outbox inspect ID' shows the send that has this one"
    )


class TwoIds(Invalid):
    code = "TWO_IDS"
    default_message = "the Idempotency-Key header and client_message_id differ"
    default_hint = "send only one field, or the same value in both"


class NoBrokerForMesh(Invalid):
    code = "MESH_UNKNOWN"
    default_message = "no broker is configured for that mesh"
    default_hint = "add it under [[outbox.brokers]] in agentlip.toml, then: agentlipd restart"


class MemberRevoked(Forbidden):
    """A broker revoked this appliance's current or former key."""

    code = "MEMBER_REVOKED"
    default_message = "this mesh's broker has revoked the appliance's member key"
    default_hint = (
        "stop the appliance, make a new key with 'agentlip identity remint --yes', then add it on"
        " the broker's machine: agentlip mesh add-member MESH NAME --key KEY"
    )


class NoSuchTarget(Invalid):
    code = "TARGET_UNKNOWN"
    default_message = "there is no delivery target with that name"
    default_hint = "omit target to send through the broker"


class TooManyPauses(Conflict):
    code = "TOO_MANY_PAUSES"
    default_message = "too many routes are paused"
    default_hint = "agentlip outbox status; agentlip outbox resume ROUTE"


class NotPaused(Missing):
    default_message = "this route is not paused"
    default_hint = "agentlip outbox status"


class MessageTooLarge(Invalid):
    code = "PAYLOAD_TOO_LARGE"
    default_message = "the message is too large"
    default_hint = "send a link to the content instead; details.bytes_max is the limit"


class MailNotAllowed(Forbidden):
    code = "MAIL_NOT_ALLOWED"
    default_message = "mail to that address is not allowed (mail.allow)"
    default_hint = (
        "add the address or @DOMAIN to mail.allow in agentlip.toml, then: agentlipd restart"
    )


class InsufficientStorage(Unavailable):
    code = "INSUFFICIENT_STORAGE"
    status = 507
    default_message = "insufficient_storage"
    default_hint = "wait until sends are delivered, or: agentlip outbox prune --confirm"


class DaemonBusy(Exhausted):
    code = "DAEMON_BUSY"
    default_message = "daemon_busy"
    default_hint = "send batches, or fewer concurrent requests"


class NoSuchSend(Missing):
    default_message = "send not found"
    default_hint = "agentlip outbox list"


class WrongState(Conflict):
    code = "WRONG_STATE"
    default_message = "the send's current state does not allow this"
    default_hint = "agentlip outbox inspect ID"


class IdTaken(Conflict):
    code = "ALREADY_EXISTS"
    default_message = "that client_message_id is already used; ids are never released"
    default_hint = "use another id, or --auto to have one generated"


class PayloadGone(Conflict):
    code = "PAYLOAD_GONE"
    default_message = "the send's payload was dropped"
    default_hint = "agentlip outbox redrive ID --auto --patch-payload JSON"
