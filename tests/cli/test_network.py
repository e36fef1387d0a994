"""`agentlip network`: from a new key to a message that waits, with a served relay."""

import json
import select
import signal
import socket
import subprocess
from contextlib import contextmanager

import pytest

from tests.support.commands import agentlip, command, environment
from tests.support.servedhub import ServedHub

pytestmark = pytest.mark.slow
SETTINGS = '[roles]\nrelay = true\n[relay]\noptions = ["loopback-endpoints"]\n'
SECONDS_MAX = 30


class Owner:
    """One owner at a terminal, with an agent in a folder."""

    def __init__(self, name, hub, folder, port):
        self.name, self.hub, self.folder, self.port = name, hub, folder, port
        self.output = ""

    def run(self, *words, fails=False):
        done = agentlip("network", *words, "--folder", str(self.folder), cwd=self.hub.workspace)
        assert (done.code != 0) == fails, done
        self.output += done.out + done.err
        return done

    def json(self, *words):
        return json.loads(self.run(*words, "--json").out)

    def join(self, admin):
        endpoint = f"http://127.0.0.1:{self.port}/network/inbox"
        made = self.json("init", self.name, "--relay", f"http://127.0.0.1:{self.hub.port}",
                         "--endpoint", endpoint, "--loopback")  # fmt: skip
        assert made["fingerprint"].startswith("SHA256:")
        email = f"{self.name}@example.org"
        assert self.json("register", email) == {"status": "code-sent"}
        codes = (self.hub.datadir.dir / "relay-codes.txt").read_text()
        code = codes.rpartition(" is ")[2][:6]
        assert self.json("register", email, "--code", code) == {"status": "pending"}
        agentlip("relay", "approve", self.name, *admin, cwd=self.hub.workspace)

    @contextmanager
    def serving(self):
        """`inbox --serve`, as long as the block runs."""
        words = ["network", "inbox", "--serve", f"127.0.0.1:{self.port}", "--json",
                 "--folder", str(self.folder)]  # fmt: skip
        process = subprocess.Popen(
            command("agentlip", *words), cwd=self.hub.workspace, env=environment(), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            assert "receives at" in line_of(process.stderr)
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=SECONDS_MAX)


def line_of(stream):
    assert select.select([stream], [], [], SECONDS_MAX)[0], "no line in time"
    return stream.readline()


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [bound.getsockname()[1] for bound in sockets]
    for bound in sockets:
        bound.close()
    return ports


def test_two_owners_exchange_messages(tmp_path):
    hub = ServedHub(tmp_path / "w", "--no-limits", settings=SETTINGS)
    key = tmp_path / "ada.key"
    agentlip("relay", "admins", "add", "ada", "--new-key", str(key), cwd=hub.workspace)
    admin = ("--as", "ada", "--key-file", str(key))
    with hub.running():
        anna, bert = (
            Owner(name, hub, tmp_path / name, port)
            for name, port in zip(("anna", "bert"), free_ports(2), strict=True)
        )
        for owner in (anna, bert):
            owner.join(admin)
        assert "not a contact" in anna.run("send", "bert", "hi", fails=True).err
        anna.run("request", "bert")
        assert bert.json("deny", "anna") == {"agent": "anna"}
        assert bert.json("contacts", "--pending") == []
        anna.run("request", "bert", "--greeting", "Hello!")
        (request,) = bert.json("contacts", "--pending")
        assert (request["from"], request["greeting"]) == ("anna", "Hello!")
        bert.run("accept", "anna")
        assert anna.json("contacts")[0]["key"] == "new"
        shown = anna.json("verify", "bert")
        assert shown["safetyNumber"] == bert.json("verify", "anna")["safetyNumber"]
        assert anna.json("verify", "bert", "--confirm")["state"] == "verified"
        waiting = anna.json("send", "bert", "hi")
        assert waiting["status"] == "pending"
        with bert.serving() as process:
            sent = anna.json("send", "bert", "hello")
            assert sent["status"] == "delivered"
            assert json.loads(line_of(process.stdout))["payload"] == {"text": "hello"}
        assert [row["payload"] for row in bert.json("inbox")] == [{"text": "hello"}]
        assert [row["status"] for row in anna.json("report")] == ["delivered", "pending"]
        assert anna.json("report", waiting["messageId"])[0]["attempts"]
        new = bert.json("rotate-key")["publicKey"]
        assert anna.json("contacts")[0]["publicKey"] == new
        assert anna.json("verify", "bert")["state"] == "new"
        bert.run("remove", "anna")
        assert bert.json("contacts") == []
        everything = anna.output + bert.output + hub.log_text
    for owner in (anna, bert):
        assert (owner.folder / "key").read_text().strip() not in everything


def outbox_send(hub, text):
    return agentlip("outbox", "send", "network:bert", text, "--json", cwd=hub.workspace)


def inbox_of(hub):
    rows = agentlip("inbox", "list", "--mesh", "network", "--json", cwd=hub.workspace).json
    return [row["body"] for row in rows["messages"]]


def test_init_refuses_relay_without_tls_except_with_switch(tmp_path):
    words = ("network", "init", "anna", "--relay", "http://relay.example.org", "--folder", "anna",
             "--endpoint", "https://anna.example.org/network/inbox", "--json")  # fmt: skip
    refused = agentlip(*words, cwd=tmp_path)
    assert (refused.code != 0, "BAD_RELAY_URL" in refused.err) == (True, True)
    assert not (tmp_path / "anna").exists()
    assert agentlip(*words, "--plain-http", cwd=tmp_path).code == 0
    assert json.loads((tmp_path / "anna" / "agent.json").read_bytes())["plain_http"] is True
