"""[webhooks]: where events may be sent, and how much is kept."""

from typing import Annotated

import msgspec
from msgspec import Meta


class WebhookSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who may be called about events. Registered by holders of `hub:admin`."""

    allow_loopback: bool = True  # receivers on this machine, over plain HTTP too
    allow_private: bool = False  # receivers in private networks, such as 10.0.0.0/8
    allow_http: bool = False  # plain HTTP beyond this machine: everybody on the way can read
    webhooks_max: int = 100  # registered at once
    filters_max: int = 100  # names, channels and topics of one webhook, each
    secret_grace_hours: float = 24.0  # a replaced secret signs as well for so long
    pending_max: int = 100  # events in one preview; a larger limit is clamped
    scan_rows_max: int = 20_000  # events looked at for one preview
    feed_seconds: Annotated[float, Meta(gt=0)] = 0.25  # how late an event may be handed on
    feed_max: Annotated[int, Meta(ge=1)] = 50  # events of one webhook handed on at a time
    waiting_max: Annotated[int, Meta(ge=1)] = 1000  # undelivered ones of it; more wait in the log
    disable_after_days: Annotated[float, Meta(ge=0)] = 5.0  # without a delivery; 0: never
