"""The guard on bare environs: tokens, scopes, hosts, origins, proxies."""

from contextlib import nullcontext

import pytest

from appliance.kernel.auth import ANONYMOUS, Principal
from appliance.kernel.errors import Unauthenticated
from appliance.web.errors import HostRefused, OriginRefused, TokenInQuery
from appliance.web.guard import UNIX
from appliance.web.settings import HttpSettings
from tests.support.http import (
    NARROW_TOKEN,
    TOKEN,
    environ_of,
    guard_of,
)

NETWORK = HttpSettings(host="0.0.0.0")
PROXIED = HttpSettings(host="0.0.0.0", trusted_proxies=("10.0.0.0/8", "::1"))


@pytest.mark.parametrize("header", [f"Bearer {TOKEN}", f"bearer  {TOKEN} ", f"BEARER {TOKEN}"])
def test_token_is_found(header: str) -> None:
    principal = guard_of().authenticate(environ_of(HTTP_AUTHORIZATION=header))
    assert principal.id == "workspace"


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        "Basic abc",
        TOKEN,
        f"Token {TOKEN}",
        "Bearer \xe9\xff",
    ],
)
def test_wrong_token_is_refused_even_on_loopback(header: str) -> None:
    with pytest.raises(Unauthenticated):
        guard_of().authenticate(environ_of(HTTP_AUTHORIZATION=header))


@pytest.mark.parametrize("query", [f"token={TOKEN}", "a=1&access_token=x", "token="])
def test_token_in_query_is_refused_for_http(query: str) -> None:
    with pytest.raises(TokenInQuery):
        guard_of().authenticate(environ_of(QUERY_STRING=query))


@pytest.mark.parametrize("query", ["tokens=1", "q=token", "after=1"])
def test_other_query_parameters_are_not_tokens(query: str) -> None:
    assert guard_of().authenticate(environ_of(QUERY_STRING=query)) is ANONYMOUS


PROXIES = (
    "Via", "Forwarded", "X-Real-IP", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto",
    "X-Forwarded-Server", "X-Client-IP", "True-Client-IP", "CF-Connecting-IP", "X-Original-URL",
)  # fmt: skip


@pytest.mark.parametrize("name", PROXIES)
def test_forwarded_requests_are_not_local(name: str) -> None:
    guard = guard_of()
    environ = environ_of(**{f"HTTP_{name.upper().replace('-', '_')}": ""})
    assert not guard.is_local(environ)
    for scope in ("hub:read", "metrics:read", "docs:read"):
        with pytest.raises(Unauthenticated):
            guard.admit(ANONYMOUS, scope, environ)
    environ[UNIX] = "yes"
    assert guard.authenticate(environ) is ANONYMOUS


@pytest.mark.parametrize(
    ("site", "mode", "dest", "scope", "good"),
    [
        ("none", "navigate", "document", "hub:read", True),
        ("same-origin", "cors", "empty", "hub:read", True),
        ("same-site", "cors", "empty", "hub:read", False),
        ("cross-site", "no-cors", "image", "hub:read", False),
        ("cross-site", "navigate", "document", "hub:read", False),
        ("anything", "cors", "empty", "hub:read", False),
        ("cross-site", "navigate", "document", "docs:read", True),
        ("cross-site", "navigate", "iframe", "docs:read", False),
        ("cross-site", "no-cors", "document", "docs:read", False),
        ("cross-site", "websocket", "websocket", "hub:read", True),
    ],
)
def test_page_of_another_site_reads_nothing_without_a_token(
    site: str, mode: str, dest: str, scope: str, good: bool
) -> None:
    guard = guard_of()
    browser = {
        "HTTP_SEC_FETCH_SITE": site, "HTTP_SEC_FETCH_MODE": mode, "HTTP_SEC_FETCH_DEST": dest,
    }  # fmt: skip
    with nullcontext() if good else pytest.raises(OriginRefused):
        guard.admit(ANONYMOUS, scope, environ_of(**browser))
    token = environ_of(HTTP_AUTHORIZATION=f"Bearer {TOKEN}", **browser)
    guard.admit(guard.authenticate(token), scope, token)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "127.0.0.2", "", None],
)
def test_foreign_host_is_refused_on_loopback(host: str | None) -> None:
    with pytest.raises(HostRefused):
        guard_of().check_host(environ_of(host=host))


def test_named_hosts_are_accepted_and_others_refused() -> None:
    guard = guard_of(HttpSettings(host="0.0.0.0", allowed_hosts=("Hub.Example",)))
    # An address can't be rebound, and Prometheus scrapes pods by theirs.
    for host in ("hub.example", "hub.example:443", "localhost:8080", "10.1.2.3:7464", "[fd00::1]"):
        guard.check_host(environ_of(host=host))
    with pytest.raises(HostRefused):
        guard.check_host(environ_of(host="other.example"))


@pytest.mark.parametrize(
    ("origin", "host", "good"),
    [
        (None, "localhost:8080", True),
        ("http://localhost:8080", "localhost:8080", True),
        ("HTTP://LOCALHOST:8080", "localhost:8080", True),
        ("http://localhost", "localhost:80", True),
        ("https://hub.example", "hub.example", True),
        ("https://hub.example", "inner:8080", True),
        ("http://localhost:3000", "localhost:8080", False),
        ("https://evil.example", "localhost:8080", False),
        ("http://localhost:8080@evil.example", "localhost:8080", False),
        ("http://evil@localhost:8080", "localhost:8080", False),
        ("https://x@hub.example", "localhost:8080", False),
        ("null", "localhost:8080", False),
        ("", "localhost:8080", False),
        ("", "", False),
        ("file://", "localhost:8080", False),
        ("http://[", "localhost:8080", False),
        ("chrome-extension://abc", "localhost:8080", False),
    ],
)
def test_foreign_origin_is_refused(origin: str | None, host: str, good: bool) -> None:
    guard = guard_of(HttpSettings(allowed_hosts=("hub.example",)))
    environ = environ_of(host=host, **({} if origin is None else {"HTTP_ORIGIN": origin}))
    with nullcontext() if good else pytest.raises(OriginRefused):
        guard.check_origin(environ)


@pytest.mark.parametrize(
    ("settings", "peer", "forwarded", "address"),
    [
        (NETWORK, "10.0.0.1", "203.0.113.7", "10.0.0.1"),
        (PROXIED, "10.0.0.1", "203.0.113.7", "203.0.113.7"),
        (PROXIED, "10.0.0.1", "198.51.100.1, 203.0.113.7", "203.0.113.7"),
        (PROXIED, "10.0.0.1", "203.0.113.7, 10.0.0.2", "203.0.113.7"),
        (PROXIED, "10.0.0.1", "garbage", "10.0.0.1"),
        (PROXIED, "10.0.0.1", "203.0.113.7, garbage", "10.0.0.1"),
        (PROXIED, "10.0.0.1", "", "10.0.0.1"),
        (PROXIED, "::1", "[2001:db8::1]", "2001:db8::1"),
        (PROXIED, "192.0.2.1", "203.0.113.7", "192.0.2.1"),
    ],
)
def test_forwarded_address_is_used_only_from_trusted_proxies(
    settings: HttpSettings, peer: str, forwarded: str, address: str
) -> None:
    environ = environ_of(address=peer, HTTP_X_FORWARDED_FOR=forwarded)
    assert guard_of(settings).address(environ) == address


def test_forwarded_scheme_is_used_only_from_trusted_proxies() -> None:
    headers = {"HTTP_X_FORWARDED_PROTO": "https"}
    guard = guard_of(PROXIED)
    assert guard.scheme(environ_of(address="10.0.0.1", **headers)) == "https"
    assert guard.scheme(environ_of(address="192.0.2.1", **headers)) == "http"
    assert guard.scheme(environ_of(address="10.0.0.1", HTTP_X_FORWARDED_PROTO="ftp")) == "http"


PAGE = {"HTTP_X_AGENTLIP_REQUEST": "p" * 64}
OFFERED = {"HTTP_SEC_WEBSOCKET_PROTOCOL": f"agentlip.v1, agentlip.token.{'p' * 64}"}


@pytest.mark.parametrize(
    ("cookie", "more", "socket", "good"),
    [
        ("agentlip_session_8080=" + "c" * 64, PAGE, False, True),
        ("agentlip_session_8080=" + "c" * 64, OFFERED, True, True),
        ("agentlip_session_8080=" + "c" * 64, {}, False, False),
        ("agentlip_session_8080=" + "c" * 64, {}, True, False),
        ("agentlip_session_8080=" + "c" * 64, PAGE, True, False),
        ("agentlip_session=" + "c" * 64, PAGE, False, False),
        ("agentlip_session_8081=" + "c" * 64, PAGE, False, False),
        ("agentlip_session_8080=" + NARROW_TOKEN, PAGE, False, False),
        ("agentlip_session_8080=", PAGE, False, False),
        ("agentlip_session_8080=" + "c" * 64, {"HTTP_X_AGENTLIP_REQUEST": "ui"}, False, False),
    ],
)
def test_cookie_counts_only_with_the_secret_of_the_page(
    cookie: str, more: dict[str, str], socket: bool, good: bool
) -> None:
    guard = guard_of()
    session = Principal("tok_1", "bot", frozenset(), session="ses_1")
    guard.book.add_temporary("c" * 64 + "p" * 64, session, 1)
    environ = environ_of(host="localhost:8080", HTTP_COOKIE=cookie, **more)
    assert guard.authenticate(environ, socket=socket) is (session if good else ANONYMOUS)
