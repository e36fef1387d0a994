"""Stores incoming webhooks as courier envelopes."""

import msgspec

from appliance.courier.access import ENQUEUE
from appliance.courier.service import Courier
from appliance.hub.incoming.queries import PRINCIPAL
from appliance.kernel.auth import Principal


def enqueue_delivery(courier: Courier, stream: str, envelope: bytes) -> None:
    """Enqueue an envelope. The courier ignores an id that the stream has or had lately."""
    who = Principal(PRINCIPAL, PRINCIPAL, frozenset({f"streams:{stream}:{ENQUEUE}"}))
    courier.enqueue(who, stream, msgspec.Raw(envelope))
