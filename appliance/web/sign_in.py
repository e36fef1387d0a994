"""Defines people's sign-in with an issuer, between the issuer's part and the sessions."""

from typing import Annotated, Protocol

from msgspec import Meta, Struct

from appliance.kernel.auth import Principal
from appliance.kernel.errors import Forbidden, Missing, Unauthenticated, Unavailable


class NoSignIn(Missing):
    code = "NO_SIGN_IN"
    default_message = "no issuer signs people in here"
    default_hint = "sign in by a link: agentlip ui"


class SignInRefused(Unauthenticated):
    code = "SIGN_IN_REFUSED"
    default_message = "the issuer did not sign you in"
    default_hint = "sign in again; the operator finds the reason in the log"


class NotInvited(Forbidden):
    code = "NOT_INVITED"
    default_message = "your account may not sign in here"
    default_hint = "ask the operator for a row in [[oidc.people]], or for a link: agentlip ui"


class TooManySignIns(Unavailable):
    code = "TOO_MANY_SIGN_INS"
    default_message = "too many people sign in now"
    default_hint = "try again in a minute"


class SignInOffer(Struct, frozen=True):
    """The issuer that signs people in; null if only links and tokens do."""

    issuer: str | None


class SignInBegun(Struct, frozen=True):
    """Where the browser goes. The page keeps `state`, and compares it when the browser is back."""

    location: str
    state: str


class CompleteSignIn(Struct, frozen=True):
    """The parameters with which the issuer sent the browser back."""

    state: Annotated[str, Meta(min_length=1, max_length=200)]
    code: Annotated[str, Meta(min_length=1, max_length=4000)]


class PeopleIssuer(Protocol):
    """Signs people in, in two steps."""

    issuer: str

    def begin(self) -> SignInBegun: ...

    def is_pending(self, command: CompleteSignIn) -> bool:
        """Return whether this appliance has sent somebody to the issuer with this state."""
        ...

    def complete(self, command: CompleteSignIn) -> Principal:
        """Return who signs in, with the scopes. Raises SignInRefused, NotInvited and
        TooManySignIns."""
        ...
