"""The image as a newcomer meets it: boots on nothing, says where things are, goes quietly."""

import json
import time

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.system.box import message

pytestmark = [pytest.mark.container, pytest.mark.slow]
STOP_SECONDS_MAX = 2.0


def test_boots_on_an_empty_volume_and_serves(box, volume):
    appliance = box(volume()).start()

    status, health = appliance.request("GET", "/health")
    assert (status, health["status"], health["protocol_version"]) == (200, "ok", "v1")
    assert len(appliance.token) >= 32
    topic = appliance.topic()
    status, reply = appliance.request("POST", "/api/v1/messages", message(topic, "hello"))
    assert status == 201
    assert reply["message"]["content_raw"] == "hello"

    output = appliance.output()
    assert "7464" in output
    assert "/data/.agentlip/token" in output
    assert appliance.token not in output


def test_health_check_fails_with_the_reason_while_it_is_not_ready(box, volume):
    appliance = box(volume()).start()
    appliance.wrapped.reload()
    check = appliance.wrapped.attrs["Config"]["Healthcheck"]["Test"]
    assert check[0] == "CMD"
    assert "Status: running\n" in appliance.sh(" ".join(check[1:]))
    appliance.sh("mv /data/.agentlip/db.sqlite3 /data/.agentlip/moved")
    output = appliance.sh(" ".join(check[1:]), expect=3)
    assert "Status: running, not ready\nReason: store.writer: hub: " in output


def test_exports_are_json_lines_and_parquet_names_the_other_image(box, volume):
    appliance = box(volume()).start()
    appliance.topic()
    refused = appliance.sh("agentlip export segments", expect=18)
    assert "Hint: pip install 'agentlip[export]', or use the image agentlip-export" in refused
    done = json.loads(appliance.sh("agentlip export segments --format jsonl --json"))
    assert done["logs"][0]["rows"] == 2
    appliance.sh("agentlip export verify /data/.agentlip/export")


def test_neither_root_nor_a_writable_root_filesystem(box, volume):
    appliance = box(volume()).start()
    assert appliance.sh("id -u").strip() == "10001"
    for path in ["/", "/etc", "/opt/agentlip", "/usr/local/bin", "/var/tmp"]:
        appliance.sh(f"echo x >{path}/x", expect=2)
    for path in ["/data", "/tmp"]:
        appliance.sh(f"echo x >{path}/x")
    modes = appliance.sh("cd /data/.agentlip && stat -c '%a %U' token server.json")
    assert modes.split("\n")[:2] == ["600 agentlip", "600 agentlip"]


def drain(socket):
    while True:
        socket.recv(timeout=5)


def test_a_stop_closes_sockets_with_1001_and_is_quick(box, volume):
    appliance = box(volume()).start()
    address = f"ws://127.0.0.1:{appliance.port}/ws?token={appliance.token}"
    with connect(address) as socket:
        socket.send(json.dumps({"type": "hello", "after_event_id": 0}))
        assert json.loads(socket.recv(timeout=5))["type"] == "hello_ok"

        began = time.monotonic()
        appliance.signal("SIGTERM")
        with pytest.raises(ConnectionClosed) as closed:
            drain(socket)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1001
    assert appliance.exit_code() == 0
    assert time.monotonic() - began < STOP_SECONDS_MAX


def test_beyond_loopback_is_refused_unless_said(box, volume):
    up = ["agentlipd", "up", "--foreground", "--workspace", "/data"]
    code, output = box(volume(), *up, "--host", "0.0.0.0", "--port", "7464").run()
    assert code == 1
    assert "--unsafe-network" in output
    assert "Traceback" not in output
