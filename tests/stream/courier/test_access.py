"""A created token can use only the streams of its scopes, also on sockets."""

from tests.support.courier import (
    enqueue,
    receive_frame,
    send,
    subscribed,
)

LONG = "agents/" + "x" * 243 + "/inbox"  # the longest name of a stream


def test_created_token_subscribes_only_to_its_streams(hub):
    body = {"name": "jo", "scopes": [f"streams:{LONG}:subscribe", "streams:agents/Jo/*:enqueue"]}
    token = hub.request("POST", "/api/v1/tokens", body)["secret"]
    with subscribed(hub, LONG, token=token) as consumer:
        send(consumer, credit=1)
        enqueue(hub, LONG, "for-jo")
        assert receive_frame(consumer)["deliver"]["id"] == "for-jo"
    with subscribed(hub, "agents/Jo/inbox", token=token) as consumer:
        assert receive_frame(consumer)["error"]["code"] == 403
