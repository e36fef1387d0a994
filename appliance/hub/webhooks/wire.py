"""The webhooks' wire format: requests, responses, errors."""

from typing import Annotated

from msgspec import Meta, Struct

from appliance.hub.wire import EventId, Id, Limit, Reference
from appliance.kernel.errors import Conflict, Missing

EventName = Annotated[str, Meta(min_length=1, max_length=100)]
Url = Annotated[str, Meta(min_length=1, max_length=2048)]
Description = Annotated[str, Meta(max_length=500)]
Secret = Annotated[str, Meta(max_length=200, description="`whsec_` and base64 of 24 to 64 bytes")]


class EventSelection(Struct, frozen=True):
    """Events with one of the names, in one of the channels or topics; an empty list means any."""

    names: list[EventName] = []
    channels: list[Reference] = []
    topics: list[Id] = []


class EventWebhook(Struct, frozen=True):
    """A registration without its secret. `cursor`: the last event handed to the outbox.
    `rotating_until`: until then, deliveries are also signed with the former secret.
    `failing_since`: time since which no delivery succeeded. `disabled_because`: why it was
    disabled automatically."""

    id: str
    url: str
    description: str
    events: EventSelection
    enabled: bool
    cursor: int
    created_at: str
    updated_at: str
    rotating_until: str | None = None
    failing_since: str | None = None
    disabled_because: str | None = None


class CreateWebhook(Struct, frozen=True):
    """Without `cursor`: events from now on; 0: all events."""

    url: Url
    description: Description = ""
    events: EventSelection = EventSelection()
    enabled: bool = True
    secret: Secret | None = None
    cursor: EventId | None = None


class ChangeWebhook(Struct, frozen=True):
    """Missing fields stay unchanged. `new_secret`: generate a secret; `secret`: use this one.
    A `cursor` before the current one delivers events again, as new deliveries."""

    url: Url | None = None
    description: Description | None = None
    events: EventSelection | None = None
    enabled: bool | None = None
    cursor: EventId | None = None
    secret: Secret | None = None
    new_secret: bool = False


class WebhookShown(Struct, frozen=True):
    webhook: EventWebhook


class WebhooksQuery(Struct, frozen=True):
    """Without a limit, as many webhooks as fit into a page."""

    after: Annotated[str, Meta(max_length=64, description="`next` from the previous page")] = ""
    limit: Limit = 10_000


class WebhookList(Struct, frozen=True):
    """Ordered by id, without URL paths. `next`: `after` for the next page."""

    webhooks: list[EventWebhook]
    has_more: bool = False
    next: str = ""


class WebhookChanged(Struct, frozen=True, omit_defaults=True):
    """`secret` is only included when it is new."""

    webhook: EventWebhook
    secret: str | None = None


class WebhookDeleted(Struct, frozen=True):
    id: str
    deleted: bool = True


class NoSuchWebhook(Missing):
    default_message = "webhook not found"
    default_hint = "agentlip webhook list"


class TooManyWebhooks(Conflict):
    code = "TOO_MANY_WEBHOOKS"
    default_message = "the webhook limit has been reached"
    default_hint = "agentlip webhook delete ID"
