"""Signs people in with the issuer: OpenID Connect's authorization code flow, with PKCE.

The browser goes to the issuer and comes back to `/ui/` with a code. The page compares `state` with
the one that it has kept, so nobody can sign somebody else's browser in. The code is exchanged from
here, with the verifier that never left this process. Each person has a token without a usable
secret; the sessions have that token's rights, and end with it.
"""

import hashlib
import secrets
from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Mapping
from hmac import compare_digest
from typing import Any
from urllib.parse import quote_plus, urlencode

import msgspec

from appliance.kernel.auth import ISSUED, Principal, principal_of
from appliance.kernel.clock import Clock
from appliance.kernel.config import secret
from appliance.kernel.log import Log
from appliance.kernel.unreachable import Unreachable
from appliance.oidc import metrics, wire
from appliance.oidc.keys import IssuerKeys, fetch
from appliance.oidc.service import is_name, subject_id, values_of, verify_claims
from appliance.oidc.settings import OidcSettings
from appliance.web.sign_in import (
    CompleteSignIn,
    NotInvited,
    SignInBegun,
    SignInRefused,
    TooManySignIns,
)

PENDING_MAX = 1000  # people between leaving and coming back; with more, the oldest begin again
PENDING_SECONDS = 600.0
EXCHANGES_MAX = 8  # at once; each is a request to the issuer, ten seconds at most
PAGE = "/ui/"


class Pending(msgspec.Struct, frozen=True):
    """A person on the way to the issuer and back."""

    verifier: str
    nonce: str
    until: float


class SignIn:
    """The flow's two steps. One per process."""

    def __init__(self, settings: OidcSettings, keys: IssuerKeys, clock: Clock, log: Log) -> None:
        self._settings, self._keys, self._clock, self._log = settings, keys, clock, log
        self.issuer = settings.issuer
        self._pending: OrderedDict[str, Pending] = OrderedDict()
        self._exchanges = 0
        self._grants = {grant.value.lower(): grant.scopes for grant in settings.people}
        self._redirect_uri = settings.url.rstrip("/") + PAGE

    def begin(self) -> SignInBegun:
        """Return where the browser goes. Raises IssuerUnreachable."""
        address = self._keys.configuration().authorization_endpoint
        state, verifier, nonce = (secrets.token_urlsafe(32) for _ in range(3))
        until = self._clock.monotonic() + PENDING_SECONDS
        self._pending[state] = Pending(verifier, nonce, until)
        if len(self._pending) > PENDING_MAX:
            self._pending.popitem(last=False)
        challenge = urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=")
        query = urlencode({
            "response_type": "code", "client_id": self._settings.client_id,
            "redirect_uri": self._redirect_uri, "scope": self._settings.sign_in_scope,
            "state": state, "nonce": nonce, "code_challenge": challenge.decode(),
            "code_challenge_method": "S256",
        })  # fmt: skip
        separator = "&" if "?" in address else "?"
        return SignInBegun(f"{address}{separator}{query}", state)

    def is_pending(self, command: CompleteSignIn) -> bool:
        """Return whether this appliance has sent somebody to the issuer with this state."""
        pending = self._pending.get(command.state)
        return pending is not None and self._clock.monotonic() <= pending.until

    def complete(self, command: CompleteSignIn) -> Principal:
        """Return who signs in, with the scopes. Raises SignInRefused, NotInvited, TooManySignIns
        and IssuerUnreachable."""
        try:
            person = self._person(self._claims(command))
        except SignInRefused as error:
            self._log.warning("a sign-in was refused", reason=error.details.get("reason"))
            metrics.sign_ins.labels("refused").inc()
            raise
        except NotInvited:
            metrics.sign_ins.labels("not_invited").inc()
            raise
        metrics.sign_ins.labels("done").inc()
        return person

    def _claims(self, command: CompleteSignIn) -> dict[str, Any]:
        """Exchange the code, and return the ID token's verified claims."""
        is_pending = self.is_pending(command)
        pending = self._pending.pop(command.state, None)
        if pending is None or not is_pending:
            raise SignInRefused(details={"reason": "state"})
        try:
            token = self._exchange(command.code, pending.verifier)
            claims = verify_claims(
                token, self._keys, self._settings.issuer, [self._settings.client_id]
            )
        except (Unreachable, wire.AccessTokenRefused) as error:
            details = getattr(error, "details", {"reason": str(error)})
            raise SignInRefused(details=details) from None
        if not compare_digest(str(claims.get("nonce", "")), pending.nonce):
            raise SignInRefused(details={"reason": "nonce"})
        if claims.get("azp", self._settings.client_id) != self._settings.client_id:
            raise SignInRefused(details={"reason": "azp"})
        return claims

    def _exchange(self, code: str, verifier: str) -> str:
        """Return the ID token for a code. Raises Unreachable, also for a refused code."""
        settings = self._settings
        if self._exchanges >= EXCHANGES_MAX:
            raise TooManySignIns(retry_after=60.0)
        form = {
            "grant_type": "authorization_code", "code": code, "code_verifier": verifier,
            "redirect_uri": self._redirect_uri, "client_id": settings.client_id,
        }  # fmt: skip
        file = settings.client_secret_file
        pair = () if file is None else (settings.client_id, secret(file, "oidc.client_secret_file"))
        credentials = ":".join(map(quote_plus, pair))  # RFC 6749, section 2.3.1
        self._exchanges += 1
        try:
            address = self._keys.configuration().token_endpoint
            return fetch(address, wire.IssuedTokens, form, credentials).id_token
        finally:
            self._exchanges -= 1

    def _person(self, claims: Mapping[str, Any]) -> Principal:
        """Return who signs in, with their scopes. Raises NotInvited."""
        settings = self._settings
        name = claims.get(settings.person_claim)
        if not is_name(name):
            raise SignInRefused(details={"reason": f"no claim {settings.person_claim}"})
        is_address = "email" in (settings.person_claim, settings.people_claim)
        if is_address and claims.get("email_verified") is False:
            raise SignInRefused(details={"reason": "the address is not verified"})
        scopes = sorted(
            {
                scope
                for value in values_of(claims.get(settings.people_claim))
                for scope in self._scopes_for(value.lower())
            }
        )
        if not scopes:
            raise NotInvited(details={"name": str(name)})
        return principal_of(subject_id(settings.issuer, claims), str(name), scopes, ISSUED)

    def _scopes_for(self, value: str) -> tuple[str, ...]:
        """Return a value's scopes: its own, and those for its address's domain."""
        _, at, domain = value.rpartition("@")
        return self._grants.get(value, ()) + (self._grants.get(at + domain, ()) if at else ())
