"""People sign in with an OpenID provider: a real one, and one that misbehaves."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.commands import command, environment
from tests.support.issuer import Issuer, issuer
from tests.support.provider import Provider, provider
from tests.support.s3server import free_ports
from tests.support.servedhub import Answer, ServedHub, serve
from tests.support.until import until

SIGN_IN = "/api/v1/sign-in"
URL = "https://hub.example.org"


@pytest.fixture(scope="module")
def op() -> Iterator[Provider]:
    with provider(free_ports(1)[0]) as running:
        running.add("1", email="ada@example.com", name="Ada")
        running.add("2", email="eve@example.net")
        running.add("3", email="boss@example.org")
        running.add("4", email="x@example.com", email_verified=False)
        yield running


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, op: Provider) -> Iterator[ServedHub]:
    secret = tmp_path_factory.mktemp("secret") / "secret"
    secret.write_text("s3 cret:%\n")
    settings = op.settings(URL, secret)
    with serve(tmp_path_factory.mktemp("hub"), settings=settings) as running:
        until(lambda: begin(running).status == 200)
        yield running


def begin(hub: ServedHub) -> Answer:
    return hub.connect(None).post(SIGN_IN)


def complete(hub: ServedHub, back: Any) -> Answer:
    command = {"state": back["state"], "code": back["code"]}
    return hub.connect(None).post(SIGN_IN + "/complete", command)


def signed_in(hub: ServedHub, op: Provider, sub: str) -> Answer:
    return complete(hub, op.answer(begin(hub).body["location"], sub))


def who(hub: ServedHub, opened: Answer) -> Answer:
    cookie = opened.headers["set-cookie"].partition(";")[0]
    headers = {"Cookie": cookie, "X-Agentlip-Request": opened.body["page_secret"]}
    return hub.connect(None).get("/api/v1/sessions/current", headers=headers)


# -- a real provider -----------------------------------------------------------------------------


def test_person_signs_in_with_the_scopes_for_the_domain(hub: ServedHub, op: Provider) -> None:
    assert hub.connect(None).get(SIGN_IN).body == {"issuer": op.url}
    opened = signed_in(hub, op, "1")
    assert opened.status == 201, opened
    assert "HttpOnly" in opened.headers["set-cookie"]
    me = who(hub, opened).body
    assert (me["token_name"], me["scopes"]) == ("ada@example.com", ["hub:post", "hub:read"])
    assert me["senders"] == ["ada@example.com"]


def test_second_sign_in_is_a_session_of_the_same_token(hub: ServedHub, op: Provider) -> None:
    first, second = signed_in(hub, op, "1"), signed_in(hub, op, "1")
    assert first.body["token_id"] == second.body["token_id"]
    assert first.body["session"] != second.body["session"]
    assert who(hub, first).status == who(hub, second).status == 200


def test_person_without_a_row_is_not_invited(hub: ServedHub, op: Provider) -> None:
    refused = signed_in(hub, op, "2")
    assert (refused.status, refused.body["code"]) == (403, "NOT_INVITED")
    assert refused.body["details"] == {"name": "eve@example.net"}


def test_unverified_address_is_refused(hub: ServedHub, op: Provider) -> None:
    refused = signed_in(hub, op, "4")
    assert (refused.status, refused.body["code"]) == (401, "SIGN_IN_REFUSED")


def test_code_and_state_work_once(hub: ServedHub, op: Provider) -> None:
    back = op.answer(begin(hub).body["location"], "1")
    assert complete(hub, back).status == 201
    assert complete(hub, back).body["details"] == {"reason": "state"}
    other = op.answer(begin(hub).body["location"], "1")
    assert complete(hub, {**other, "code": back["code"]}).status == 401


def test_revoked_person_stays_out_and_loses_every_session(hub: ServedHub, op: Provider) -> None:
    opened = signed_in(hub, op, "3")
    assert who(hub, opened).body["scopes"] == ["admin"]
    assert hub.http("DELETE", f"/api/v1/tokens/{opened.body['token_id']}").status == 200
    assert who(hub, opened).status == 401
    refused = signed_in(hub, op, "3")
    assert (refused.status, refused.body["code"]) == (403, "PERSON_REVOKED")


def test_name_of_another_token_is_not_given_to_a_person(hub: ServedHub, op: Provider) -> None:
    op.add("5", email="builder@example.com")
    body = {"name": "builder@example.com", "scopes": ["hub:read"]}
    assert hub.http.post("/api/v1/tokens", body).status == 201
    assert signed_in(hub, op, "5").body["code"] == "ALREADY_EXISTS"


def test_changed_rights_hold_for_sessions_that_are_open(tmp_path: Any, op: Provider) -> None:
    (tmp_path / "secret").write_text("secret")
    settings = op.settings(URL, tmp_path / "secret")
    with serve(tmp_path / "hub", settings=settings) as served:
        until(lambda: begin(served).status == 200)
        opened = signed_in(served, op, "1")
        more = settings.replace('"hub:post"]', '"hub:post", "ask:answer"]')
        served.datadir.settings_file.write_text(more)
        served.kill()
        served.start()
        assert len(who(served, opened).body["scopes"]) == 2
        until(lambda: begin(served).status == 200)
        assert signed_in(served, op, "1").status == 201
        assert len(who(served, opened).body["scopes"]) == 3


def test_audit_log_has_the_sign_in_and_agrees_with_the_token(hub: ServedHub, op: Provider) -> None:
    opened = [signed_in(hub, op, "1"), signed_in(hub, op, "1")][1]
    rows = hub.http.get("/api/v1/audit?limit=100").body["acts"]
    acts = [row for row in rows if "sign-in/complete" in row["act"]]
    assert opened.body["token_id"] in json.dumps(acts)
    assert opened.body["page_secret"] not in json.dumps(rows)
    words = [*command("agentlip"), "doctor", "--run", "audit.rows", "--json"]
    done = subprocess.run(
        words, cwd=hub.workspace, env=environment(), capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, opened.body["token_id"] in done.stdout) == (0, False), done.stdout


# -- a provider that misbehaves ------------------------------------------------------------------


@pytest.fixture(scope="module")
def hostile() -> Iterator[Issuer]:
    with issuer() as served:
        at = served.url
        served.configuration = {
            "authorization_endpoint": at + "/authorize", "token_endpoint": at + "/token",
        }  # fmt: skip
        yield served


@pytest.fixture(scope="module")
def doubting(tmp_path_factory: pytest.TempPathFactory, hostile: Issuer) -> Iterator[ServedHub]:
    settings = Provider(1).settings(URL).replace("http://127.0.0.1:1", hostile.url)
    with serve(tmp_path_factory.mktemp("hub"), settings=settings) as running:
        until(lambda: begin(running).status == 200)
        yield running


def answered(hub: ServedHub, issuer: Issuer, **claims: Any) -> Answer:
    """Complete a sign-in whose ID token has these claims."""
    begun = begin(hub).body
    query = parse_qs(urlsplit(begun["location"]).query)
    right = {"aud": "agentlip", "nonce": query["nonce"][0], "email": "ada@example.com"}
    body = json.dumps({"id_token": issuer.token(**{**right, **claims})}).encode()
    issuer.replies["/realms/a/token"] = 200, {"Content-Type": "application/json"}, body
    return complete(hub, {"state": begun["state"], "code": "c"})


WRONG = {
    "nonce": {"nonce": "other"},
    "no nonce": {"nonce": None},
    "audience": {"aud": "another-client"},
    "party": {"aud": ["agentlip", "x"], "azp": "x"},
    "issuer": {"iss": "https://other.example.org"},
    "expired": {"exp": 1},
    "no address": {"email": None},
    "address in a list": {"email": ["ada@example.com"]},
    "reserved name": {"email": "owner"},
}


@pytest.mark.parametrize("claims", WRONG.values(), ids=WRONG)
def test_id_token_with_wrong_claims_signs_nobody_in(
    doubting: ServedHub, hostile: Issuer, claims: dict[str, Any]
) -> None:
    assert answered(doubting, hostile).status == 201
    refused = answered(doubting, hostile, **claims)
    assert (refused.status, refused.body["code"]) == (401, "SIGN_IN_REFUSED")


REPLIES = {
    "refused": (400, {}, b'{"error":"invalid_grant"}'),
    "not JSON": (200, {}, b"<html>"),
    "no token": (200, {}, b"{}"),
    "too large": (200, {}, b"x" * 300_000),
    "redirect": (302, {"Location": "http://127.0.0.1:9/"}, b""),
}


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
def test_token_endpoint_that_fails_signs_nobody_in(
    doubting: ServedHub, hostile: Issuer, reply: Any
) -> None:
    begun = begin(doubting).body
    hostile.replies["/realms/a/token"] = reply
    refused = complete(doubting, {"state": begun["state"], "code": "c"})
    assert (refused.status, refused.body["code"]) == (401, "SIGN_IN_REFUSED")


def test_unknown_state_is_refused_and_not_audited(doubting: ServedHub) -> None:
    before = len(doubting.http.get("/api/v1/audit?limit=100").body["acts"])
    refused = complete(doubting, {"state": "invented", "code": "c"})
    assert refused.body["details"] == {"reason": "state"}
    assert len(doubting.http.get("/api/v1/audit?limit=100").body["acts"]) == before


def test_sign_in_without_an_issuer_is_not_offered(tmp_path: Any) -> None:
    with serve(tmp_path) as served:
        assert served.connect(None).get(SIGN_IN).body == {"issuer": None}
        assert begin(served).body["code"] == "NO_SIGN_IN"
