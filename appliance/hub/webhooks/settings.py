"""[webhooks]: allowed receivers of events, and limits."""

from typing import Annotated

import msgspec
from msgspec import Meta

Positive = Annotated[int, Meta(ge=1)]
Days = Annotated[float, Meta(ge=0)]


class WebhookSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Receivers of events. Registering a webhook needs the scope `hub:admin`."""

    allow_loopback: bool = True  # allow receivers on this machine, also over plain HTTP
    allow_private: bool = False  # allow receivers in private networks, such as 10.0.0.0/8
    allow_http: bool = False  # allow unencrypted HTTP to other machines
    waiting_max: Positive = 1000  # undelivered events of a webhook in the outbox; more wait
    disable_after_days: Days = 5.0  # days of failures before a webhook is disabled; 0: never
