"""What crosses the door about webhooks of meshes: requests, replies, errors."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from appliance.broker.wire import Limit
from appliance.kernel.errors import Conflict, Missing

Url = Annotated[str, Meta(min_length=1, max_length=2048)]
Secret = Annotated[str, Meta(max_length=200, description="`whsec_` and base64 of 24 to 64 bytes")]


class CreateHook(Struct, frozen=True):
    """A webhook that can be subscribed to topics, as `webhook:ID`."""

    url: Url
    secret: Secret | None = None


class ChangeHook(Struct, frozen=True):
    """What is left out stays. `new_secret`: one is made; `secret`: this one from now on."""

    url: Url | None = None
    enabled: bool | None = None
    secret: Secret | None = None
    new_secret: bool = False


class Hook(Struct, frozen=True):
    """Without its secret. `failing_since`: nothing was delivered since. `disabled_because`: why we
    switched it off. `rotating_until`: until then the former secret signs too."""

    id: str
    url: str
    added_at: str
    enabled: bool = True
    failing_since: str | None = None
    disabled_because: str | None = None
    rotating_until: str | None = None


class HookShown(Struct, frozen=True):
    webhook: Hook


class HookChanged(Struct, frozen=True, omit_defaults=True):
    """The only time that `secret` is told: when it is new."""

    webhook: Hook
    secret: str | None = None


class HookDeliveriesQuery(Struct, frozen=True):
    after: Annotated[
        str,
        Meta(pattern=r"^([0-9]{1,15}\.[0-9]{1,15}\.[0-9]{1,15})?$",
             description="`next` of the page before"),
    ] = ""  # fmt: skip
    limit: Limit = 100


class HookDelivery(Struct, frozen=True):
    """What a webhook has not taken yet: it waits (`next_attempt_at`), or is being called."""

    message_id: str
    state: Literal["waiting", "leased"]
    attempts: int
    created_at: str
    next_attempt_at: str | None
    last_error: str | None


class HookDeliveries(Struct, frozen=True):
    """Those that are being called, then the rest as they will go; `more` are not shown.
    `has_more` says the same; `next`: what to ask for after this page."""

    deliveries: list[HookDelivery]
    more: bool
    has_more: bool = False
    next: str = ""


class HookList(Struct, frozen=True):
    """In the order of ids. `next`: what to ask for after this page."""

    webhooks: list[Hook]
    has_more: bool = False
    next: str = ""


class NoSuchHook(Missing):
    sentence = "there is no such webhook"
    advice = "agentlip mesh webhooks MESH"


class NoWebhooks(Conflict):
    code = "WEBHOOKS_NOT_AVAILABLE"
    sentence = "this appliance delivers to no webhooks"
    advice = "members receive over GET /broker/v1/link"
