"""Delivers webhooks of the courier's triggers through the outbox."""

import hashlib
from contextlib import suppress
from typing import Any

import msgspec

from appliance.outbox import wire
from appliance.outbox.service import Outbox
from appliance.outbox.webhook import WEBHOOK

PRINCIPAL = "appliance:courier"  # no token can have this name


class TriggerWebhooks:
    """Accepts webhooks of triggers, unsigned. Raises the errors of the outbox."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def __call__(self, url: str, key: str, payload: dict[str, Any]) -> None:
        body = msgspec.json.encode(payload, order="deterministic")
        digest = hashlib.sha256(b"\0".join((key.encode(), url.encode(), body))).hexdigest()
        send = wire.Send(
            to=url, message=body.decode(), client_message_id=f"cw_{digest}", target=WEBHOOK
        )
        with suppress(wire.IdReused):  # it was accepted before
            self._outbox.send(send, internal=True, principal=PRINCIPAL)
