"""Defines the requests, responses, errors and limits of incoming webhooks."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from appliance.hub.wire import Sender, TopicReference
from appliance.kernel.errors import Conflict, Invalid, Missing, Unauthenticated, Unavailable

BODY_BYTES_MAX = 512 * 1024
"""Decoding blocks the event loop for about 5 ms. GitHub's pushes with hundreds of commits fit."""

ENDPOINTS_MAX = 100  # all are kept in memory
DELIVERY_ID_LENGTH_MAX = 200

Template = Literal["github", "gitlab", "alertmanager", "grafana", "healthchecks", "json"]
EndpointName = Annotated[str, Meta(pattern="^[a-z0-9][a-z0-9_-]{0,39}$")]
EndpointSecret = Annotated[
    str, Meta(max_length=200, description="16 to 200 visible ASCII characters")
]
HeaderName = Annotated[str, Meta(pattern="^[A-Za-z0-9-]{1,64}$")]
StreamName = Annotated[str, Meta(min_length=1, max_length=256)]


class IncomingEndpoint(Struct, frozen=True):
    """An endpoint without its secret. `path`: what the sender calls with POST."""

    name: str
    template: Template
    path: str
    topic_id: str | None
    stream: str | None
    to: list[str]
    signature_header: str | None
    created_at: str


class CreateEndpoint(Struct, frozen=True):
    """Either `topic_id`, for messages, or `stream`, for courier envelopes.

    `to`: names for whom the messages are. `secret`: the sender's; missing: a new one.
    `signature_header`: only for the template `json`: the header with the body's HMAC-SHA256, in
    hexadecimal digits."""

    name: EndpointName
    template: Template
    topic_id: TopicReference | None = None
    stream: StreamName | None = None
    to: Annotated[list[Sender], Meta(max_length=20)] = []
    secret: EndpointSecret | None = None
    signature_header: HeaderName | None = None


class EndpointCreated(Struct, frozen=True):
    """`secret` is shown this once."""

    endpoint: IncomingEndpoint
    secret: str


class EndpointShown(Struct, frozen=True):
    endpoint: IncomingEndpoint


class EndpointList(Struct, frozen=True):
    """Endpoints by name, without their secrets."""

    endpoints: list[IncomingEndpoint]


class EndpointDeleted(Struct, frozen=True):
    name: str
    deleted: bool = True


class DeliveryAccepted(Struct, frozen=True, omit_defaults=True):
    """A delivery's result: a message, an envelope, or nothing for a sender's `ping`."""

    endpoint: str
    message_id: str | None = None
    event_id: int | None = None
    envelope_id: str | None = None
    ping: bool = False


class DeliveryPayload(Struct, frozen=True):
    """The sender's JSON object, as the sender's documentation describes it."""


class TestDelivery(Struct, frozen=True):
    """A payload, as if the sender had signed it. `send`: also accept the delivery."""

    payload: str
    headers: dict[str, str] = {}
    send: bool = False


class DeliveryTested(Struct, frozen=True):
    """`delivery_id`: null if a repetition can't be recognized. `text`: the message."""

    delivery_id: str | None
    text: str
    fields: dict[str, str]
    accepted: DeliveryAccepted | None = None


class NoSuchEndpoint(Missing):
    default_message = "incoming webhook not found"
    default_hint = "agentlip incoming list"


class EndpointExists(Conflict):
    code = "INCOMING_EXISTS"
    default_message = "an incoming webhook with this name exists"
    default_hint = "agentlip incoming list"


class TooManyEndpoints(Conflict):
    code = "TOO_MANY_INCOMING"
    default_message = "the limit of incoming webhooks has been reached"
    default_hint = "agentlip incoming remove NAME"


class BadEndpoint(Invalid):
    code = "BAD_INCOMING"
    default_hint = "agentlip incoming add --help"


class DeliveryRefused(Unauthenticated):
    """An unknown name and a missing or wrong credential get one response."""

    guess = True
    code = "DELIVERY_REFUSED"
    default_message = "unknown incoming webhook, or its signature or token is missing or wrong"
    default_hint = "compare the sender's secret and header with: agentlip incoming show NAME"


class DeliveryStale(Unauthenticated):
    """The signature is right. So the caller knows the secret, or repeats a request."""

    code = "DELIVERY_STALE"
    default_message = "the signed timestamp is more than 5 minutes from this machine's time"
    default_hint = "compare the clocks of both machines: date -u"


class BadDelivery(Invalid):
    code = "BAD_DELIVERY"
    default_message = "the payload is not what this template reads"
    default_hint = "agentlip incoming test NAME FILE shows what a payload becomes"


class NoCourier(Unavailable):
    code = "INCOMING_COURIER_OFF"
    default_message = "the courier is off, so no envelope can be stored"
    default_hint = "set `courier = true` in [roles] in agentlip.toml, then: agentlipd restart"
