"""What crosses the door about webhooks: requests, replies, errors."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from appliance.kernel.errors import Conflict, Missing

EventId = Annotated[int, Meta(ge=0, le=2**63 - 1)]
EventName = Annotated[str, Meta(min_length=1, max_length=100)]
Reference = Annotated[str, Meta(min_length=1, max_length=100, description="an id, or a name")]
Id = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]
Url = Annotated[str, Meta(min_length=1, max_length=2048)]
Description = Annotated[str, Meta(max_length=500)]
Secret = Annotated[str, Meta(max_length=200, description="`whsec_` and base64 of 24 to 64 bytes")]
Format = Literal["native", "cloudevents"]
Limit = Annotated[int, Meta(ge=1, description="clamped to the maximum")]


class Wanted(Struct, frozen=True):
    """Events with one of the names, in one of the channels or topics; an empty list: any."""

    names: list[EventName] = []
    channels: list[Reference] = []
    topics: list[Id] = []


class Webhook(Struct, frozen=True):
    """A registration without its secret. `cursor`: the event up to which it has been served.
    `rotating_until`: until then deliveries carry a signature by the former secret too.
    `failing_since`: nothing was delivered since. `disabled_because`: why we switched it off."""

    id: str
    url: str
    description: str
    events: Wanted
    format: Format
    enabled: bool
    cursor: int
    created_at: str
    updated_at: str
    rotating_until: str | None = None
    failing_since: str | None = None
    disabled_because: str | None = None


class CreateWebhook(Struct, frozen=True):
    """`cursor` left out: events from now on; 0: all there ever were."""

    url: Url
    description: Description = ""
    events: Wanted = Wanted()
    format: Format = "native"
    enabled: bool = True
    secret: Secret | None = None
    cursor: EventId | None = None


class ChangeWebhook(Struct, frozen=True):
    """What is left out stays. `new_secret`: one is made; `secret`: this one from now on.
    A `cursor` before the webhook's has events delivered again, as new deliveries."""

    url: Url | None = None
    description: Description | None = None
    events: Wanted | None = None
    format: Format | None = None
    enabled: bool | None = None
    cursor: EventId | None = None
    secret: Secret | None = None
    new_secret: bool = False


class WebhookShown(Struct, frozen=True):
    webhook: Webhook


class WebhooksQuery(Struct, frozen=True):
    """Without a limit, as many as a page holds in bytes."""

    after: Annotated[str, Meta(max_length=64, description="`next` of the page before")] = ""
    limit: Limit = 10_000


class WebhookList(Struct, frozen=True):
    """In the order of ids. `next`: what to ask for after this page."""

    webhooks: list[Webhook]
    has_more: bool = False
    next: str = ""


class WebhookChanged(Struct, frozen=True, omit_defaults=True):
    """The only time that `secret` is told: when it is new."""

    webhook: Webhook
    secret: str | None = None


class WebhookDeleted(Struct, frozen=True):
    id: str
    deleted: bool = True


class PendingQuery(Struct, frozen=True):
    limit: Limit = 10


class PendingEvent(Struct, frozen=True):
    """What would be sent: `body` is to be read as UTF-8 bytes, as they were signed."""

    event_id: int
    headers: dict[str, str]
    body: str


class PendingEvents(Struct, frozen=True):
    """`cursor`: where the webhook stands once these are served, with all that it does not want."""

    pending: list[PendingEvent]
    cursor: int
    has_more: bool


class NoSuchWebhook(Missing):
    sentence = "webhook not found"
    advice = "agentlip webhook list"


class TooManyWebhooks(Conflict):
    code = "TOO_MANY_WEBHOOKS"
    sentence = "there are as many webhooks as there may be"
    advice = "agentlip webhook delete ID, or raise webhooks.webhooks_max"
