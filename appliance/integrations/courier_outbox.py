"""Delivers courier trigger webhooks through the outbox."""

import hashlib
from contextlib import suppress
from typing import Any

import msgspec

from appliance.outbox import wire
from appliance.outbox.service import Outbox
from appliance.outbox.webhook import WEBHOOK

PRINCIPAL = "appliance:courier"  # no token can have this name


def send_trigger_webhook(outbox: Outbox, url: str, key: str, payload: dict[str, Any]) -> None:
    """Queue an unsigned trigger webhook in the outbox. Raises the outbox errors."""
    body = msgspec.json.encode(payload, order="deterministic")
    digest = hashlib.sha256(b"\0".join((key.encode(), url.encode(), body))).hexdigest()
    send = wire.Send(
        to=url, message=body.decode(), client_message_id=f"cw_{digest}", target=WEBHOOK
    )
    with suppress(wire.IdReused):  # accepted before
        outbox.send(send, internal=True, principal=PRINCIPAL)
