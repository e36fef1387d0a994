"""Access to streams over HTTP: scopes, receivers, loopback clients."""

from tests.support.courier import INBOX, SCOPED_TOKEN, CourierFixture
from tests.support.courier_http import enqueue, get, post, receive
from tests.support.http import NARROW_TOKEN, TOKEN


def test_scopes_are_checked_for_each_stream(courier):
    jen = courier.client(SCOPED_TOKEN)
    enqueue(jen, "a")
    assert enqueue(jen, "a", to="agents/Bo/inbox", status=403)["details"]["scope"] == (
        "streams:agents/Bo/inbox:enqueue"
    )
    assert len(receive(jen, "agents/*/inbox")["deliveries"]) == 1
    post(jen, "/v1/receive", {"stream": "*"}, 403)
    post(jen, "/v1/streams/pause", {"stream": INBOX}, 403)
    get(jen, "/v1/snapshot", 403, view="latestPerAgent")
    get(jen, "/v1/rules", 403)
    assert get(courier.client(TOKEN), "/v1/rules") == {"rules": []}
    assert post(courier.client(TOKEN), "/v1/streams/pause", {"stream": INBOX})["paused"]
    assert [row["id"] for row in get(jen, "/v1/stats")["streams"]] == [INBOX]


def test_receiver_of_another_token_is_409(courier):
    enqueue(courier.client(), "a")
    got = receive(courier.client())
    ack = {"receiver": got["receiver"], "ids": ["a"]}
    post(courier.client(SCOPED_TOKEN), "/v1/ack", ack, 409)
    post(courier.client(), "/v1/ack", ack)


def test_loopback_is_free_until_tokens_are_configured(courier, tmp_path):
    file = tmp_path / "token"
    file.write_text("secret")
    row = {"token_file": str(file), "scopes": ["streams:*:enqueue"]}
    enqueue(CourierFixture(tokens=[row]).client(), "a", status=401)
    enqueue(courier.client(address="192.0.2.7"), "a", status=401)
    enqueue(courier.client(TOKEN, address="192.0.2.7"), "a")
    assert courier.client(NARROW_TOKEN).simulate_get("/v1/stats").status_code == 401
