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
    return reply, {"Cookie": cookie, **page(hub)}


def page(hub) -> dict[str, str]:
    return {"Origin": f"http://127.0.0.1:{hub.port}", "X-Agentlip-Request": "1"}


def test_link_signs_a_browser_in_and_works_once(hub):
    secret = link(hub)
    reply, session = sign_in(hub, secret)
    assert reply.status == 201
    assert reply.headers["set-cookie"].split("; ")[1:] == [
        "HttpOnly", "Max-Age=2592000", "Path=/", "SameSite=Strict",
    ]  # fmt: skip
    assert reply.headers["cache-control"] == "no-store"
    who = hub.connect(None).get(CURRENT, headers=session).body
    assert who == reply.body
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
    for number, (name, value) in enumerate(
        (("Origin", ""), ("Origin", "http://127.0.0.1:1"), ("X-Agentlip-Request", ""))
    ):
        headers = {**session, name: value}
        refused = client.post(path, {"name": f"refused{number}"}, headers=headers)
        assert (refused.status, refused.body["code"]) == (403, "ORIGIN_REFUSED")
    assert client.post(path, {"name": "made"}, headers=session).status == 201
    bearer = {"Cookie": session["Cookie"], "Authorization": f"Bearer {hub.http.token}"}
    assert client.post(path, {"name": "by-token"}, headers=bearer).status == 201
    bearer["Authorization"] = "Bearer wrong"
    assert client.post(path, {"name": "by-wrong"}, headers=bearer).status == 401


def test_session_of_a_revoked_token_ends_with_its_sockets(hub):
    scopes = {"name": "colleague", "scopes": ["hub:read"]}
    token = hub.made(hub.http.post("/api/v1/tokens", scopes))["token"]["id"]
    _, session = sign_in(hub, link(hub, token_id=token))
    with SocketClient(hub.port, None, headers=session.items()) as socket:
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
        client, guess = hub.connect(None), {**page(hub), "Cookie": session["Cookie"] + "x"}
        for attempt in (
            lambda: client.post(SESSIONS, {"invite": "agl_guessed"}, headers=page(hub)),
            lambda: client.get(CURRENT, headers=guess),
        ):
            until(lambda attempt=attempt: attempt().status == 429, 20, "guesses are limited")
        assert client.get(CURRENT, headers=session).status == 200, "who is signed in is not"
