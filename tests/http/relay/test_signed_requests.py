"""Signatures of requests: the order of the checks, and repetitions."""

import sqlite3

import pytest

from appliance.kernel.batch import BatchRunner
from appliance.network.encoding import SKEW_MS
from appliance.network.request import request_headers
from tests.support.relay import RelayFixture, key

URL = "https://anna.example.org/"
ENDPOINT = f'{{"endpoint":"{URL}"}}'.encode()
JSON = {"Content-Type": "application/json"}


class CommitsOfTest(BatchRunner):
    """The next `failing` commits fail."""

    failing = 0

    def commit(self):
        if CommitsOfTest.failing:
            CommitsOfTest.failing -= 1
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorname = "SQLITE_BUSY"
            raise error
        super().commit()


@pytest.fixture
def commits(monkeypatch):
    monkeypatch.setattr(CommitsOfTest, "failing", 0)
    return CommitsOfTest


def headers(relay, by="anna", method="GET", path="/contacts", body=b"", now_ms=None, signer=None):
    now_ms = relay.clock.now_ms() if now_ms is None else now_ms
    return request_headers(signer or key(by), by, method, path, body, now_ms)


@pytest.mark.parametrize("signed_path", ["/admin/broadcasts?limit=1", "/admin/broadcasts"])
def test_signature_may_omit_the_query(relay, signed_path):
    given = headers(relay, path=signed_path)
    assert relay.send("GET", "/admin/broadcasts?limit=1", b"", given).status_code == 200


def test_read_may_be_repeated(relay):
    given = headers(relay)
    for _ in range(2):
        assert relay.send("GET", "/contacts", b"", given).status_code == 200


CHANGES = [
    (ENDPOINT, 0, 200),
    (b'{"endpoint":"ftp://anna.example.org/"}', 0, 400),
    (ENDPOINT, 12, 429),
]


@pytest.mark.parametrize(("body", "requests_before", "status"), CHANGES)
def test_change_is_made_once_beyond_a_restart(tmp_path, body, requests_before, status):
    """A change that was refused too."""
    relay = RelayFixture(tmp_path / "relay")
    relay.add("anna")
    for _ in range(requests_before):
        relay.request("PUT", "/presence", {"endpoint": URL}, by="anna")
    given = headers(relay, method="PUT", path="/presence", body=body) | JSON
    assert relay.send("PUT", "/presence", body, given).status_code == status
    relay.close()
    again = RelayFixture(tmp_path / "relay")
    assert again.send("PUT", "/presence", body, given).json["code"] == "SIGNATURE_USED"
    again.close()


def test_change_that_the_store_refuses_is_not_made_later(relay):
    given = headers(relay, method="POST", path="/contacts/bert/accept")
    assert relay.send("POST", "/contacts/bert/accept", b"", given).status_code == 404
    assert relay.request("POST", "/contacts/request", {"to": "anna"}, by="bert").status_code == 201
    repeated = relay.send("POST", "/contacts/bert/accept", b"", given)
    assert repeated.json["code"] == "SIGNATURE_USED"
    assert relay.request("GET", "/contacts", by="anna").json == []


def test_signature_whose_commit_failed_is_stored_with_the_next_change(tmp_path, commits):
    relay = RelayFixture(tmp_path / "relay", runner=commits)
    relay.add("anna")
    given = headers(relay, method="PUT", path="/presence", body=ENDPOINT) | JSON
    commits.failing = 2  # that of the change and that of its refusal
    assert relay.send("PUT", "/presence", ENDPOINT, given).status_code == 503
    for _ in range(2):
        repeated = relay.send("PUT", "/presence", ENDPOINT, given)
        assert repeated.json["code"] == "SIGNATURE_USED"
    assert relay.request("PUT", "/presence", {"endpoint": URL}, by="anna").status_code == 200
    relay.close()
    again = RelayFixture(tmp_path / "relay")
    assert again.send("PUT", "/presence", ENDPOINT, given).json["code"] == "SIGNATURE_USED"
    again.close()


def test_stored_signatures_expire(relay):
    for _ in range(3):
        endpoint = {"endpoint": "https://anna.example.org/"}
        assert relay.request("PUT", "/presence", endpoint, by="anna").status_code == 200
    relay.clock.pass_seconds(2 * SKEW_MS / 1000)
    count = len(relay.rows("SELECT * FROM used_signature"))
    relay.request("PUT", "/presence", endpoint, by="anna")
    assert len(relay.rows("SELECT * FROM used_signature")) == count - 1


def test_agent_is_limited_to_sixty_requests_a_minute(relay):
    replies = [relay.request("GET", "/contacts", by="anna") for _ in range(61)]
    assert [reply.status_code for reply in replies] == [200] * 60 + [429]
    assert replies[0].headers["x-ratelimit-remaining"] == "59"
    assert replies[60].headers["x-ratelimit-remaining"] == "0"
    assert replies[60].json["ok"] is False
    assert relay.request("GET", "/contacts", by="bert").status_code == 200
    relay.clock.pass_seconds(60)
    assert relay.request("GET", "/contacts", by="anna").status_code == 200


def test_heartbeats_do_not_depend_on_other_requests(relay):
    """An agent that asks too much is not shown as offline, and heartbeats use up nothing else."""
    for _ in range(61):
        relay.request("GET", "/contacts", by="anna")
    assert relay.request("PUT", "/presence", {"endpoint": URL}, by="anna").status_code == 200
    for _ in range(13):
        reply = relay.request("PUT", "/presence", {"endpoint": URL}, by="bert")
    assert reply.status_code == 429
    assert relay.request("GET", "/contacts", by="bert").headers["x-ratelimit-remaining"] == "59"


def test_wrong_signatures_use_up_nothing_of_an_agent(relay):
    for _ in range(70):
        relay.request("GET", "/contacts", by="anna", signer=key("eve"))
    assert relay.request("GET", "/contacts", by="anna").status_code == 200
