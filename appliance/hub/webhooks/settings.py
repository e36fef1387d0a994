"""[webhooks]: allowed receivers of events, and limits."""

from typing import Annotated

import msgspec
from msgspec import Meta

Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
Days = Annotated[float, Meta(ge=0)]


class WebhookSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Receivers of events. Registering a webhook needs the scope `hub:admin`."""

    allow_loopback: bool = True  # allow receivers on this machine, also over plain HTTP
    allow_private: bool = False  # allow receivers in private networks, such as 10.0.0.0/8
    allow_http: bool = False  # allow unencrypted HTTP to other machines
    webhooks_max: int = 100  # registered webhooks
    filters_max: int = 100  # entries in each of the names, channels and topics of one webhook
    secret_grace_hours: float = 24.0  # hours during which a replaced secret still signs too
    pending_max: int = 100  # events in one preview; a larger `limit` is clamped
    scan_rows_max: int = 20_000  # events scanned for one preview
    feed_seconds: Seconds = 0.25  # seconds between rounds that hand events to the outbox
    feed_max: Positive = 50  # events of one webhook handed to the outbox in a round
    waiting_max: Positive = 1000  # undelivered events of a webhook in the outbox; more wait
    disable_after_days: Days = 5.0  # days of failures before a webhook is disabled; 0: never
