"""Authenticates and authorizes requests.

Every function takes a WSGI environ, so HTTP requests and WebSocket upgrades use the same code. An
operation is open to everybody only if its scope is OPEN.

On a loopback bind, the scopes in FREE_ON_LOOPBACK need no token for requests that are `is_local`
and that no page of another site sent. A wrong token is refused even then.
"""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

from appliance.kernel.auth import ANONYMOUS, OWNER, Principal, TokenBook, is_expired
from appliance.kernel.clock import Clock
from appliance.kernel.errors import Unauthenticated, refuse_scope
from appliance.kernel.metrics import counter
from appliance.kernel.pause_book import PauseBook
from appliance.kernel.route import READ_DOCS
from appliance.web.address import ip_of
from appliance.web.errors import CHALLENGE, HostRefused, OriginRefused, TokenInQuery
from appliance.web.settings import HttpSettings
from appliance.web.write_gate import WriteGate

Environ = Mapping[str, Any]

FREE_ON_LOOPBACK = frozenset({READ_DOCS, "metrics:read"})
"""Scopes that need no token on loopback. Subsystems add their scopes' `free`."""

UNIX = "agentlip.unix"
"""Key in the environ for requests over the socket file. No header can set it."""

FORWARDING = frozenset(
    "HTTP_" + name.upper().replace("-", "_")
    for name in (
        "CDN-Loop", "CF-Connecting-IP", "Client-IP", "Fastly-Client-IP", "Forwarded",
        "Forwarded-For",
        "True-Client-IP", "Via", "X-Client-IP", "X-Cluster-Client-IP", "X-Envoy-External-Address",
        "X-Forwarded", "X-Forwarded-By", "X-Forwarded-Client-Cert", "X-Forwarded-For",
        "X-Forwarded-Host", "X-Forwarded-Port", "X-Forwarded-Prefix", "X-Forwarded-Proto",
        "X-Forwarded-Protocol", "X-Forwarded-Scheme", "X-Forwarded-Server", "X-Forwarded-Ssl",
        "X-Forwarded-Uri", "X-Original-Forwarded-For", "X-Original-Host", "X-Original-URL",
        "X-Original-URI", "X-Proxy-User-IP", "X-ProxyUser-IP", "X-Real-IP", "X-Remote-IP",
        "X-Request-Start", "X-Rewrite-URL", "X-Scheme", "X-Url-Scheme", "Front-End-Https",
    )
)  # fmt: skip
"""Headers that proxies add. A request with such a header may come from another machine."""

LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
SUBPROTOCOL_PREFIX = "agentlip.token."
_OWN_PAGES = ("none", "same-origin")
_QUERY_NAMES = ("token", "access_token")
_PREFIX = re.compile(r"(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]{0,63}){1,8}/?")
_HOST = re.compile(r"(?:\[([^\]]*)\]|([^\[:][^:]*)?)(?::[0-9]*)?")

_plain = counter("http_plain_tokens_total", "Tokens received over plain HTTP from other machines")
_refused = counter("http_refused_total", "Requests refused by the guard, by reason", ("reason",))


class AccessTokenVerifier(Protocol):
    """Verifies an issuer's access tokens, which are accepted at one path. `challenge`: what a
    401 there contains for clients without a token."""

    path: str
    challenge: str

    def verify(self, token: str) -> Principal: ...


class Guard:
    """Checks requests. Used on the event loop only."""

    def __init__(
        self,
        book: TokenBook,
        settings: HttpSettings,
        clock: Clock,
        free: frozenset[str] = frozenset(),
        implied: Mapping[str, tuple[str, ...]] | None = None,
        writes: WriteGate | None = None,
        verifier: AccessTokenVerifier | None = None,
        pauses: PauseBook | None = None,
    ) -> None:
        """`free`: more scopes that need no token on a loopback bind. `implied`: scopes that a token
        has if one of its scopes begins with a prefix; the subsystem then checks further. `writes`
        is closed in maintenance mode. `verifier`: None without an issuer. `pauses` refuses what
        agents do."""
        self._verifier = verifier
        self._implied = implied or {}
        self.free = FREE_ON_LOOPBACK | free
        self.book = book
        self.writes = writes or WriteGate(clock)
        self.pauses = pauses or PauseBook()
        self._clock = clock
        self.loopback = is_loopback(settings.host)
        self._named_hosts = named = {host_name(name) for name in settings.allowed_hosts}
        self._hosts = named | LOOPBACK_NAMES if self.loopback or named else None
        self._proxies = [
            ipaddress.ip_network(text, strict=False) for text in settings.trusted_proxies
        ]

    def authenticate(self, environ: Environ, *, socket: bool = False) -> Principal:
        """Return the caller, or ANONYMOUS without a token. A wrong token raises Unauthenticated.

        With `socket` the token may also be in the query (`?token=`) or in a subprotocol
        `agentlip.token.<TOKEN>`, because browsers can't set headers on a WebSocket.
        """
        header = environ.get("HTTP_AUTHORIZATION")
        token = None if header is None or has_signature_scheme(environ) else bearer(header)
        if environ.get("QUERY_STRING"):
            in_query = query_token(environ["QUERY_STRING"])
            if in_query is not None and not socket:
                _refused.labels("token_in_query").inc()
                raise TokenInQuery
            token = token or in_query
        if socket and token is None:
            token = _subprotocol_token(environ.get("HTTP_SEC_WEBSOCKET_PROTOCOL", ""))
        page = token if socket else environ.get("HTTP_X_AGENTLIP_REQUEST")
        if page and (socket or token is None):
            session = self._find_session(environ, page)
            if session is not None:
                return session
        if token is None:
            return OWNER if self._is_owner(environ) else ANONYMOUS
        verifier = self._verifier_for(environ.get("PATH_INFO", ""))
        if verifier is not None and _is_access_token(token):
            return verifier.verify(token)
        principal = self._find(environ, token, session=False)
        if principal is None:
            raise Unauthenticated
        return principal

    def challenge(self, path: str) -> str:
        """Return the header `WWW-Authenticate` of a 401 at the path."""
        verifier = self._verifier_for(path)
        return CHALLENGE + ("" if verifier is None else f", {verifier.challenge}")

    def _verifier_for(self, path: str) -> AccessTokenVerifier | None:
        verifier = self._verifier
        return verifier if verifier is not None and path.rstrip("/") == verifier.path else None

    def _find_session(self, environ: Environ, page: str) -> Principal | None:
        """Return the caller by the cookie and our page's secret. An invalid cookie counts as
        none, so that a browser with an old cookie can still load the page to sign in.

        Browsers send the cookie to servers on this host's other ports too. The page's secret is in
        its storage, which belongs to one port, so neither such servers nor their pages have both.
        """
        cookie = session_cookie(environ)
        return self._find(environ, cookie + page, session=True) if cookie else None

    def _find(self, environ: Environ, secret: str, *, session: bool) -> Principal | None:
        """Return the caller by a token or by a session's secret; None if it is not valid."""
        if not _seems_local(environ) and self.scheme(environ) != "https":
            _plain.inc()
        principal = self.book.find(secret)
        if (
            principal is None
            or bool(principal.session) != session
            or is_expired(principal, self._clock.now_ms())
        ):
            _refused.labels("session" if session else "token").inc()
            return None
        return principal

    def allows(
        self, principal: Principal, scope: str | None, environ: Environ, also: Sequence[str] = ()
    ) -> bool:
        """Return whether the token has the scope or one in `also`, or the scope is free here."""
        if scope is None or principal.allows(scope) or any(map(principal.allows, also)):
            return True
        beginnings = tuple(text for name in (scope, *also) for text in self._implied.get(name, ()))
        return self.is_free(scope, environ) or any(
            granted.startswith(beginnings) for granted in principal.scopes
        )

    def admit(
        self, principal: Principal, scope: str | None, environ: Environ, also: Sequence[str] = ()
    ) -> None:
        """Raise Unauthenticated without a token, or Forbidden, unless it `allows` the caller."""
        if self.allows(principal, scope, environ, also):
            return
        if principal is ANONYMOUS:
            _refused.labels("no_token").inc()
            raise Unauthenticated
        _refused.labels("scope").inc()
        raise refuse_scope(scope)

    def is_free(self, scope: str, environ: Environ) -> bool:
        """Return whether the scope needs no token here. Raises OriginRefused for pages from
        other sites."""
        if not (scope in self.free and self.reveals(environ)):
            return False
        if environ.get("HTTP_SEC_FETCH_SITE", "none") not in _OWN_PAGES:
            _check_site(scope, environ)
        return True

    def is_local(self, environ: Environ) -> bool:
        """Return whether a program on this machine sent the request, and no proxy forwarded it.

        Everything that trusts this machine uses this function. A proxy that adds no header is
        recognized by `http.trusted_proxies`, by a public `Host`, or by HTTP/1.0, which nginx before
        1.29.7 sends by default.
        """
        return _seems_local(environ) and not self._is_proxy(environ.get("REMOTE_ADDR", ""))

    def reveals(self, environ: Environ) -> bool:
        """Return whether a caller without a token may see what needs no token on a loopback
        bind."""
        return self.loopback and self.is_local(environ)

    def check_host(self, environ: Environ) -> None:
        """Raise HostRefused for unknown host names, as DNS rebinding would send. Beyond
        loopback, addresses are accepted, because Prometheus sends a pod's address: they need no
        name."""
        if self._hosts is None:
            return
        host = host_name(environ.get("HTTP_HOST", ""))
        if host not in self._hosts and (self.loopback or ip_of(host) is None):
            _refused.labels("host").inc()
            raise HostRefused

    def check_origin(self, environ: Environ) -> None:
        """Raise OriginRefused for a browser's request from a page with another origin.

        For mutations and sockets. Requests without Origin are not from browsers. The page's host
        and port must be the request's, or its host one of `allowed_hosts`.
        """
        origin = environ.get("HTTP_ORIGIN")
        if origin is None:
            return
        try:
            page = urlsplit(origin)
            authority = page.netloc.lower()
            if page.scheme in ("http", "https") and authority and "@" not in authority:
                port = {"http": ":80", "https": ":443"}[page.scheme]
                ours = environ.get("HTTP_HOST", "").lower()
                if authority.removesuffix(port) == ours.removesuffix(port):
                    return
                if (page.hostname or "") in self._named_hosts:
                    return
        except ValueError:
            pass
        _refused.labels("origin").inc()
        raise OriginRefused

    def address(self, environ: Environ) -> str:
        """Return the client's address: the peer's, or the one that a trusted proxy forwarded."""
        peer: str = environ.get("REMOTE_ADDR", "")
        if not self._proxies or not self._is_proxy(peer):
            return peer
        for hop in reversed(environ.get("HTTP_X_FORWARDED_FOR", "").split(",")):
            hop = hop.strip().strip("[]")
            if ip_of(hop) is None:
                break
            peer = hop
            if not self._is_proxy(hop):
                break
        return peer

    def scheme(self, environ: Environ) -> str:
        """Return `https` if a trusted proxy received the request over https."""
        if self._proxies and self._is_proxy(environ.get("REMOTE_ADDR", "")):
            scheme = environ.get("HTTP_X_FORWARDED_PROTO", "").rpartition(",")[2].strip().lower()
            if scheme in ("http", "https"):
                return str(scheme)
        return str(environ.get("wsgi.url_scheme", "http"))

    def prefix(self, environ: Environ) -> str:
        """Return the path below which a trusted proxy serves the appliance, such as `/agentlip`;
        empty without one, and for a header that is not a plain path."""
        if self._proxies and self._is_proxy(environ.get("REMOTE_ADDR", "")):
            prefix = environ.get("HTTP_X_FORWARDED_PREFIX", "")
            if _PREFIX.fullmatch(prefix):
                return str(prefix).removesuffix("/")
        return ""

    def _is_owner(self, environ: Environ) -> bool:
        """Return whether the request came over the socket file, which only this user can open."""
        return UNIX in environ and self.is_local(environ)

    def _is_proxy(self, address: str) -> bool:
        ip = ip_of(address)
        return ip is not None and any(ip in network for network in self._proxies)


def _seems_local(environ: Environ) -> bool:
    """Return `is_local`, but for programs on the same machine as a trusted proxy."""
    if not FORWARDING.isdisjoint(environ) or environ.get("SERVER_PROTOCOL") == "HTTP/1.0":
        return False
    if host_name(environ.get("HTTP_HOST", "")) not in LOOPBACK_NAMES:
        return False
    return UNIX in environ or is_loopback(environ.get("REMOTE_ADDR", ""))


def _check_site(scope: str, environ: Environ) -> None:
    """Raise OriginRefused for a browser's read on behalf of a page from another site or port.

    Following a link to the start page is allowed. Sockets' Origin is checked elsewhere.
    """
    mode = environ.get("HTTP_SEC_FETCH_MODE")
    followed = mode == "navigate" and environ.get("HTTP_SEC_FETCH_DEST") == "document"
    if mode == "websocket" or (followed and scope == READ_DOCS):
        return
    _refused.labels("site").inc()
    raise OriginRefused(
        "pages from other sites or ports need a token to read this",
        hint="send 'Authorization: Bearer TOKEN', or open the URL directly in the browser",
    )


def _is_access_token(token: str) -> bool:
    """Return whether the token looks like a JWT. The appliance's own tokens have no dots."""
    return token.startswith("eyJ") and token.count(".") == 2


def has_signature_scheme(environ: Environ) -> bool:
    """Return whether the Authorization header contains a signature, which the route verifies."""
    return str(environ.get("HTTP_AUTHORIZATION", "")).startswith("Signature ")


def bearer(header: str) -> str:
    """Return the token in an Authorization header. Raises Unauthenticated for another scheme."""
    if header[:7] == "Bearer ":
        return header[7:].strip()
    scheme, _, token = header.strip().partition(" ")
    if scheme.lower() != "bearer":
        _refused.labels("token").inc()
        raise Unauthenticated("only 'Authorization: Bearer TOKEN' is supported")
    return token.strip()


def cookie_name(environ: Environ) -> str:
    """Return the cookie's name, with the port: browsers send a cookie to all ports on a host,
    and each appliance on a machine has its own."""
    port = environ.get("HTTP_HOST", "").rpartition(":")[2]
    return f"agentlip_session_{port}" if port.isascii() and port.isdigit() else "agentlip_session"


def session_cookie(environ: Environ) -> str | None:
    """Return the session secret that the request brings, valid or not."""
    header = environ.get("HTTP_COOKIE")
    if header is None:
        return None
    wanted = cookie_name(environ)
    for part in header.split(";"):
        name, _, value = part.strip().partition("=")
        if name == wanted:
            return str(value)
    return None


def host_name(header: str) -> str:
    """Return `Host` without its port, lowercase, IPv6 without brackets; empty when malformed."""
    match = _HOST.fullmatch(header.strip().lower())
    return (match[1] or match[2] or "").removesuffix(".") if match else ""


def is_loopback(address: str) -> bool:
    if address == "127.0.0.1":
        return True
    ip = ip_of(address)
    return address == "localhost" if ip is None else ip.is_loopback


def query_token(query: str) -> str | None:
    """Return the token in a query string. Only the hub's socket allows it there."""
    if not any(name in query for name in _QUERY_NAMES):
        return None
    for name, value in parse_qsl(query, keep_blank_values=True, max_num_fields=None):
        if name in _QUERY_NAMES:
            return value
    return None


def _subprotocol_token(header: str) -> str | None:
    for name in header.split(","):
        if name.strip().startswith(SUBPROTOCOL_PREFIX):
            return name.strip()[len(SUBPROTOCOL_PREFIX) :]
    return None
