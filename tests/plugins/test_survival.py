"""No process of a plugin outlives the appliance, whatever the plugin does."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.commands import agentlip
from tests.support.plugins import alive, caught_up, children_of, plugin, settings_of
from tests.support.servedhub import serve
from tests.support.until import until

STAYS = """
import ctypes, os, signal, time
libc = ctypes.CDLL(None)
def enrich(message, config):
    if "!stay" not in message["content_raw"]:
        return []
    libc.prctl(1, 0, 0, 0, 0)
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    while True:
        time.sleep(1)
"""


def test_a_plugin_that_tries_to_stay_ends_with_a_killed_appliance(tmp_path):
    """Its supervisor is killed in the same moment; and after a new start another one works."""
    text = settings_of(tmp_path, ("stays", "linkifier", "evil"), timeout_seconds=600.0)
    (tmp_path / "plugins" / "evil.py").write_text(STAYS)
    with serve(tmp_path, settings=text) as hub:
        _, topic = hub.channel_with_topic("a")
        hub.send(topic, "hello")
        caught_up(hub, "stays")
        listed = agentlip("plugin", "list", cwd=tmp_path).out
        isolation = plugin(hub, "stays")["isolation"]
        assert f"uid {isolation['uid']}" in listed
        assert ("OPEN: root" in listed) is (isolation["uid"] == 0)
        if isolation["survival"] != "denied":
            pytest.skip("neither a filter nor a namespace here, and that is said")
        [supervisor] = children_of(hub.pid)
        hub.send(topic, "!stay")
        until(lambda: children_of(supervisor), 10, "the plugin's process")
        [stays] = children_of(supervisor)
        until(lambda: "S" in state_of(stays), 10, "it sleeps")
        hub.kill()
        subprocess.run(["kill", f"-{int(signal.SIGKILL)}", str(supervisor)], check=False)
        until(lambda: not alive(supervisor) and not alive(stays), 10, "all of it ends")
        hub.start()
        assert hub.http.get("/-/healthy").status == 200


def state_of(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
