"""Received messages with a cursor."""

from appliance.sdk.client import Client
from appliance.sdk.cursor import FileCursor
from tests.support.faulty_hub import FakeHttp, http_hub


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
