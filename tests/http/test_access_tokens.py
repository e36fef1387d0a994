"""Access tokens of a real issuer at `/mcp`: names, scopes, and refusals."""

import base64
import hmac
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.support.issuer import RESOURCE, Issuer, issuer
from tests.support.servedhub import Answer, ServedHub, serve
from tests.support.until import until

METADATA = "/.well-known/oauth-protected-resource"
FAR = {"X-Forwarded-For": "203.0.113.9"}  # so that nothing is free as on loopback


@pytest.fixture(scope="module")
def signer() -> Iterator[Issuer]:
    with issuer() as served:
        yield served


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, signer: Issuer) -> Iterator[ServedHub]:
    workspace = tmp_path_factory.mktemp("hub")
    constants = {"appliance.oidc.keys.REFRESH_SECONDS_MIN": 0.0}
    with serve(workspace, settings=signer.settings, constants=constants) as running:
        until(lambda: call(running, signer.token()).status == 200)
        yield running


def call(
    hub: ServedHub, token: str | None, tool: str = "status", path: str = "/mcp", **arguments: Any
) -> Answer:
    params = {"name": tool, "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    client = hub.connect(token)
    try:
        return client.post(path, message, headers=FAR)
    finally:
        client.close()


def refused(answer: Answer) -> tuple[int, str, str]:
    return answer.status, answer.body["code"], answer.body["details"].get("reason", "")


# -- what is accepted --------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_access_token_names_its_principal_with_granted_scopes(
    hub: ServedHub, signer: Issuer, algorithm: str
) -> None:
    status = call(hub, signer.token(algorithm)).body["result"]["structuredContent"]
    assert (status["you"], status["scopes"]) == ("anna", ["hub:post", "hub:read"])


def test_token_without_grants_may_call_nothing(hub: ServedHub, signer: Issuer) -> None:
    answer = call(hub, signer.token(scope="openid admin hub:read"))
    assert (answer.status, answer.body["code"]) == (403, "FORBIDDEN")


def test_grants_can_be_a_list_and_audiences_several(hub: ServedHub, signer: Issuer) -> None:
    assert call(hub, signer.token(scope=["agents"], aud=["x", "agentlip"])).status == 200


def test_posted_message_has_the_name_as_its_principal(hub: ServedHub, signer: Issuer) -> None:
    _, topic = hub.channel_with_topic("by-issuer")
    post = {"topic_id": topic, "sender": "anna", "content": "hello"}
    call(hub, signer.token(), "post_message", **post)
    (message,) = hub.http.get(f"/api/v1/messages?topic_id={topic}").body["messages"]
    assert message["principal"] == "anna"


def test_access_token_waits_for_events_as_others_do(hub: ServedHub, signer: Issuer) -> None:
    answer = call(hub, signer.token(), "wait_events", wait_s=0.2)
    assert answer.body["result"]["structuredContent"]["events"] == []


def test_leeway_covers_clocks_that_differ_a_little(hub: ServedHub, signer: Issuer) -> None:
    now = int(time.time())
    assert call(hub, signer.token(exp=now - 10, nbf=now + 10)).status == 200


def test_new_key_is_fetched_when_first_used(hub: ServedHub, signer: Issuer) -> None:
    signer.add("rotated")
    signer.published.append(signer.public("rotated"))
    assert call(hub, signer.token("rotated")).status == 200


# -- what is refused ---------------------------------------------------------------------------


def encode(part: Any) -> str:
    raw = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def forged(signer: Issuer, header: dict[str, Any], key: bytes | None = None) -> str:
    signed = f"{encode(header)}.{encode(signer.claims())}"
    signature = b"" if key is None else hmac.digest(key, signed.encode(), "sha256")
    return f"{signed}.{encode(signature)}"


def public_pem(signer: Issuer) -> bytes:
    key = signer.keys["RS256"][1].public_key()
    return bytes(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def with_symmetric_key(signer: Issuer) -> str:
    """The published key set has a symmetric key, as a confused issuer's might."""
    signer.published.append({"kty": "oct", "kid": "shared", "k": encode(b"secret")})
    return forged(signer, {"alg": "HS256", "kid": "shared"}, b"secret")


def with_own_keys(signer: Issuer, header: str) -> str:
    """Signed by a key that the token itself brings, or an address for it."""
    signer.add("stranger")
    own = signer.public("stranger") if header == "jwk" else f"http://127.0.0.1:{signer.port}/evil"
    return signer.token("stranger", {header: own, "kid": "RS256"})


DEEP = b'{"alg":' + b"[" * 5_000

HOSTILE = {
    "no-algorithm": (lambda s: forged(s, {"alg": "none", "kid": "RS256"}), "algorithm"),
    "no-algorithm-in-capitals": (lambda s: forged(s, {"alg": "NONE", "kid": "RS256"}), "algorithm"),
    "public-key-as-secret": (
        lambda s: forged(s, {"alg": "HS256", "kid": "RS256"}, public_pem(s)), "algorithm",
    ),
    "symmetric-key": (with_symmetric_key, "key"),
    "another-key-type": (lambda s: forged(s, {"alg": "ES256", "kid": "RS256"}, b"x"), "algorithm"),
    "jku": (lambda s: with_own_keys(s, "jku"), "signature"),
    "x5u": (lambda s: with_own_keys(s, "x5u"), "signature"),
    "jwk": (lambda s: with_own_keys(s, "jwk"), "signature"),
    "unknown-key": (lambda s: s.token(headers={"kid": "../../etc/passwd"}), "key"),
    "huge-key-id": (lambda s: s.token(headers={"kid": "k" * 5_000}), "key"),
    "key-id-as-number": (lambda s: forged(s, {"alg": "RS256", "kid": 1}), "malformed"),
    "critical-header": (lambda s: s.token(headers={"crit": ["x"], "x": 1}), "malformed"),
    "deep-header": (lambda _: f"{encode(DEEP)}.e30.e30", "malformed"),
    "no-json": (lambda _: "eyJhbGciOi.!!!.???", "malformed"),
    "changed-claims": (lambda s: tampered(s), "signature"),
    "wrong-audience": (lambda s: s.token(aud="https://other.example.org/mcp"), "audience"),
    "no-audience": (lambda s: s.token(aud=None), "malformed"),
    "wrong-issuer": (lambda s: s.token(iss="https://evil.example.org"), "issuer"),
    "issuer-with-slash": (lambda s: s.token(iss=s.url + "/"), "issuer"),
    "expired": (lambda s: s.token(exp=int(time.time()) - 60), "time"),
    "never-expires": (lambda s: s.token(exp=None), "malformed"),
    "expires-at-infinity": (lambda s: s.token(exp=float("inf")), "malformed"),
    "not-yet-valid": (lambda s: s.token(nbf=int(time.time()) + 60), "time"),
    "no-subject": (lambda s: s.token(sub=None), "malformed"),
    "no-name": (lambda s: s.token(preferred_username=None), "name"),
    "reserved-name": (lambda s: s.token(preferred_username="job:nightly"), "name"),
    "server's-name": (lambda s: s.token(preferred_username="server"), "name"),
    "name-with-newline": (lambda s: s.token(preferred_username="a\nb"), "name"),
    "half-a-character": (lambda s: s.token(preferred_username="\ud800"), "name"),
}  # fmt: skip


def tampered(signer: Issuer) -> str:
    header, _, signature = signer.token(scope="openid").split(".")
    return f"{header}.{encode(signer.claims())}.{signature}"


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_token_is_refused_with_its_reason(
    hub: ServedHub, signer: Issuer, name: str
) -> None:
    make, reason = HOSTILE[name]
    answer = call(hub, make(signer))
    assert refused(answer) == (401, "ACCESS_TOKEN_REFUSED", reason)
    assert (
        f'resource_metadata="https://agents.example.org{METADATA}/mcp"'
        in (answer.headers["www-authenticate"])
    )
    assert "/evil" not in signer.asked
    assert call(hub, signer.token()).status == 200


def test_token_above_eight_kib_is_refused_as_header(hub: ServedHub, signer: Issuer) -> None:
    assert call(hub, signer.token(more="x" * 7_000)).status == 431


def test_odd_but_signed_claims_never_end_in_500(hub: ServedHub, signer: Issuer) -> None:
    soon = str(int(time.time()) + 60)
    odd = [{"exp": soon}, {"sub": "\ud800"}, {"scope": {"a": 1}}, {"scope": [1, None]}, {"aud": 5}]
    assert {call(hub, signer.token(**claims)).status for claims in odd} <= {200, 401, 403}


def test_access_token_is_refused_on_other_routes(hub: ServedHub, signer: Issuer) -> None:
    client = hub.connect(signer.token())
    answer = client.get("/api/v1/channels", headers=FAR)
    assert (answer.status, answer.body["code"]) == (401, "UNAUTHORIZED")
    assert answer.headers["www-authenticate"] == 'Bearer realm="agentlip"'
    client.close()


# -- how clients find the issuer -----------------------------------------------------------------


def test_client_without_token_finds_the_issuer(hub: ServedHub, signer: Issuer) -> None:
    challenge = call(hub, None).headers["www-authenticate"]
    assert challenge.endswith(f'resource_metadata="https://agents.example.org{METADATA}/mcp"')
    client = hub.connect(None)
    for path in (METADATA, METADATA + "/mcp"):
        assert client.get(path, headers=FAR).body == {
            "resource": RESOURCE,
            "authorization_servers": [signer.url],
            "scopes_supported": ["agents"],
            "bearer_methods_supported": ["header"],
            "resource_name": "Agentlip",
        }
    client.close()


def test_metadata_without_issuer_is_not_found(tmp_path: Any) -> None:
    with serve(tmp_path) as hub:
        answer = hub.connect(None).get(METADATA)
        assert (answer.status, answer.body["code"]) == (404, "NO_ISSUER")
        plain = call(hub, "eyJhbGciOiJub25lIn0.e30.")
        assert (plain.status, plain.body["code"]) == (401, "UNAUTHORIZED")


# -- an issuer in trouble --------------------------------------------------------------------------

KEYS = "/realms/a/keys"
CONFIGURATION = "/realms/a/.well-known/openid-configuration"
TROUBLE: dict[str, dict[str, Any]] = {
    "failing": {CONFIGURATION: (503, {}, b"")},
    "redirecting": {CONFIGURATION: (302, {"Location": "http://127.0.0.1:1/"}, b"")},
    "too-large": {KEYS: (200, {}, b"x" * 300_000)},
    "not-json": {KEYS: (200, {}, b"<html>")},
    "deep": {KEYS: (200, {}, b"[" * 100_000)},
    "closing": {KEYS: b""},
}


@pytest.mark.parametrize("name", TROUBLE)
def test_unusable_issuer_affects_only_its_tokens(tmp_path: Any, name: str) -> None:
    with issuer() as signer:
        signer.replies = TROUBLE[name]
        with serve(tmp_path, settings=signer.settings) as hub:
            until(lambda: CONFIGURATION in signer.asked)
            answer = call(hub, signer.token())
            assert refused(answer) == (503, "ISSUER_UNREACHABLE", "")
            assert hub.http.get("/api/v1/channels").status == 200


@pytest.mark.parametrize("value", ["https://evil.example.org", "file:///etc/passwd"])
def test_configuration_with_wrong_addresses_is_not_followed(tmp_path: Any, value: str) -> None:
    with issuer() as signer:
        key = "jwks_uri" if value.startswith("file") else "issuer"
        signer.configuration = {key: value}
        with serve(tmp_path, settings=signer.settings) as hub:
            until(lambda: CONFIGURATION in signer.asked)
            assert call(hub, signer.token()).status == 503
            assert KEYS not in signer.asked


def test_unreachable_issuer_delays_a_request_three_seconds(tmp_path: Any) -> None:
    with issuer() as signer:
        settings, token = signer.settings, signer.token()
    with serve(tmp_path, settings=settings) as hub:
        began = time.monotonic()
        assert call(hub, token).status == 503
        assert time.monotonic() - began < 10
        began = time.monotonic()
        assert hub.http.get("/api/v1/channels").status == 200
        assert time.monotonic() - began < 3


def test_known_keys_stay_while_the_issuer_is_down(tmp_path: Any) -> None:
    with issuer() as signer:
        constants = {"appliance.oidc.keys.REFRESH_SECONDS_MIN": 0.0}
        with serve(tmp_path, settings=signer.settings, constants=constants) as hub:
            until(lambda: call(hub, signer.token()).status == 200)
            signer.replies = {CONFIGURATION: (503, {}, b"")}
            signer.add("later")
            assert refused(call(hub, signer.token("later")))[2] == "key"
            assert call(hub, signer.token()).status == 200


def test_twenty_invented_key_ids_cause_at_most_one_fetch(tmp_path: Any) -> None:
    with issuer() as signer, serve(tmp_path, settings=signer.settings) as hub:
        until(lambda: call(hub, signer.token()).status == 200)
        fetched = len(signer.asked)
        for number in range(20):
            call(hub, signer.token(headers={"kid": f"k{number}"}))
        assert len(signer.asked) <= fetched + 2  # a fetch may have begun meanwhile
