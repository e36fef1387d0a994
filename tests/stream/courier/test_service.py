"""A receive that waits on a served appliance."""

import threading

from tests.support.courier import (
    enqueue,
)
from tests.support.until import until


def has_subscriber(hub, stream):
    return any(
        row["id"] == stream and row["stats"]["subscribers"]
        for row in hub.request("GET", "/v1/stats")["streams"]
    )


def test_long_poll_ends_with_the_first_envelope(hub, stream):
    answers = []

    def poll():
        body = {"stream": stream, "max": 5, "wait": 20}
        answers.append(hub.request("POST", "/v1/receive", body))

    thread = threading.Thread(target=poll)
    thread.start()
    until(lambda: has_subscriber(hub, stream), 10, "the receiver waits")
    enqueue(hub, stream, "a")
    thread.join(10)
    (answer,) = answers
    assert [delivery["deliver"]["id"] for delivery in answer["deliveries"]] == ["a"]
    assert answer["receiver"].startswith("receiver-")
