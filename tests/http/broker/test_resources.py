"""The broker on HTTP: permissions, signatures, and the bodies of its answers."""

import hashlib
import json

import pytest

from appliance.broker import access, queries, wire
from appliance.kernel.store_errors import StoreFull
from appliance.mesh.signing import request_text, rotation_text, sign
from appliance.web.settings import LimitSettings
from tests.support.broker import (
    ACCEPT_TOKEN,
    BrokerFixture,
    item,
    key,
    seed,
    signed,
)
from tests.support.http import TOKEN

ACCEPT, BATCH = "/broker/v1/accept", "/broker/v1/accept/batch"
LAB = "/broker/v1/meshes/lab"


@pytest.fixture
def broker(tmp_path):
    broker = BrokerFixture(tmp_path)
    yield broker
    broker.close()


# -- signatures --------------------------------------------------------------------------


def resigned(name="anna", **changed):
    """Headers of `m1` to ACCEPT, but signed over something else."""

    def headers(broker, raw):
        given = {
            "method": "POST", "broker": broker.id, "path": ACCEPT, "query": "",
            "stamp": str(broker.clock.now_ms()), "nonce": "n" * 32, "body": raw, **changed,
        }  # fmt: skip
        if callable(given["body"]):
            given["body"] = given["body"](raw)
        text = request_text(
            given["method"], given["broker"], given["path"].encode(), given["query"],
            given["stamp"], given["nonce"], given["body"],
        )  # fmt: skip
        return {"X-Agentlip-Nonce": "n" * 32, "X-Agentlip-Signature": sign(seed(name), text)}

    return headers


WRONG = {
    "another member's": resigned("bert"),
    "of another path": resigned(path=BATCH),
    "of another method": resigned(method="PUT"),
    "of another query": resigned(query="a=1"),
    "of another broker": resigned(broker="f" * 32),
    "of another nonce": resigned(nonce="m" * 32),
    "of another body": resigned(body=lambda raw: raw + b" "),
    "of another time": resigned(stamp="1"),
    "cut short": lambda _broker, _raw: {"X-Agentlip-Signature": "00"},
    "with a short nonce": lambda _broker, _raw: {"X-Agentlip-Nonce": "n" * 15},
    "with a long nonce": lambda _broker, _raw: {"X-Agentlip-Nonce": "n" * 65},
    "without a member": lambda _broker, _raw: {"X-Agentlip-Member": ""},
}


@pytest.mark.parametrize("fault", WRONG)
def test_signature_that_does_not_fit_is_refused(broker, fault):
    raw = json.dumps(item("m1")).encode()
    answer = broker.signed_request("anna", "POST", ACCEPT, item("m1"), **WRONG[fault](broker, raw))
    assert answer.status_code == 401
    assert answer.json["code"] == "BAD_SIGNATURE"
    assert broker.count("client_message_dedupe") == 0


def test_a_request_is_signed_over_these_bytes():
    """The vector of docs/reference/broker.md."""
    text = request_text(
        "GET", "b" * 32, b"/broker/v1/meshes/lab/history", "after=bh_1&limit=2", "1770000000000",
        "0123456789abcdef", b"",
    )  # fmt: skip
    assert text == (
        b"agentlip-broker-v2\nGET\nbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\n"
        b"/broker/v1/meshes/lab/history\nafter=bh_1&limit=2\n1770000000000\n0123456789abcdef\n"
        + hashlib.sha256(b"").hexdigest().encode()
    )
    assert key(
        "anna"
    ) == "c76a5db075d32f1306622ff93d5e2377-e14d1e83801af79a396c75e3ae17fd6c".replace("-", "")
    signature = """
        420b9f1a5306fc584613e22352256919 963dcc943dea00566dc7f0a3604dd4da
        a2ae75298655d27a85cf159f60d3e298 f4d0e1fd93ede69c2650e3019c14ba0e
    """
    assert sign(seed("anna"), text) == "".join(signature.split())


def replays(broker):
    """Each kind of signed request, and whether it changes something."""
    proof = sign(seed("new"), rotation_text("lab", key("anna"), key("new")))
    anna = f"{LAB}/members/{key('anna')}"
    return [
        ("GET", f"{LAB}/history", None),
        ("POST", ACCEPT, item("m1")),
        ("POST", BATCH, {"items": [item("m2")]}),
        ("PUT", f"{LAB}/topics/alerts/subscribers/{key('anna')}", None),
        ("DELETE", f"{LAB}/topics/alerts/subscribers/{key('anna')}", None),
        ("PATCH", anna, {"name": "anne"}),
        ("POST", f"{anna}/rotate", {"pubkey": key("new"), "proof": proof}),
    ]


def test_each_signature_is_good_once_also_after_a_restart(tmp_path):
    broker = BrokerFixture(tmp_path)
    sent = []
    for method, path, body in replays(broker):
        raw = b"" if body is None else json.dumps(body).encode()
        headers = signed("anna", method, path, raw, broker.clock.now_ms(), broker.id)
        assert broker.request(method, path, raw, headers).status_code < 300, path
        sent.append((method, path, raw, headers))
    assert len(sent) == 7
    for entry in sent:
        answer = broker.request(*entry)
        assert (answer.status_code, answer.json["code"]) == (401, "SIGNATURE_USED"), entry[1]
    broker.close()
    broker = BrokerFixture(tmp_path)
    for entry in sent:
        assert broker.request(*entry).json["code"] == "SIGNATURE_USED", entry[1]
    broker.clock.pass_seconds(301)
    for entry in sent:
        assert broker.request(*entry).json["code"] == "STALE_SIGNATURE", entry[1]
    broker.close()


def test_a_clock_that_is_set_forward_and_back_makes_no_replay_possible(broker):
    raw = json.dumps(item("m1")).encode()
    headers = signed("anna", "POST", ACCEPT, raw, broker.clock.now_ms(), broker.id)
    assert broker.request("POST", ACCEPT, raw, headers).status_code == 201
    broker.clock.ms += 3_600_000
    broker.lease_expiry.run_once(broker.clock.now_ms())
    broker.clock.ms -= 3_600_000
    assert broker.request("POST", ACCEPT, raw, headers).json["code"] == "SIGNATURE_USED"


def test_request_for_another_broker_is_refused_with_the_right_id(broker, tmp_path):
    other = BrokerFixture(tmp_path / "other")
    assert other.id != broker.id
    raw = json.dumps(item("m1")).encode()
    headers = signed("anna", "POST", ACCEPT, raw, broker.clock.now_ms(), other.id)
    answer = broker.request("POST", ACCEPT, raw, headers)
    assert (answer.status_code, answer.json["code"]) == (401, "WRONG_BROKER")
    assert answer.json["details"] == {"broker_id": broker.id}
    assert broker.count("client_message_dedupe") == 0
    assert other.request("POST", ACCEPT, raw, headers).status_code == 201
    other.close()


def test_nonces_are_limited_by_member_and_in_all_and_forgotten_in_time(tmp_path, monkeypatch):
    monkeypatch.setattr(access, "NONCES_MAX", 3)
    monkeypatch.setattr(access, "NONCES_MEMBER_MAX", 2)
    broker = BrokerFixture(tmp_path)
    path = f"{LAB}/topics/alerts/subscribers/{key('anna')}"

    def codes(name, times):
        answers = [broker.signed_request(name, "PUT", path.replace(key("anna"), key(name)))
                   for _ in range(times)]  # fmt: skip
        return [entry.status_code for entry in answers]

    assert codes("anna", 3) == [200, 200, 429]
    assert codes("bert", 2) == [200, 429]
    answer = broker.signed_request("anna", "GET", LAB)
    assert int(answer.headers["retry-after"]) > 250
    assert answer.json["error"] == "too many signed requests"
    assert broker.count("used_nonce") == 3
    broker.clock.pass_seconds(302)
    assert codes("bert", 2) == [200, 200]
    broker.lease_expiry.run_once(broker.clock.now_ms())
    assert broker.count("used_nonce") == 2, "rows that are over make room for others"
    broker.close()


def test_nonce_of_a_send_that_could_not_be_stored_is_stored_later(broker):
    full = StoreFull(retry_after=1.0)
    write_many, broker.store.write_many = broker.store.write_many, raising(full)
    assert broker.signed_request("anna", "POST", ACCEPT, item("m1")).status_code == 503
    assert (
        broker.signed_request("anna", "PATCH", f"{LAB}/members/anna", {"name": "a"}).status_code
        == 503
    )
    broker.store.write_many = write_many
    broker.lease_expiry.run_once(broker.clock.now_ms())
    assert broker.count("used_nonce") == 2


@pytest.mark.parametrize("index", range(7))
def test_request_whose_nonce_can_not_be_stored_is_refused(broker, index):
    """Reads too: after a crash the broker would accept it again."""
    method, path, body = replays(broker)[index]
    write_many, broker.store.write_many = broker.store.write_many, raising(StoreFull())
    answer = broker.signed_request("anna", method, path, body)
    broker.store.write_many = write_many
    assert f'"code":"{StoreFull.code}"' in answer.text


def test_nonce_of_a_send_that_is_refused_is_stored_with_the_refusal(broker):
    refused = broker.signed_request("anna", "POST", ACCEPT, item("m1", mesh="none"))
    assert (refused.status_code, broker.count("used_nonce")) == (404, 1)


def raising(error):
    def fail(*_args):
        raise error

    return fail


@pytest.mark.parametrize("seconds", [-301, 301])
def test_stale_signature_is_refused_with_the_brokers_time(broker, seconds):
    raw = json.dumps(item("m1")).encode()
    headers = signed("anna", "POST", ACCEPT, raw, broker.clock.now_ms() + seconds * 1000, broker.id)
    answer = broker.signed_request("anna", "POST", ACCEPT, item("m1"), **headers)
    assert answer.status_code == 401
    assert answer.json["code"] == "STALE_SIGNATURE"
    assert answer.json["details"]["now_ms"] == broker.clock.now_ms()
    near = signed("anna", "POST", ACCEPT, raw, broker.clock.now_ms() + 299_000, broker.id)
    assert broker.signed_request("anna", "POST", ACCEPT, item("m1"), **near).status_code == 201


def test_body_of_a_stranger_is_not_read(broker):
    """Invalid signatures are refused before the body comes."""
    headers = signed("stranger", "POST", ACCEPT, b"", broker.clock.now_ms(), broker.id)
    answer = broker.client().simulate_post(
        ACCEPT, body=b"x" * 10, headers={**headers, "Content-Length": "99999999999"}
    )
    assert answer.status_code == 403


def test_signature_grants_only_what_the_member_owns(broker):
    for method, path, body in (
        ("POST", "/broker/v1/meshes", {"slug": "mine"}),
        ("PATCH", LAB, {"concurrency": "allow_concurrent"}),
        ("POST", f"{LAB}/members", {"pubkey": key("x"), "name": "x"}),
        ("DELETE", f"{LAB}/members/bert", None),
        ("POST", f"{LAB}/topics", {"name": "x"}),
    ):
        assert broker.signed_request("anna", method, path, body).status_code == 401, path
    for method, path, body in (
        ("PUT", f"{LAB}/topics/alerts/subscribers/{key('bert')}", None),
        ("DELETE", f"{LAB}/topics/alerts/subscribers/bert", None),
        ("PATCH", f"{LAB}/members/bert", {"name": "x"}),
        ("POST", f"{LAB}/members/bert/rotate", {"pubkey": key("x"), "proof": "0" * 128}),
    ):
        answer = broker.signed_request("anna", method, path, body)
        assert (answer.status_code, answer.json["code"]) == (403, "FORBIDDEN"), path


def test_member_sees_its_own_meshes_and_no_other(broker):
    broker.registry.create_mesh(wire.CreateMesh("other"))
    meshes = broker.signed_request("anna", "GET", "/broker/v1/meshes").json["meshes"]
    assert [mesh["slug"] for mesh in meshes] == ["lab"]
    for path in ("", "/members", "/topics", "/queues", "/history"):
        answer = broker.signed_request("anna", "GET", f"/broker/v1/meshes/other{path}")
        assert (answer.status_code, answer.json["code"]) == (403, "NOT_A_MEMBER")
        assert broker.signed_request("anna", "GET", LAB + path).status_code == 200


def test_member_reads_of_the_history_only_what_it_may(broker):
    broker.send("m1", "to bert", to="bert")
    broker.send("m2", "to all")
    broker.send("m3", "from cleo to anna", sender="cleo", to="anna")

    def bodies(name):
        page = broker.signed_request(name, "GET", f"{LAB}/history").json
        return [past["message"]["body"] for past in page["history"]]

    assert bodies("anna") == ["to bert", "to all", "from cleo to anna"]
    assert bodies("bert") == ["to bert", "to all"]
    assert bodies("cleo") == ["to all", "from cleo to anna"]


# -- tokens ------------------------------------------------------------------------------


def test_token_sends_for_the_member_it_names(broker):
    client = broker.client(ACCEPT_TOKEN)
    named = {"X-Agentlip-Member": key("bert")}
    assert client.simulate_post(ACCEPT, json=item("m1"), headers=named).status_code == 201
    assert broker.rows("SELECT sender_name FROM topic_message") == [("bert",)]
    nobody = client.simulate_post(ACCEPT, json=item("m2"))
    assert (nobody.status_code, nobody.json["details"]["field"]) == (400, "X-Agentlip-Member")


# -- batches and limits ------------------------------------------------------------------


def test_a_batch_is_one_request_and_its_items_count_for_the_mesh(tmp_path):
    broker = BrokerFixture(tmp_path, rate_per_second=250)
    client = broker.client(limits=LimitSettings(per_connection=4, global_=4))
    results_by_batch = []
    for number in range(5):
        raw = json.dumps({"items": [item(f"m{number}.{n}") for n in range(100)]}).encode()
        headers = signed("anna", "POST", BATCH, raw, broker.clock.now_ms(), broker.id)
        headers["Content-Type"] = "application/json"
        answer = client.simulate_post(BATCH, body=raw, headers=headers)
        results = answer.json.get("results", ())
        results_by_batch.append(
            (answer.status_code, sum(entry["status"] == 201 for entry in results))
        )
    assert results_by_batch == [(200, 100), (200, 100), (200, 50), (200, 0), (429, 0)]
    broker.close()


# -- managing ----------------------------------------------------------------------------


@pytest.mark.parametrize("pubkey", ["00" * 32, "f" * 64, key("x").upper(), "x", key("x")[:-1]])
def test_member_needs_a_key_that_can_sign(broker, pubkey):
    body = {"pubkey": pubkey, "name": "x"}
    answer = broker.client(TOKEN).simulate_post(f"{LAB}/members", json=body)
    assert answer.status_code == 400


def test_limits_of_meshes_members_and_places_hold(broker, monkeypatch):
    limits = {"MEMBERS_MAX": 3, "MESHES_MAX": 1, "DESTINATIONS_MAX": 1, "SUBSCRIBERS_MAX": 2}
    for name, value in limits.items():
        monkeypatch.setattr(queries, name, value)
    client = broker.client(TOKEN)
    for path, body in (
        ("/broker/v1/meshes", {"slug": "m"}),
        (f"{LAB}/members", {"pubkey": key("x"), "name": "x"}),
        (f"{LAB}/topics", {"name": "x"}),
    ):
        answer = client.simulate_post(path, json=body)
        assert (answer.status_code, answer.json["code"]) == (409, "TOO_MANY"), path
    full = client.simulate_put(f"{LAB}/topics/alerts/subscribers/anna")
    assert (full.status_code, full.json["code"]) == (409, "TOO_MANY")
