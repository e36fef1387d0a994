"""Fetches and keeps the issuer's public keys.

Requests never fetch. One with an unknown key wakes the loop that does, and waits at most
WAIT_SECONDS; a token with an invented key id causes at most one fetch each REFRESH_SECONDS_MIN.
"""

from base64 import b64encode
from collections.abc import Mapping
from contextlib import closing
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

import jwt
import msgspec

from appliance.kernel.clock import Clock
from appliance.kernel.http_client import HttpClient
from appliance.kernel.http_limits import HttpLimits
from appliance.kernel.unreachable import Unreachable
from appliance.kernel.wakeup import Wakeup
from appliance.oidc.settings import Url
from appliance.oidc.wire import Discovery, IssuerUnreachable, KeySet

CONFIGURATION = "/.well-known/openid-configuration"
LIMITS = HttpLimits(connect_seconds=5.0, reply_seconds=5.0, reply_bytes_max=256 * 1024)
KEYS_MAX = 20
RSA_BITS = range(2048, 8193)  # a verification with 8,192 bits takes 0.5 ms
REFRESH_SECONDS_MIN = 30.0
KEPT_SECONDS_MAX = 86_400.0  # without the issuer; then a withdrawn key may be in use
WAIT_SECONDS = 3.0

ALGORITHMS: dict[str, tuple[str, ...]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""Permitted algorithms by key type. Symmetric keys and `none` are missing."""

T = TypeVar("T")


class IssuerKey(msgspec.Struct, frozen=True):
    """A public key, and the algorithms that it may verify."""

    key: Any
    algorithms: tuple[str, ...]


class IssuerKeys:
    """The issuer's keys, by id. `wanted` wakes the loop that calls `refresh`."""

    def __init__(self, issuer: str, clock: Clock) -> None:
        self.wanted = Wakeup()
        self._issuer = issuer
        self._clock = clock
        self._keys: Mapping[str, IssuerKey] = {}
        self._configuration: Discovery | None = None
        self._fetched = self._attempted = float("-inf")
        self._attempt = Wakeup()

    def find(self, key_id: str | None) -> IssuerKey | None:
        """Return the key; without an id the only one. None if the issuer has no such key. Raises
        IssuerUnreachable if the keys are unknown."""
        key = self._look_up(key_id)
        if key is None and self._clock.monotonic() - self._attempted > REFRESH_SECONDS_MIN:
            attempt = self._attempt
            self.wanted.set()
            attempt.wait(WAIT_SECONDS)
            key = self._look_up(key_id)
        if self._clock.monotonic() - self._fetched > KEPT_SECONDS_MAX:
            raise IssuerUnreachable(retry_after=REFRESH_SECONDS_MIN)
        return key

    def configuration(self) -> Discovery:
        """Return the issuer's configuration. Raises IssuerUnreachable if it is unknown."""
        if self._configuration is None:
            self.find("")  # waits for a fetch, unless one was lately
        if self._configuration is None:
            raise IssuerUnreachable(retry_after=REFRESH_SECONDS_MIN)
        return self._configuration

    def refresh(self) -> None:
        """Fetch the keys. Raises Unreachable; the known keys then stay."""
        try:
            self._configuration, self._keys = fetch_keys(self._issuer)
            self._fetched = self._clock.monotonic()
        finally:
            self._attempted = self._clock.monotonic()
            self._attempt.set()
            self._attempt = Wakeup()

    def _look_up(self, key_id: str | None) -> IssuerKey | None:
        if key_id is not None:
            return self._keys.get(key_id)
        return next(iter(self._keys.values())) if len(self._keys) == 1 else None


def fetch_keys(issuer: str) -> tuple[Discovery, dict[str, IssuerKey]]:
    """Return the issuer's configuration, and its usable keys by id. Raises Unreachable."""
    discovery = fetch(issuer.rstrip("/") + CONFIGURATION, Discovery)
    if discovery.issuer != issuer:
        raise Unreachable("the issuer's configuration names another issuer")
    for address in (
        discovery.jwks_uri, discovery.authorization_endpoint, discovery.token_endpoint
    ):  # fmt: skip
        try:
            msgspec.convert(address.partition("?")[0], Url)
        except msgspec.ValidationError:
            raise Unreachable("an address of the issuer is not https") from None
    keys = (_read_key(data) for data in fetch(discovery.jwks_uri, KeySet).keys[:KEYS_MAX])
    return discovery, {key_id: key for key_id, key in keys if key is not None}


def fetch(
    url: str, kind: type[T], form: Mapping[str, str] | None = None, credentials: str = ""
) -> T:
    """Get a document, or post a form. Raises Unreachable. `credentials`: for HTTP Basic."""
    parts = urlsplit(url)
    headers = {"accept": "application/json"}
    if form is not None:
        headers["content-type"] = "application/x-www-form-urlencoded"
    if credentials:
        headers["authorization"] = "Basic " + b64encode(credentials.encode()).decode()
    with closing(HttpClient(url, LIMITS, "the issuer")) as client:
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        method, body = ("GET", b"") if form is None else ("POST", urlencode(form).encode())
        reply = client.request(method, path, lambda: headers, body)
    if reply.status != 200:
        raise Unreachable(f"the issuer responded with {reply.status}")
    try:
        return msgspec.json.decode(reply.body, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise Unreachable("the issuer's response has another format") from None


def _read_key(data: dict[str, Any]) -> tuple[str, IssuerKey | None]:
    """Return a JWK's id and key; None for a key that can't verify signatures."""
    key_id, kind = str(data.get("kid", "")), str(data.get("kty"))
    if kind not in ALGORITHMS or data.get("use", "sig") != "sig" or "d" in data:
        return key_id, None
    try:
        key = jwt.PyJWK(data).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return key_id, None
    if kind == "RSA" and key.key_size not in RSA_BITS:
        return key_id, None
    named = data.get("alg")
    allowed = ALGORITHMS[kind]
    return key_id, IssuerKey(key, tuple(a for a in allowed if named in (None, a)))
