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


@pytest.mark.parametrize(
    ("changed", "field"),
    [({"id": "a\nb"}, "envelope.id"), ({"priority": 10}, "envelope.priority"),
     ({"tags": "x"}, "envelope.tags")],
)  # fmt: skip
def test_wrong_field_is_named(client, changed, field):
    body = {"to": INBOX, "envelope": envelope("e") | changed}
    assert post(client, "/v1/enqueue", body, 400)["details"]["field"].startswith(field)
    enqueue(client, "e", to="a*b", status=400)


def test_batch_is_all_or_nothing_and_the_error_has_the_index(client):
    good, bad = envelope("a"), {"id": "b"}
    answer = post(client, "/v1/enqueue/batch", {"to": INBOX, "envelopes": [good, bad]}, 400)
    assert answer["details"]["field"].startswith("envelopes[1]")
    answer = post(client, "/v1/enqueue/batch", {"to": INBOX, "envelopes": [good, envelope("b")]})
    assert answer["ids"] == ["a", "b"]
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
