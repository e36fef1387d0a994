"""Two appliances and their relay are each killed ten times while 2,000 messages pass."""

import http.client
import threading
from functools import partial

import pytest

from tests.cli.test_network_faults import Appliances
from tests.support.database_files import read
from tests.support.until import until

pytestmark = pytest.mark.slow
MESSAGES = 1000  # from each of both agents
KILLS = 10  # for each process
BATCH = 10
WAITING = 40  # messages that an agent sends ahead of their arrival
SECONDS_MAX = 120


def received(hub):
    rows = read(hub.datadir.database("inbox"), "SELECT body FROM inbox ORDER BY number")
    return [body for (body,) in rows]


def post(hub, items):
    """Whether the appliance has accepted all of them; it may be killed meanwhile."""
    try:
        answer = hub.connect().post("/v1/send/batch", {"items": items})
    except (OSError, http.client.HTTPException):
        return False
    assert {result["status"] for result in answer.body["results"]} <= {200, 202}, answer
    return True


def send_all(hub, recipient, texts, arrived):
    for start in range(0, len(texts), BATCH):
        items = [
            {"to": f"network:{recipient}", "message": text, "client_message_id": text}
            for text in texts[start : start + BATCH]
        ]
        until(lambda least=start - WAITING: arrived() >= least, SECONDS_MAX, "arrivals")
        until(partial(post, hub, items), SECONDS_MAX, "the appliance accepts a batch")


def test_messages_arrive_once_in_order_although_each_process_is_killed(tmp_path):
    appliances = Appliances(tmp_path, "[[outbox.in_order]]\n")
    anna, bert = appliances.first, appliances.second
    texts = {name: [f"{name}-{n}" for n in range(MESSAGES)] for name in ("anna", "bert")}
    senders = [
        threading.Thread(
            target=send_all, daemon=True,
            args=(hub, to, texts[name], lambda other=other: len(received(other))),
        )
        for hub, name, other, to in ((anna, "anna", bert, "bert"), (bert, "bert", anna, "anna"))
    ]  # fmt: skip
    with appliances.running():
        for sender in senders:
            sender.start()
        for kill in range(3 * KILLS):
            wanted = 2 * MESSAGES * (kill + 1) // (3 * KILLS + 1)
            until(
                lambda wanted=wanted: len(received(anna)) + len(received(bert)) >= wanted,
                SECONDS_MAX, f"{wanted} messages",
            )  # fmt: skip
            hub = appliances.hubs[kill % 3]
            hub.kill()
            appliances.start(hub)
        for sender in senders:
            sender.join(SECONDS_MAX)
        until(lambda: len(received(bert)) >= MESSAGES, SECONDS_MAX, "anna's messages")
        until(lambda: len(received(anna)) >= MESSAGES, SECONDS_MAX, "bert's messages")
    assert received(bert) == texts["anna"]
    assert received(anna) == texts["bert"]
