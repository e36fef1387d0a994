"""Sends through a served outbox, and received messages with a cursor."""

import pytest

from appliance.sdk.client import Client
from appliance.sdk.cursor import FileCursor
from appliance.sdk.errors import NotFound, Refused
from tests.support.fake_broker import serve_fake_broker
from tests.support.fakehub import FakeHttp, http_hub
from tests.support.servedhub import serve
from tests.support.until import until

pytestmark = pytest.mark.slow

SETTINGS = """
[[outbox.brokers]]
mesh = "default"
url = "{url}"
"""


def test_send_is_delivered_once_and_has_a_status(tmp_path):
    with (
        serve_fake_broker() as broker_server,
        serve(
            tmp_path,
            settings=SETTINGS.format(url=broker_server.url),
            constants={"appliance.outbox.loops.POLL_SECONDS": 0.05},
        ) as served,
        Client(served.workspace) as client,
    ):
        accepted = client.send("#alerts", "done", meta={"a": 1}, client_message_id="k1")
        assert (accepted.client_message_id, accepted.duplicate) == ("k1", False)
        until(lambda: client.send_status("k1").status == "done", 30, "done")
        row = broker_server.broker.rows["default", "k1"]
        assert (row["body"], row["meta"]) == ("done", {"a": 1})
        again = client.send("#alerts", "done", meta={"a": 1}, client_message_id="k1")
        assert again.broker_message_id == client.send_status("k1").broker_message_id
        with pytest.raises(Refused):
            client.send("#alerts", "other", client_message_id="k1")
        with pytest.raises(NotFound):
            client.send_status("nothing")


def received(number):
    return {
        "number": number, "id": f"in_{number}", "mesh": "default", "sender_pubkey": "a" * 64,
        "sender_name": "anna", "body": f"message {number}",
    }  # fmt: skip


def test_received_messages_come_again_until_they_are_acked(tmp_path):
    health = (200, {}, {"status": "ok", "db_id": "db", "protocol_version": "v1"})
    page = (200, {}, {"mesh": "default", "messages": [received(8), received(9)], "next": 9})
    file = tmp_path / "inbox.cursor"
    fake = FakeHttp(health, page)

    def since():
        return [request["path"] for request in fake.requests if "inbox" in request["path"]]

    with http_hub(fake) as endpoint:
        url = f"http://127.0.0.1:{endpoint.port}"
        with Client(url=url, token="t", inbox_cursor=FileCursor(file)) as client:
            first, _second = client.receive(wait_seconds=0.5)
            client.receive()
            client.ack(first)
        with Client(url=url, token="t", inbox_cursor=FileCursor(file)) as client:
            assert [message.body for message in client.receive(limit=2)] == [
                "message 8",
                "message 9",
            ]
    assert ["since=0" in path for path in since()] == [True, True, False]
    assert "since=8" in since()[2]
