"""Alerts fire because of a real fault of a real appliance, resolve after it, and are delivered."""

import json
import os
import re
import shutil
import signal
import sqlite3
import time
from contextlib import ExitStack, closing, contextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from ops.monitoring import rules
from tests.http.web.test_suspended import damage
from tests.support.http_server import http_server
from tests.support.servedhub import ServedHub
from tests.support.smalldisk import small_disk
from tests.support.until import until
from tests.system.monitoring.prometheus import (
    Prometheus,
    free_port,
    program,
    started,
    with_shared_files,
)

pytestmark = pytest.mark.slow

LIMITS = {"StoreLogLarge": ("100e6", "2e6"), "DiskSpaceLow": ("100e6", "1e6")}
"""Limits of the shipped rules, and those of these tests: the fault is the same, and smaller."""
CONSTANTS = {
    "appliance.kernel.store.WAL_BYTES_TRUNCATE": 100_000,
    "appliance.kernel.store.CHECKPOINT_JOBS": 2,
    "appliance.kernel.log_retention.IDLE_SECONDS": 1.0,
    "appliance.kernel.writerprocess.RESTARTS_MAX": 3,
}
SECONDS_MAX = 120
BLOCKED_SECONDS = 2.0


def quick_rules():
    """The shipped alerts without waits, and with short windows."""
    content = rules.alert_rules()
    for group in content["groups"]:
        for rule in group["rules"]:
            rule.pop("for", None)
            limit, lower = LIMITS.get(rule["alert"].removeprefix(rules.PREFIX), ("", ""))
            rule["expr"] = re.sub(r"\[\d+[mhd]\]", "[10s]", rule["expr"].replace(limit, lower))
    return content


@contextmanager
def monitored(workspace, folder):
    """A served appliance, Prometheus, Alertmanager and its receiver."""
    with ExitStack() as ending:
        hub = ServedHub(workspace, "--no-limits")
        hub.constants = CONSTANTS
        clock = folder / "clock"
        set_clock(clock, 0)
        hub.environment = {"TEST_CLOCK_FILE": str(clock)}
        ending.enter_context(hub.running(ending=signal.SIGKILL))
        site = SimpleNamespace(hub=hub, folder=folder, clock=clock)
        receiver = ending.enter_context(http_server(lambda _request: (200, {}, b"")))
        site.delivered = receiver.requests
        port = free_port()
        command = alertmanager(folder, port, receiver.port)
        ending.enter_context(started(command, port, folder / "alertmanager.log"))
        targets = {"agentlip": (hub.port, hub.token)}
        site.prometheus = Prometheus(folder, quick_rules(), targets, port)
        log = folder / "prometheus.log"
        ending.enter_context(started(site.prometheus.command, site.prometheus.port, log))
        up = 'up{job="agentlip"} == 1'
        until(lambda: site.prometheus.query(up), SECONDS_MAX, "it scrapes", 0.2)
        yield site


def alertmanager(folder, port, receiver_port):
    """Its command, with a receiver that gets each alert at once."""
    url = f"http://127.0.0.1:{receiver_port}/"
    configuration = {
        "route": {
            "receiver": "test", "group_by": ["..."], "group_wait": "0s", "group_interval": "1s",
        },
        "receivers": [
            {"name": "test", "webhook_configs": [{"url": url, "send_resolved": True}]}
        ],
    }  # fmt: skip
    file = folder / "alertmanager.yaml"
    file.write_text(json.dumps(configuration))
    return [
        *with_shared_files(program("prometheus-alertmanager")), f"--config.file={file}",
        f"--storage.path={folder}/alertmanager", f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]  # fmt: skip


# -- faults: each is there while its block runs ----------------------------------------------------


@contextmanager
def appliance_stopped(site):
    os.kill(site.hub.pid, signal.SIGSTOP)
    yield
    os.kill(site.hub.pid, signal.SIGCONT)


@contextmanager
def loop_blocked(site):
    """Again and again until it is noticed: the delay is that of the last ten seconds, and on a
    busy machine their scrapes may fail."""

    def block():
        began = time.monotonic()
        os.kill(site.hub.pid, signal.SIGSTOP)
        until(lambda: time.monotonic() - began > BLOCKED_SECONDS)
        os.kill(site.hub.pid, signal.SIGCONT)

    repeat(site, "LoopBlocked", block, 2.5)
    yield


def repeat(site, name, fault, pause_seconds):
    """Until the alert is delivered."""
    alert = rules.PREFIX + name
    until(lambda: "firing" in delivered(site, alert) or fault(), SECONDS_MAX, alert, pause_seconds)


@contextmanager
def log_held(site):
    """Another program reads the hub's store and doesn't end."""
    _, topic = site.hub.channel_with_topic("held")
    with closing(sqlite3.connect(site.hub.datadir.database("hub"))) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM messages").fetchone()
        for _ in range(8):
            site.hub.send_many(topic, ["x" * 60_000] * 8)
        yield
    for _ in range(6):  # the next checkpoint truncates the log
        site.hub.send(topic, "more")


@contextmanager
def writer_lost(site):
    """It is killed again and again, until no other one is started."""
    log = site.hub.log_text
    lost = "the writer ended 3 times within"
    until(
        lambda: kill_writers(site) < 0 or lost in site.hub.log_text[len(log) :],
        SECONDS_MAX, "it is not started again", 0.2,
    )  # fmt: skip
    yield
    restart(site)


def kill_writers(site):
    """How many."""
    writers = [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if is_writer_of(site.hub.pid, path)
    ]
    for writer in writers:
        os.kill(writer, signal.SIGKILL)
    return len(writers)


@contextmanager
def clock_jumped(site):
    """Again and again: a server that has just started may have no time to compare yet."""
    hours = count(1)
    repeat(site, "ClockJumped", lambda: set_clock(site.clock, next(hours) * 3_600_000), 5.0)
    yield
    set_clock(site.clock, 0)


def set_clock(file, ahead_ms):
    file.with_suffix(".new").write_text(str(ahead_ms))
    file.with_suffix(".new").replace(file)


def is_writer_of(pid, path):
    try:
        parent = int(path.with_name("stat").read_text().rpartition(")")[2].split()[1])
        return parent == pid and b"writerchild" in path.read_bytes()
    except OSError:
        return False


@contextmanager
def backups_in_the_way(site):
    """The folder of backups is a file."""
    folder = site.hub.datadir.dir / "backups"
    shutil.rmtree(folder, ignore_errors=True)
    folder.write_text("not a folder")
    site.hub.http.post("/api/v1/backups", {})
    yield
    folder.unlink()
    site.hub.http.post("/api/v1/backups", {})


@contextmanager
def store_damaged(site):
    """While it is in use; a restart with the former file serves it again."""
    hub = site.hub
    database = hub.datadir.database("broker")
    kept = database.read_bytes()
    damage(hub, "broker")
    assert hub.http.post("/broker/v1/meshes", {"slug": "m"}).status == 503
    yield

    def put_back():
        for file in database.parent.glob("broker.sqlite3*"):
            file.unlink()
        database.write_bytes(kept)

    restart(site, put_back)


def restart(site, between=lambda: None):
    port = site.hub.port
    site.hub.kill()
    between()
    site.hub.start("--port", str(port))


FAULTS = {
    "ApplianceDown": appliance_stopped,
    "LoopBlocked": loop_blocked,
    "StoreLogLarge": log_held,
    "BackupFailing": backups_in_the_way,
    "StoreSuspended": store_damaged,
    "ClockJumped": clock_jumped,
    "WriterLost": writer_lost,
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    workspace, folder = (tmp_path_factory.mktemp(name) for name in ("workspace", "servers"))
    with monitored(workspace, folder) as site:
        yield site


@pytest.mark.parametrize("name", FAULTS)
def test_alert_fires_and_resolves(site, name):
    check(site, rules.PREFIX + name, FAULTS[name](site))


def check(site, alert, fault):
    firing = site.prometheus.firing
    until(lambda: alert not in firing(), SECONDS_MAX, "an earlier fault is over", 0.2)
    site.delivered.clear()
    with fault:
        until(lambda: "firing" in delivered(site, alert), SECONDS_MAX, f"{alert} fires", 0.2)
    until(lambda: "resolved" in delivered(site, alert), SECONDS_MAX, f"{alert} resolves", 0.2)


def delivered(site, alert):
    """The states of an alert that the receiver got."""
    bodies = [json.loads(request.body) for request in site.delivered]
    alerts = [row for body in bodies for row in body["alerts"]]
    return {row["status"] for row in alerts if row["labels"]["alertname"] == alert}


def test_full_disk_fires_and_resolves(tmp_path):
    folder = tmp_path / "servers"
    folder.mkdir()
    with small_disk(tmp_path, "tmpfs", 300) as disk:
        workspace = disk.root / "workspace"
        workspace.mkdir()
        with monitored(workspace, folder) as site:
            check(site, "AgentlipDiskSpaceLow", disk_filled(disk))
            check(site, "AgentlipWritingPaused", disk_filled(disk))


@contextmanager
def disk_filled(disk):
    disk.fill()
    yield
    disk.clear()
