"""Codes go through the outbox to a real mail server, and what was stored survives kill -9."""

import re
import signal
import time
import urllib.error
import urllib.request

import pytest

from appliance.network.request import request_headers
from tests.support.commands import agentlip, succeed
from tests.support.mailserver import mail_server
from tests.support.relay import key
from tests.support.servedhub import ServedHub
from tests.support.until import until

pytestmark = pytest.mark.slow
SETTINGS = """[roles]
relay = true
[relay]
options = ["loopback-endpoints"]
[mail]
host = "127.0.0.1"
port = {port}
security = "none"
sender = "relay@example.org"
"""
ENDPOINT = {"endpoint": "http://127.0.0.1:9/network/inbox"}


def test_code_is_mailed_without_opening_the_mail_server_to_clients(tmp_path):
    with mail_server(tmp_path / "mail") as server:
        hub = ServedHub(tmp_path / "w", "--no-limits", settings=SETTINGS.format(port=server.port))
        with hub.running():
            for target in (None, "code-mail"):
                send = {"to": "mailto:anna@example.org", "message": "x", "target": target}
                refused = hub.http.post("/v1/send", send)
                assert refused.status in (400, 403), refused
            name = {"agentName": "anna", "email": "anna@example.org"}
            assert hub.http.post("/verify/send", name).status == 200
            (mail,) = until(lambda: server.mails, 20, "the mail")
            assert mail.recipients == ["anna@example.org"]
            assert mail.message["Subject"] == "Your verification code"
            code = re.search(r"\d{6}", mail.text)[0]
            assert code not in hub.log_text
            confirmed = hub.http.post("/verify/confirm", {"agentName": "anna", "code": code})
            assert confirmed.status == 200
            body = {"name": "anna", "publicKey": str(key("anna").public),
                    "ownerEmail": "anna@example.org"}  # fmt: skip
            assert hub.http.post("/registry/agents", body | ENDPOINT).status == 201


def test_registration_approval_and_used_signatures_survive_a_kill(tmp_path):
    hub = ServedHub(tmp_path / "w", "--no-limits", settings=SETTINGS.partition("[mail]")[0])
    who = ("--as", "ada", "--key-file", "ada.key")
    succeed("relay", "admins", "add", "ada", "--new-key", "ada.key", cwd=hub.workspace)
    with hub.running(ending=signal.SIGKILL):
        hub.http.post("/verify/send", {"agentName": "anna", "email": "anna@example.org"})
        text = (hub.datadir.dir / "relay-codes.txt").read_text()
        code = {"agentName": "anna", "code": text.rpartition(" is ")[2][:6]}
        assert hub.http.post("/verify/confirm", code).status == 200
    with hub.running(ending=signal.SIGKILL):  # the address is still verified
        body = {"name": "anna", "publicKey": str(key("anna").public),
                "ownerEmail": "anna@example.org"}  # fmt: skip
        assert hub.http.post("/registry/agents", body | ENDPOINT).status == 201
    with hub.running(ending=signal.SIGKILL):
        assert agentlip("relay", "approve", "anna", *who, cwd=hub.workspace).code == 0
        heartbeat = signed(hub, "PUT", "/presence", b'{"endpoint":"http://127.0.0.1:9/"}')
        assert heartbeat() == 200
    with hub.running():
        assert heartbeat() == 401  # it was used before the kill
        assert signed(hub, "GET", "/contacts")() == 200
        assert hub.http.get("/presence/anna").body["online"] is True
        assert agentlip("relay", "revoke", "anna", *who, cwd=hub.workspace).code == 0
        assert signed(hub, "GET", "/contacts")() == 403


def signed(hub, method, path, body=b""):
    """A request of anna, which can be sent again as it is."""
    headers = request_headers(key("anna"), "anna", method, path, body, time.time_ns() // 1_000_000)
    if body:
        headers["Content-Type"] = "application/json"

    def send():
        url = f"http://127.0.0.1:{hub.port}{path}"
        request = urllib.request.Request(url, body or None, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as reply:
                return reply.status
        except urllib.error.HTTPError as error:
            return error.code

    return send
