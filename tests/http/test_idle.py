"""An appliance that nobody uses does almost nothing."""

import re

import pytest

from tests.support.servedhub import serve
from tests.support.until import until

ROUNDS_PER_SECOND_MAX = 10
WATCHED_SECONDS = 4.0
COUNTED = re.compile(r'^agentlip_loop_rounds_total\{loop="(\w+)"\} (\S+)$', re.MULTILINE)


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("idle")) as hub:
        yield hub


def counted(hub):
    """Seconds that the appliance has been up, and the rounds of its loops so far."""
    uptime = hub.http.get("/health").body["uptime_seconds"]
    text = hub.http.get("/metrics").raw.decode()
    return uptime, {name: float(rounds) for name, rounds in COUNTED.findall(text)}


def test_idle_appliance_uses_almost_no_cpu(hub):
    """Loops wait for work instead of looking for it. A slow machine only makes fewer rounds."""
    began, before = counted(hub)
    until(lambda: counted(hub)[0] >= began + WATCHED_SECONDS, 60, "some seconds passed", 0.5)
    ended, after = counted(hub)
    rounds = {name: after[name] - before.get(name, 0.0) for name in after}
    assert sum(rounds.values()) / (ended - began) < ROUNDS_PER_SECOND_MAX, rounds
