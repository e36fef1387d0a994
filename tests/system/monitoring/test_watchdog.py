"""systemd gets a report when the appliance is ready, while its loop runs, and when it stops."""

import os
import signal
import socket
from contextlib import suppress

import pytest

from appliance.monitoring.watchdog import notify
from tests.support.servedhub import ServedHub


@pytest.fixture
def manager(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(30)
        yield receiver


def test_served_appliance_reports_its_life(manager, tmp_path):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    hub = ServedHub(workspace)
    hub.environment = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "1500000"}
    with hub.running():
        assert manager.recv(100) == b"READY=1"
        assert manager.recv(100) == b"WATCHDOG=1"
        os.kill(hub.pid, signal.SIGSTOP)
        assert len(reports_until_silence(manager)) < 5, "at most those that were sent before"
        os.kill(hub.pid, signal.SIGCONT)
        assert manager.recv(100) == b"WATCHDOG=1"
        assert hub.stop() == 0
    assert b"STOPPING=1" in reports_until_silence(manager)


def reports_until_silence(manager):
    """Silence is one second, two periods of the reports."""
    reports = []
    manager.settimeout(1)
    with suppress(TimeoutError):
        while len(reports) < 5:
            reports.append(manager.recv(100))
    manager.settimeout(30)
    return reports


@pytest.mark.parametrize("address", [None, "", "relative", "/nobody/listens", "@nobody"])
def test_nothing_is_reported_where_nobody_listens(monkeypatch, address):
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if address is not None:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify("READY=1")
    assert os.environ.get("NOTIFY_SOCKET") == address
