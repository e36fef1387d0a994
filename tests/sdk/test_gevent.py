"""The threaded clients in unusual processes: patched by gevent, and after a fork."""

import subprocess
import sys

import pytest

from tests.support.commands import environment
from tests.support.servedhub import serve

GREENLETS = """
from gevent import monkey
monkey.patch_all()
import gevent, sys
from appliance.sdk.client import Client

topic_id, count = sys.argv[1], int(sys.argv[2])
found, ticks = [], []

def follow():
    for event in hub.events():
        if event.name == "message.created":
            found.append(event.data["message"]["content_raw"])

def tick():
    while True:
        ticks.append(1)
        gevent.sleep(0.001)

with Client() as hub:
    follower, ticker = gevent.spawn(follow), gevent.spawn(tick)
    senders = [gevent.spawn(hub.send_message, topic_id, "g", str(n)) for n in range(count)]
    gevent.joinall(senders, timeout=30, raise_error=True)
    with gevent.Timeout(30):
        while len(found) < count:
            gevent.sleep(0.01)
    hub.close()
    follower.join(10)
    assert follower.ready(), "the stream did not end"
    follower.get()
    ticker.kill()
assert sorted(found, key=int) == [str(n) for n in range(count)], found
assert len(ticks) > 10, "others had no turn"
print("fine")
"""

FORK = """
import os, sys
from appliance.sdk import Client, Producer, Retry, envelope, find_hub

topic_id, count = sys.argv[1], int(sys.argv[2])
with Client(retry=Retry(attempts_max=1)) as hub, Producer(find_hub) as producer:
    for child in None, os.fork:
        child = child and child()
        for text in (f"{os.getpid()}-{number}" for number in range(count)):
            assert hub.send_message(topic_id, "f", text).message.content_raw == text
        assert producer.send_many("forked", (envelope("t", n) for n in range(count))) == count
    if child:
        assert os.waitpid(child, 0)[1] == 0
        assert len(list(hub.messages(topic_id))) == 3 * count
        print("fine")
"""


@pytest.mark.parametrize("program", [GREENLETS, FORK], ids=["gevent", "fork"])
def test_client_serves_greenlets_and_forked_processes(tmp_path, program) -> None:
    with serve(tmp_path) as hub:
        _, topic_id = hub.channel_with_topic("general")
        done = subprocess.run(
            [sys.executable, "-c", program, topic_id, "100"],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
    assert (done.returncode, done.stdout.strip()) == (0, "fine"), done.stderr
