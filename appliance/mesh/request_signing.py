"""Signs a member's requests to one broker, as version 2 of docs/broker.md.

The broker's id is part of what is signed. It is a setting, or else learned from the broker's
refusal WRONG_BROKER, which every request without the right id gets.
"""

import re
import secrets
from typing import Any
from urllib.parse import unquote_to_bytes

from appliance.kernel.clock import Clock
from appliance.mesh.signing import Signer, request_text

PROBE = "/broker/v1/meshes"
UNAUTHORIZED = 401
_BROKER_ID = re.compile("[A-Za-z0-9]{1,64}")


class RequestSigner:
    """`broker_id` is empty until it is known. One of the settings is never replaced."""

    def __init__(self, clock: Clock, broker_id: str | None = None) -> None:
        self._clock = clock
        self._is_set = broker_id is not None
        self.broker_id = broker_id or ""

    def headers(
        self, signer: Signer, method: str, path: str, query: str, body: bytes
    ) -> dict[str, str]:
        """Of one attempt: each has a nonce of its own. `path` is without a proxy's prefix."""
        stamp, nonce = str(self._clock.now_ms()), secrets.token_hex(16)
        text = request_text(
            method, self.broker_id, unquote_to_bytes(path), query, stamp, nonce, body
        )
        return {
            "X-Agentlip-Member": signer.public_hex,
            "X-Agentlip-Broker": self.broker_id,
            "X-Agentlip-Timestamp": stamp,
            "X-Agentlip-Nonce": nonce,
            "X-Agentlip-Signature-Version": "2",
            "X-Agentlip-Signature": signer.sign(text).hex(),
        }

    def learn(self, status: int, body: Any) -> bool:
        """Whether this refusal names an id that was not known before: then sign again."""
        if self._is_set or status != UNAUTHORIZED or not isinstance(body, dict):
            return False
        details = body.get("details")
        told = details.get("broker_id") if isinstance(details, dict) else None
        if body.get("code") != "WRONG_BROKER" or not isinstance(told, str):
            return False
        if not _BROKER_ID.fullmatch(told) or told == self.broker_id:
            return False
        self.broker_id = told
        return True

    def forget(self) -> None:
        """Learn the id again before the next request with a body: a refusal that comes while a
        large body is being sent can't always be read."""
        if not self._is_set:
            self.broker_id = ""
