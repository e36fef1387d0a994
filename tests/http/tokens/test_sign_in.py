"""Sign-in at a served appliance: the cookie on HTTP and sockets, and what misuse gets."""

import pytest

from tests.support.servedhub import serve
from tests.support.socketclient import SocketClient
from tests.support.until import until

pytestmark = pytest.mark.slow

SESSIONS = "/api/v1/sessions"
CURRENT = f"{SESSIONS}/current"


def link(hub, **more) -> str:
    return str(hub.made(hub.http.post("/api/v1/invitations", more))["secret"])


def sign_in(hub, invite: str):
    """The reply, and the headers of the page's later requests."""
    reply = hub.connect(None).post(SESSIONS, {"invite": invite}, headers=page(hub))
    cookie = reply.headers.get("set-cookie", "").partition(";")[0]
    secret = reply.body.get("page_secret", "")
    return reply, {"Cookie": cookie, "X-Agentlip-Request": secret, **page(hub)}


def page(hub) -> dict[str, str]:
    return {"Origin": f"http://127.0.0.1:{hub.port}"}


def socket_headers(session):
    """A socket has no headers of its own, so the page's secret is in a subprotocol."""
    offered = f"agentlip.v1, agentlip.token.{session['X-Agentlip-Request']}"
    return {**session, "Sec-WebSocket-Protocol": offered, "X-Agentlip-Request": ""}.items()


def test_link_signs_a_browser_in_and_works_once(hub):
    secret = link(hub)
    reply, session = sign_in(hub, secret)
    assert reply.status == 201
    assert reply.headers["set-cookie"].split("; ")[1:] == [
        "HttpOnly", "Max-Age=2592000", "Path=/", "SameSite=Strict",
    ]  # fmt: skip
    assert reply.headers["cache-control"] == "no-store"
    who = hub.connect(None).get(CURRENT, headers=session).body
    assert {**who, "page_secret": session["X-Agentlip-Request"]} == reply.body
    again, _ = sign_in(hub, secret)
    assert (again.status, "set-cookie" in again.headers) == (401, False)
    assert "used already" in again.body["error"]


def test_secure_behind_a_proxy_with_tls(tmp_path):
    with serve(tmp_path, settings='[http]\ntrusted_proxies = ["127.0.0.1"]\n') as hub:
        reply = hub.http.post(SESSIONS, {}, headers={"X-Forwarded-Proto": "https"})
        assert "Secure" in reply.headers["set-cookie"].split("; ")


def test_session_changes_only_from_a_page_of_this_server(hub):
    _, session = sign_in(hub, link(hub))
    client, path = hub.connect(None), "/api/v1/channels"
    refused = client.post(path, {"name": "x"}, headers={**session, "Origin": "http://127.0.0.1:1"})
    assert (refused.status, refused.body["code"]) == (403, "ORIGIN_REFUSED")
    assert client.post(path, {"name": "made"}, headers=session).status == 201
    bearer = {"Cookie": session["Cookie"], "Authorization": f"Bearer {hub.http.token}"}
    assert client.post(path, {"name": "by-token"}, headers=bearer).status == 201
    bearer["Authorization"] = "Bearer wrong"
    assert client.post(path, {"name": "by-wrong"}, headers=bearer).status == 401


STOLEN = {
    "the cookie": {"X-Agentlip-Request": ""},
    "the cookie, with the former header": {"X-Agentlip-Request": "1"},
    "the cookie, with a secret of another session": {"X-Agentlip-Request": "agl_" + "x" * 43},
    "the page's secret": {"Cookie": ""},
    "the page's secret as a token": {"Cookie": "", "Authorization": "Bearer {page}"},
    "the cookie as a token": {"Cookie": "", "Authorization": "Bearer {cookie}"},
}


@pytest.mark.parametrize("headers", STOLEN.values(), ids=STOLEN)
def test_either_secret_alone_reads_and_changes_nothing(hub, headers):
    """A server on another port of 127.0.0.1 gets the cookie from the browser."""
    _, session = sign_in(hub, link(hub))
    cookie = session["Cookie"].partition("=")[2]
    known = {"cookie": cookie, "page": session["X-Agentlip-Request"]}
    stolen = session | {name: value.format(**known) for name, value in headers.items()}
    client = hub.connect(None)
    for method, path, body in (
        ("GET", "/api/v1/tokens", None), ("GET", CURRENT, None), ("DELETE", CURRENT, None),
        ("POST", "/api/v1/tokens", {"name": "mine", "scopes": ["admin"]}),
        ("POST", "/api/v1/invitations", {}), ("POST", SESSIONS, {}),
        ("POST", "/api/v1/channels", {"name": "stolen"}),
    ):  # fmt: skip
        assert client(method, path, body, headers=stolen).status == 401, path
    with SocketClient(hub.port, None, headers=socket_headers(stolen)) as socket:
        assert socket.close_code() == 4401
    assert client.get(CURRENT, headers=session).status == 200


def test_session_of_a_revoked_token_ends_with_its_sockets(hub):
    scopes = {"name": "colleague", "scopes": ["hub:read"]}
    token = hub.made(hub.http.post("/api/v1/tokens", scopes))["token"]["id"]
    _, session = sign_in(hub, link(hub, token_id=token))
    with SocketClient(hub.port, None, headers=socket_headers(session)) as socket:
        socket.hello()
        hub.http("DELETE", f"/api/v1/tokens/{token}")
        assert socket.close_code() == 4401
    assert hub.connect(None).get(CURRENT, headers=session).status == 401


def test_signing_out_deletes_the_cookie(hub):
    _, session = sign_in(hub, link(hub))
    client = hub.connect(None)
    ended = client("DELETE", CURRENT, headers=session)
    assert "Max-Age=-1" in ended.headers["set-cookie"]
    assert client.get(CURRENT, headers=session).status == 401
    # An old cookie does not keep the browser from the page where it signs in.
    assert client.get("/health", headers=session).status == 200


def test_guessed_links_and_cookies_are_limited(tmp_path):
    settings = "[limits]\nfailures_per_address = 5\nper_connection = 0\n"
    with serve(tmp_path, settings=settings, limits=True) as hub:
        _, session = sign_in(hub, link(hub))
        client, guess = hub.connect(None), {**session, "Cookie": session["Cookie"] + "x"}
        for attempt in (
            lambda: client.post(SESSIONS, {"invite": "agl_guessed"}, headers=page(hub)),
            lambda: client.get(CURRENT, headers=guess),
        ):
            until(lambda attempt=attempt: attempt().status == 429, 20, "guesses are limited")
        assert client.get(CURRENT, headers=session).status == 200, "who is signed in is not"
