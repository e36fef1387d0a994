"""Signs a member's requests to one broker, as described in docs/reference/broker.md.

The broker's id, which is part of the signed text, is a setting or is learned from the error
WRONG_BROKER, the broker's answer to every request with another id.
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
    """Signs for one broker. `broker_id` is empty until it is known. An id from the settings
    stays."""

    def __init__(self, clock: Clock, broker_id: str | None = None) -> None:
        self._clock = clock
        self._is_set = broker_id is not None
        self.broker_id = broker_id or ""

    def headers(
        self, signer: Signer, method: str, path: str, query: str, body: bytes
    ) -> dict[str, str]:
        """Return one attempt's headers, with a new nonce. `path` has no proxy prefix."""
        stamp, nonce = str(self._clock.now_ms()), secrets.token_hex(16)
        text = request_text(
            method, self.broker_id, unquote_to_bytes(path), query, stamp, nonce, body
        )
        return {
            "X-Agentlip-Member": signer.public_hex,
            "X-Agentlip-Broker": self.broker_id,
            "X-Agentlip-Timestamp": stamp,
            "X-Agentlip-Nonce": nonce,
            "X-Agentlip-Signature": signer.sign(text).hex(),
        }

    def learn(self, status: int, body: Any) -> bool:
        """Learn the broker's id from an error reply. True: sign and send the request again."""
        if self._is_set or status != UNAUTHORIZED or not isinstance(body, dict):
            return False
        details = body.get("details")
        broker_id = details.get("broker_id") if isinstance(details, dict) else None
        if body.get("code") != "WRONG_BROKER" or not isinstance(broker_id, str):
            return False
        if not _BROKER_ID.fullmatch(broker_id) or broker_id == self.broker_id:
            return False
        self.broker_id = broker_id
        return True

    def forget(self) -> None:
        """Learn the id again before the next request with a body: a reply that arrives while a
        large body is being sent cannot always be read."""
        if not self._is_set:
            self.broker_id = ""
