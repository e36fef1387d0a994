"""Enqueuing over HTTP: the reply, validation, batches, duplicates."""

import pytest

from tests.support.courier import (
    INBOX,
    envelope,
)
from tests.support.courier_http import enqueue, get, post, receive


def test_enqueue_returns_the_id_and_sets_to(client):
    assert enqueue(client, "e-1") == {"id": "e-1", "boot_id": "boot-1"}
    (delivered,) = receive(client)["deliveries"]
    assert delivered["deliver"] == {**envelope("e-1"), "to": INBOX}


def test_unknown_fields_are_passed_on_unchanged(client):
    odd = {"custom": {"deep": [1, 2.5, None]}, "schema": "x@v1", "version": 1, "to": INBOX}
    enqueue(client, "e-1", **odd)
    assert receive(client)["deliveries"][0]["deliver"] == {**envelope("e-1"), **odd}


def test_to_of_the_request_overrides_to_of_the_envelope(client):
    notices = envelope("e-1", to="elsewhere")
    post(client, "/v1/enqueue", {"to": INBOX, "envelope": notices})
    assert receive(client)["deliveries"][0]["deliver"]["to"] == INBOX


@pytest.mark.parametrize("missing", ["id", "ts", "type", "payload"])
def test_required_fields_are_named(client, missing):
    body = envelope("e-1")
    del body[missing]
    answer = post(client, "/v1/enqueue", {"to": INBOX, "envelope": body}, 400)
    assert answer["details"]["field"] == f"envelope.{missing}"
    assert answer["code"] == "INVALID_ENVELOPE"


@pytest.mark.parametrize(
    ("field", "value"),
    [("id", ""), ("id", 7), ("id", "a\nb"), ("priority", 10), ("delayMs", -1), ("tags", "x")],
)
def test_wrong_fields_are_named(client, field, value):
    answer = enqueue(client, **{"id_": "e", field: value} if field != "id" else {"id_": value},
                     status=400)  # fmt: skip
    assert answer["details"]["field"].startswith(f"envelope.{field}")


def test_nul_and_a_number_out_of_range_are_refused(client):
    text = '{"to":"a","envelope":{"id":"a","ts":"x","type":"t","payload":[1e400,"\\u0000"]}}'
    headers = {"Content-Type": "application/json"}
    result = client.simulate_post("/v1/enqueue", body=text, headers=headers)
    assert (result.status_code, result.json["code"]) == (400, "INVALID_INPUT")


@pytest.mark.parametrize("name", ["a*b", "a//b", "/a", "a/", "a\nb"])
def test_invalid_stream_names_are_refused(client, name):
    enqueue(client, "e", to=name, status=400)


def test_batch_is_all_or_nothing_and_the_error_has_the_index(client, monkeypatch):
    good, bad = envelope("a"), {"id": "b"}
    answer = post(client, "/v1/enqueue/batch", {"to": INBOX, "envelopes": [good, bad]}, 400)
    assert answer["details"]["field"].startswith("envelopes[1]")
    turns = []  # each envelope is a piece, and others are served after each but the first
    monkeypatch.setattr("appliance.kernel.turns.PIECE_SECONDS", 0.0)
    monkeypatch.setattr("appliance.kernel.turns.serve_others", lambda: turns.append(1))
    answer = post(client, "/v1/enqueue/batch", {"to": INBOX, "envelopes": [good, envelope("b")]})
    assert (answer["ids"], turns) == (["a", "b"], [1])
    assert get(client, "/v1/stats", stream=INBOX)["depth"] == 2


def test_duplicate_is_not_enqueued_again(client):
    enqueue(client, "e-1")
    assert enqueue(client, "e-1")["duplicate"] is True
    got = receive(client)
    assert len(got["deliveries"]) == 1
    post(client, "/v1/ack", {"receiver": got["receiver"], "ids": ["e-1"]})
    assert enqueue(client, "e-1")["id"] == "e-1"
    stats = get(client, "/v1/stats", stream=INBOX)
    assert (stats["depth"], stats["duplicates"], stats["acked"]) == (0, 2, 1)
