"""Requests of an admin to a relay, signed with its admin key."""

import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import msgspec

from appliance.kernel.clock import Clock
from appliance.kernel.config import secret
from appliance.kernel.errors import Invalid, Unavailable
from appliance.network.keys import AgentKey
from appliance.network.request import request_headers

TIMEOUT_SECONDS = 10.0
REPLY_BYTES_MAX = 8 * 1024 * 1024


class RelayUnreachable(Unavailable):
    code = "RELAY_UNREACHABLE"
    default_message = "the relay does not respond"
    default_hint = "check the URL: curl URL/health"


class RelayRefused(Invalid):
    """`details.status` and `details.code` are those of the relay."""

    code = "RELAY_REFUSED"
    default_message = "the relay refused the request"
    default_hint = "details.code is the reason: docs/reference/errors.md explains the codes"


class RelayAdminClient:
    def __init__(
        self, url: str, clock: Clock, name: str = "", key_file: Path | None = None
    ) -> None:
        """Without a key, only what needs no signature. Raises BadKey and BadSettings."""
        self._url = url.rstrip("/")
        self._clock = clock
        self.name = name
        self.key = None if key_file is None else AgentKey.of(secret(str(key_file)))

    def request(self, method: str, path: str, body: Any = None) -> Any:
        raw = b"" if body is None else msgspec.json.encode(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        if self.key is not None:
            now_ms = self._clock.now_ms()
            headers |= request_headers(self.key, self.name, method, path, raw, now_ms)
        try:
            request = urllib.request.Request(self._url + path, raw or None, headers, method=method)
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as reply:
                return _decode(reply.read(REPLY_BYTES_MAX))
        except urllib.error.HTTPError as error:
            refused = _decode(error.read(REPLY_BYTES_MAX))
            fields = refused if isinstance(refused, dict) else {}
            raise RelayRefused(
                str(fields.get("error") or f"the relay responded with {error.code}"),
                details={"status": error.code, "code": fields.get("code")},
                hint=fields.get("hint"),
            ) from None
        except (OSError, ValueError):
            raise RelayUnreachable(details={"url": self._url}) from None


def _decode(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None
