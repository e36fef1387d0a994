"""Defines requests, replies and errors for mesh webhooks."""

from typing import Annotated

from msgspec import Meta, Struct

from appliance.kernel.errors import Conflict, Missing

Url = Annotated[str, Meta(min_length=1, max_length=2048)]
Secret = Annotated[str, Meta(max_length=200, description="`whsec_` and base64 of 24 to 64 bytes")]


class CreateMeshWebhook(Struct, frozen=True):
    """A webhook that can be subscribed to topics, as `webhook:ID`."""

    url: Url
    secret: Secret | None = None


class ChangeMeshWebhook(Struct, frozen=True):
    """Omitted fields stay unchanged. `secret`: sign with this one from now on; `new_secret`:
    generate one."""

    url: Url | None = None
    enabled: bool | None = None
    secret: Secret | None = None
    new_secret: bool = False


class MeshWebhook(Struct, frozen=True):
    """A webhook without its secret. `failing_since`: no delivery has succeeded since.
    `disabled_because`: why the broker disabled it. `rotating_until`: until then requests are also
    signed with the former secret."""

    id: str
    url: str
    added_at: str
    enabled: bool = True
    failing_since: str | None = None
    disabled_because: str | None = None
    rotating_until: str | None = None


class MeshWebhookReply(Struct, frozen=True):
    webhook: MeshWebhook


class MeshWebhookChanged(Struct, frozen=True, omit_defaults=True):
    """`secret` is in the reply only when it is new."""

    webhook: MeshWebhook
    secret: str | None = None


class MeshWebhookList(Struct, frozen=True):
    """A page ordered by id. `next`: `after` for the next page."""

    webhooks: list[MeshWebhook]
    has_more: bool = False
    next: str = ""


class WebhookNotFound(Missing):
    default_message = "there is no such webhook"
    default_hint = "agentlip mesh webhooks MESH"


class WebhooksNotAvailable(Conflict):
    code = "WEBHOOKS_NOT_AVAILABLE"
    default_message = "this broker does not deliver to webhooks: the appliance has no outbox"
    default_hint = "receive over GET /broker/v1/link instead"
