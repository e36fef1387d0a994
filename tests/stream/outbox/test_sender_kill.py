"""kill -9 while sends are accepted and delivered, and a network that loses answers: every accepted
send reaches the receiver, once after its dedupe."""

import random
from itertools import count

import pytest

from tests.support.fake_broker import ConnectionCut, serve_fake_broker
from tests.support.killed_senders import SendLoad
from tests.support.servedhub import ServedHub
from tests.support.until import until

TIMES = 3
CONSTANTS = {"appliance.outbox.loops.POLL_SECONDS": 0.05}
SETTINGS = """
[outbox]
retry = {{ initial_seconds = 0.02, max_seconds = 0.2 }}

[[outbox.brokers]]
mesh = "default"
url = "{url}"
"""


@pytest.mark.slow
def test_accepted_sends_are_delivered_once_despite_kills_and_cuts(tmp_path):
    randomness = random.Random("kills")
    with serve_fake_broker() as broker_server:

        def sometimes_cut(_path, _body):
            if randomness.random() < 0.05:
                raise ConnectionCut

        broker_server.before = sometimes_cut
        replies = count()
        broker_server.after = lambda _path: next(replies) % 10 == 0  # the first is lost too
        hub = ServedHub(tmp_path, "--no-limits", settings=SETTINGS.format(url=broker_server.url))
        hub.constants = CONSTANTS
        accepted, attempted = {}, {}
        try:
            for time in range(TIMES):
                hub.start()
                load = SendLoad(hub, f"r{time}")
                wanted = randomness.randint(20, 400)
                until(lambda load=load, wanted=wanted: len(load.accepted) > wanted, 30, "load")
                hub.kill()
                load.join()
                accepted |= load.accepted
                attempted |= load.attempted
            hub.start()
            until(lambda: not open_sends(hub), 60, "all has ended")
            agree(hub, broker_server.broker, accepted, attempted)
        finally:
            hub.kill()


def open_sends(hub):
    depth = hub.http.get("/v1/outbox").body["depth"]
    return depth["pending"] + depth["inflight"]


def agree(hub, broker, accepted, attempted):
    received = {key: row["body"] for (_, key), row in broker.rows.items()}
    assert accepted.items() <= received.items(), "an accepted send did not arrive"
    assert received.items() <= attempted.items(), "what arrived was never sent so"
    client = hub.http
    for key in random.Random(1).sample(sorted(accepted), 20):
        row = client.get(f"/v1/outbox/inspect?id={key}").body["send"]
        assert row["status"] == "done"
        assert row["broker_message_id"] == broker.rows["default", key]["broker_message_id"]
    assert len(broker.received_ids) > len(received), (
        "nothing was ever repeated: the test is too kind"
    )
