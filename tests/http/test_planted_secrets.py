"""Secrets and texts that a served appliance gets by every way in are nowhere but in its stores: not
in the log, error bodies, metrics, the support bundle, nor unencrypted in a backup."""

import gzip
from pathlib import Path

import pyrage
import pytest

from tests.support.commands import succeed
from tests.support.http_server import http_server
from tests.support.servedhub import serve
from tests.support.socketclient import SocketClient
from tests.support.until import until

pytestmark = pytest.mark.slow
CANARY = "kanarienvogel"
SECRET = f"{CANARY}-0123456789abcdef0123456789abcdef"
RECIPIENT = str(pyrage.x25519.Identity.generate().to_public())
SETTINGS = f"""
[log]
level = "debug"
access = "all"
slow_seconds = 0.001
[backup]
recipients = ["{RECIPIENT}"]
verify = false
[mail]
host = "127.0.0.1"
port = 9
sender = "a@example.org"
user = "{CANARY}-user"
password_file = "FOLDER/password"
[webhooks]
allow_private = true
[outbox]
mesh = "lab"
[[outbox.brokers]]
mesh = "lab"
url = "http://127.0.0.1:9"
"""
ENVELOPE = {"ts": "2026-01-01T00:00:00Z", "type": "t", "payload": {"password": SECRET}}
WRONG = [
    ("/api/v1/channels", f'{{"name": "{CANARY}'.encode()),  # cut off
    ("/api/v1/messages", f'{{"topic_id": "t", "sender": 1, "content_raw": "{SECRET}"}}'.encode()),
    (
        "/api/v1/messages",
        f'{{"topic_id": "no", "sender": "{CANARY}", "content_raw": "x"}}'.encode(),
    ),
    ("/v1/enqueue", f'{{"to": "s", "envelope": {{"payload": "{SECRET}"}}}}'.encode()),
    ("/v1/send", f'{{"to": "#t", "message": "{SECRET}", "priority": 7}}'.encode()),
    ("/v1/send", f'{{"to": "#t", "message": "{SECRET}", "meta": [1]}}'.encode()),
    ("/bus/v1/messages", f'{{"from_agent": "a", "payload": "{SECRET}"}}'.encode()),
    ("/mcp", f'{{"jsonrpc": "2.0", "method": "{CANARY}"'.encode()),
    ("/api/v1/tokens", f'{{"name": 1, "token": "{SECRET}"}}'.encode()),
    ("/api/v1/webhooks", f'{{"url": "https://user:{SECRET}@hooks.example", "secret": 1}}'.encode()),
]


def refused(hub):
    """The bodies of the errors of requests with secrets."""
    client = hub.connect()
    for path, raw in WRONG:
        yield client("POST", path, raw=raw, headers={"Content-Type": "application/json"})
    for headers in (
        {"Authorization": f"Bearer {SECRET}"}, {"Authorization": f"Basic {SECRET}"},
        {"Cookie": f"agentlip_session={SECRET}"}, {"X-Agentlip-Signature": SECRET},
        {"Idempotency-Key": f"{SECRET} \t"}, {"Traceparent": SECRET},
        {"X-Request-ID": f"{SECRET} x"},
    ):  # fmt: skip
        yield client("GET", "/api/v1/tokens", headers=headers)
        yield client("POST", "/api/v1/channels", {"name": ""}, headers=headers)
    yield client("GET", f"/api/v1/channels?token={SECRET}")
    yield client("GET", f"/api/v1/nothing/{SECRET}")


def keep(hub, url):
    """Secrets and texts in stores, and failures around them."""
    command = {"name": "t", "scopes": ["hub:read"]}
    token = hub.made(hub.http.post("/api/v1/tokens", command))["secret"]
    _, topic = hub.channel_with_topic("c")
    for text in (SECRET, f"see https://user:{SECRET}@{CANARY}.example/"):
        hub.send(topic, text)
    webhook = {
        "url": f"{url}/{SECRET}",
        "events": {"names": ["message.created"]},
        "secret": "whsec_",
    }
    made = hub.http.post("/api/v1/webhooks", {k: webhook[k] for k in ("url", "events")})
    secret = hub.made(made)["secret"]
    endpoint = {"name": "planted", "template": "json", "topic_id": topic}
    incoming = hub.made(hub.http.post("/api/v1/incoming", endpoint))["secret"]
    tried = {"payload": f'{{"title": "{SECRET}"}}', "send": True}
    assert hub.http.post("/api/v1/incoming/planted/test", tried).status == 200
    for sent in (incoming, f"{SECRET}-guessed"):
        headers = {"Authorization": f"Bearer {sent}"}
        hub.connect(None).post("/api/v1/incoming/planted", {"title": SECRET}, headers=headers)
    hub.send(topic, SECRET)
    assert hub.http.post("/v1/send", {"to": "#t", "message": SECRET}).status == 202
    mail = {"to": f"{CANARY}@{CANARY}.example", "message": SECRET, "target": "mail"}
    hub.http.post("/v1/send", mail)
    envelope = {"id": "e", **ENVELOPE}
    assert hub.http.post("/v1/enqueue", {"to": "s", "envelope": envelope}).status == 200
    got = hub.http.post("/v1/receive", {"stream": "s", "wait": 30}).body
    failed = {"receiver": got["receiver"], "ids": ["e"], "mode": "reject", "error": SECRET}
    assert hub.http.post("/v1/nack", failed).status == 200
    job = {"command": ["sh", "-c", f"echo {SECRET}; exit 3"], "environment": {"PASSWORD": SECRET}}
    assert hub.http("PUT", "/api/v1/jobs/planted", job).status == 200
    run = hub.http.post("/api/v1/jobs/planted/runs", {}).body["run"]
    path = f"/api/v1/jobs/runs/{run['id']}"
    until(lambda: hub.http.get(path).body["run"]["state"] == "failed", 90, "it has failed", 0.2)
    with SocketClient(hub.port, hub.token) as socket:
        socket.hello()
        socket.request("message.create", {"topic_id": topic, "sender": 1, "content_raw": SECRET})
    return token, secret, incoming, hub.token


def find(secrets, name, content):
    for secret in secrets:
        at = content.lower().find(secret.lower().encode())
        assert at == -1, (name, content[max(0, at - 200) : at + 100])


def test_planted_secrets_are_nowhere_but_in_stores(tmp_path):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "password").write_text(SECRET)
    with (
        http_server(lambda _request: (500, {}, SECRET.encode())) as receiver,
        serve(workspace, settings=SETTINGS.replace("FOLDER", str(workspace))) as hub,
    ):
        secrets = [CANARY, *keep(hub, f"http://127.0.0.1:{receiver.port}")]
        until(lambda: receiver.requests, 90, "the webhook was called", 0.2)
        bodies = [answer.raw for answer in refused(hub) if answer.status >= 400]
        assert len(bodies) > len(WRONG) + 6
        find(secrets, "error bodies", b"\n".join(bodies))
        find(secrets, "metrics", hub.http.get("/metrics").raw)
        find(secrets, "doctor", hub.http.get("/api/v1/doctor").raw)
        bundle = tmp_path / "bundle.tar.gz"
        succeed("doctor", "bundle", "--out", bundle, cwd=workspace)
        succeed("backup", "create", "--json", cwd=workspace)
    find(secrets, "log", hub.log.read_bytes())
    find(secrets, "bundle", gzip.decompress(bundle.read_bytes()))
    files = [path for path in backups(workspace) if path.suffix != ".age"]
    assert any(path.name == "manifest.json" for path in files), files
    for path in files:
        find(secrets, path, path.read_bytes())
    assert any(path.suffix == ".age" for path in backups(workspace))


def backups(workspace: Path) -> list[Path]:
    return [path for path in (workspace / ".agentlip/backups").rglob("*") if path.is_file()]
