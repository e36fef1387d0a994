"""Alerts fire because of a real fault of a real appliance, resolve after it, and are delivered."""

import json
import os
import re
import shutil
import signal
import sqlite3
import time
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from ops.monitoring import rules
from tests.http.web.test_suspended import damage
from tests.support.http_server import http_server
from tests.support.plugins import settings_of
from tests.support.servedhub import ServedHub
from tests.support.smalldisk import small_disk
from tests.support.until import until
from tests.support.webhook_receiver import webhook_receiver
from tests.system.monitoring.prometheus import (
    Prometheus,
    free_port,
    program,
    started,
    with_shared_files,
)

pytestmark = pytest.mark.slow

LIMITS = {
    "StoreLogLarge": ("100e6", "2e6"),
    "OldestReady": ("600", "2"),
    "DiskSpaceLow": ("100e6", "1e6"),
}
"""Limits of the shipped rules, and those of these tests: the fault is the same, and smaller."""
CONSTANTS = {
    "appliance.hub.plugins.plugin.PAUSES": {"initial_seconds": 4.0},
    "appliance.kernel.store.WAL_BYTES_TRUNCATE": 100_000,
    "appliance.kernel.store.CHECKPOINT_JOBS": 2,
    "appliance.kernel.log_retention.IDLE_SECONDS": 1.0,
    "appliance.kernel.writerprocess.RESTARTS_MAX": 3,
}
ENVELOPE = {"id": "e", "ts": "2026-01-01T00:00:00Z", "type": "t", "payload": 1}
DAYS = 86_400
SECONDS_MAX = 120


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
    """A served appliance, Prometheus, Alertmanager, its receiver, and a fake prober."""
    with ExitStack() as ending:
        settings = settings_of(workspace, ("marks", "linkifier", "marks"))
        hub = ServedHub(workspace, "--no-limits", settings=settings)
        hub.constants = CONSTANTS
        clock = folder / "clock"
        set_clock(clock, 0)
        hub.environment = {"TEST_CLOCK_FILE": str(clock)}
        ending.enter_context(hub.running(ending=signal.SIGKILL))
        site = SimpleNamespace(hub=hub, certificate_days=90, folder=folder, clock=clock)
        prober = ending.enter_context(http_server(lambda _request: (200, {}, certificate(site))))
        receiver = ending.enter_context(http_server(lambda _request: (200, {}, b"")))
        site.delivered = receiver.requests
        port = free_port()
        command = alertmanager(folder, port, receiver.port)
        ending.enter_context(started(command, port, folder / "alertmanager.log"))
        targets = {"agentlip": (hub.port, hub.token), "agentlip-tls": (prober.port, "-")}
        site.prometheus = Prometheus(folder, quick_rules(), targets, port)
        log = folder / "prometheus.log"
        ending.enter_context(started(site.prometheus.command, site.prometheus.port, log))
        up = 'up{job="agentlip"} == 1'
        until(lambda: site.prometheus.query(up), SECONDS_MAX, "it scrapes", 0.2)
        yield site


def certificate(site):
    """What the blackbox exporter says."""
    end = time.time() + site.certificate_days * DAYS
    return f"probe_ssl_earliest_cert_expiry {end:f}\n".encode()


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
    os.kill(site.hub.pid, signal.SIGSTOP)
    until(lambda: site.prometheus.query('up{job="agentlip"} == 0'), SECONDS_MAX, "it hangs")
    os.kill(site.hub.pid, signal.SIGCONT)
    yield


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
def writer_killed(site):
    assert kill_writers(site) == 1
    yield


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
    set_clock(site.clock, 3_600_000)
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
def envelope_rejected(site):
    post = site.hub.http.post
    enqueued(site, "rejected")
    got = post("/v1/receive", {"stream": "rejected", "max": 1}).body
    rejection = {"receiver": got["receiver"], "ids": ["e"], "mode": "reject"}
    assert post("/v1/nack", rejection).status == 200
    yield
    post("/v1/streams/purge", {"stream": "rejected", "state": "dead"})


@contextmanager
def consumer_missing(site):
    enqueued(site, "waiting")
    yield
    site.hub.http.post("/v1/streams/purge", {"stream": "waiting", "state": "ready"})


def enqueued(site, stream):
    answer = site.hub.http.post("/v1/enqueue", {"to": stream, "envelope": ENVELOPE})
    assert answer.status == 200, answer


@contextmanager
def plugin_failing(site):
    _, topic = site.hub.channel_with_topic("plugin")
    for _ in range(5):
        site.hub.send(topic, "!die")
    yield
    site.hub.send(topic, "!good")  # after the pause


@contextmanager
def receiver_gone(site):
    """The receiver of a webhook answers 410."""
    with webhook_receiver() as receiver:
        receiver.answer = lambda _request: (410, {})
        webhook = {"url": receiver.url, "events": {"names": ["message.created"]}}
        site.hub.made(site.hub.http.post("/api/v1/webhooks", webhook))
        site.hub.send(site.hub.channel_with_topic("webhook")[1])
        yield


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
def certificate_near_its_end(site):
    site.certificate_days = 1
    yield
    site.certificate_days = 90


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
    "WriterRestarted": writer_killed,
    "DeadLetters": envelope_rejected,
    "OldestReady": consumer_missing,
    "PluginPaused": plugin_failing,
    "WebhookDisabled": receiver_gone,
    "BackupFailing": backups_in_the_way,
    "CertificateEnding": certificate_near_its_end,
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
    with fault:
        until(lambda: alert in firing(), SECONDS_MAX, f"{alert} fires", 0.2)
    until(lambda: alert not in firing(), SECONDS_MAX, f"{alert} resolves", 0.2)
    until(lambda: delivered(site, alert) == {"firing", "resolved"}, SECONDS_MAX, "delivered", 0.2)


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


def test_injected_alerts_exist():
    assert {row["name"] for row in rules.CONTENT["alert"]} >= FAULTS.keys()
