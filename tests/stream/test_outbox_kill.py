"""kill -9 while sends are accepted and delivered, and a network that loses answers: every accepted
send reaches the receiver, once after its dedupe."""

import random

import pytest

from tests.support.ledger import Cut, broker
from tests.support.sends import Load
from tests.support.servedhub import ServedHub
from tests.support.until import until

TIMES = 5
SETTINGS = """
[outbox]
writer = "{writer}"
poll_seconds = 0.05
backoff_first_ms = 20
backoff_max_ms = 200

[[outbox.brokers]]
mesh = "default"
url = "{url}"
"""


@pytest.mark.slow
@pytest.mark.parametrize("writer", ["thread", "process"])
def test_nothing_accepted_is_lost_or_doubled_by_kills_and_cuts(tmp_path, writer):
    chance = random.Random(writer)
    with broker() as scene:

        def sometimes_cut(_path, _body):
            if chance.random() < 0.05:
                raise Cut

        scene.before = sometimes_cut
        scene.after = lambda _path: chance.random() < 0.1
        hub = ServedHub(
            tmp_path, "--no-limits", settings=SETTINGS.format(url=scene.url, writer=writer)
        )
        accepted, asked = {}, {}
        try:
            for time in range(TIMES):
                hub.start()
                load = Load(hub, f"r{time}")
                wanted = chance.randint(20, 400)
                until(lambda load=load, wanted=wanted: len(load.accepted) > wanted, 30, "load")
                hub.kill()
                load.join()
                accepted |= load.accepted
                asked |= load.asked
            hub.start()
            until(lambda: not open_sends(hub), 60, "all has ended")
            agree(hub, scene.ledger, accepted, asked)
        finally:
            hub.kill()


def open_sends(hub):
    depth = hub.http.get("/v1/outbox").body["depth"]
    return depth["pending"] + depth["inflight"]


def agree(hub, ledger, accepted, asked):
    received = {key: row["body"] for (_, key), row in ledger.rows.items()}
    assert accepted.items() <= received.items(), "an accepted send did not arrive"
    assert received.items() <= asked.items(), "what arrived was never sent so"
    client = hub.http
    for key in random.Random(1).sample(sorted(accepted), 20):
        found = client.get(f"/v1/outbox/inspect?id={key}").body["send"]
        assert found["status"] == "done"
        assert found["broker_message_id"] == ledger.rows["default", key]["broker_message_id"]
    assert len(ledger.asked) > len(received), "nothing was ever repeated: the test is too kind"
