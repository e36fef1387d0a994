"""An appliance that nobody uses does almost nothing."""

import re
import time

from tests.support.arenas import arenas_of
from tests.support.until import until

ROUNDS_PER_SECOND_MAX = 10
WATCHED_SECONDS = 4.0
COUNTED = re.compile(r'^agentlip_loop_rounds_total\{loop="(\w+)"\} (\S+)$', re.MULTILINE)


def counted(hub):
    """Rounds of the loops so far."""
    text = hub.http.get("/metrics").raw.decode()
    return {name: float(rounds) for name, rounds in COUNTED.findall(text)}


def test_idle_appliance_uses_almost_no_cpu(hub):
    """Loops wait for work instead of looking for it. A slow machine only makes fewer rounds."""
    began = time.monotonic()
    before = counted(hub)
    until(lambda: time.monotonic() >= began + WATCHED_SECONDS, 60, "some seconds passed", 0.5)
    after = counted(hub)
    seconds = time.monotonic() - began
    rounds = {name: after[name] - before.get(name, 0.0) for name in after}
    # A window of any length holds one round more of each loop than its interval fits into it.
    beyond_edges = sum(max(count - 1, 0) for count in rounds.values())
    assert beyond_edges / seconds < ROUNDS_PER_SECOND_MAX, rounds


def test_server_threads_share_one_arena(hub):
    assert hub.http.get("/api/v1/channels").status == 200, "a reader's thread has started"
    assert arenas_of(hub.pid) == 0
