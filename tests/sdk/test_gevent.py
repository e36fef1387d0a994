"""The threaded client in a process that gevent has patched: greenlets instead of threads."""

import subprocess
import sys

from tests.support.commands import environment
from tests.support.servedhub import serve

PROGRAM = """
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


def test_greenlets_follow_and_send(tmp_path) -> None:
    with serve(tmp_path) as hub:
        _, topic_id = hub.channel_with_topic("general")
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, topic_id, "100"],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
    assert (done.returncode, done.stdout.strip()) == (0, "fine"), done.stderr
