"""Clients with other cryptography at our relay, and their messages to and from an appliance.

`clients/contract.mjs` is made from the description of the protocol alone, and runs always. The
original project has a client, which is not in this repository. To run the test with
it, compile its package `sdk` with `tsc`, and name the result:

    NETWORK_CLIENT=…/packages/sdk/dist/index.js pytest tests/sdk/test_other_clients.py
"""

import json
import os
import select
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.test_network import Owner, free_ports, inbox_of
from tests.support.commands import agentlip, succeed
from tests.support.servedhub import ServedHub
from tests.support.until import until

CLIENTS = Path(__file__).parent / "clients"
SETTINGS = """[roles]
relay = true
network = true
[relay]
options = ["loopback-endpoints", "agent-keys"]
"""
SECONDS_MAX = 60
TEXT = "h\u00e9llo \U0001f600, the build is green"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js"),
]


class OtherAgent:
    """A process of Node.js with one agent."""

    def __init__(self, library, name, hub, folder):
        self.name, self.hub = name, hub
        words = ["node", CLIENTS / "agent.mjs", library, name, f"http://127.0.0.1:{hub.port}"]
        self.process = subprocess.Popen(
            [*map(str, words), str(folder / name)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def call(self, name, *args):
        answer = self.answer(name, *args)
        assert "error" not in answer, answer
        return answer["result"]

    def answer(self, name, *args):
        line = json.dumps({"call": name, "args": args}) + "\n"
        self.process.stdin.write(line.encode())
        self.process.stdin.flush()
        assert select.select([self.process.stdout], [], [], SECONDS_MAX)[0], f"no answer to {name}"
        return json.loads(self.process.stdout.readline())

    def register(self):
        email = f"{self.name}@example.org"
        self.call("sendCode", email)
        codes = (self.hub.datadir.dir / "relay-codes.txt").read_text()
        registered = self.call("register", email, codes.rpartition(" is ")[2][:6])
        assert registered["agent"] == {"name": self.name, "status": "pending"}

    def texts(self):
        return [message["payload"]["text"] for message in self.call("messages")]

    def close(self):
        self.process.communicate(timeout=SECONDS_MAX)


@pytest.fixture
def hub(tmp_path):
    """It has the relay, whose admin is ada, and the agent bert."""
    workspace = tmp_path / "w"
    hub = ServedHub(workspace, "--no-limits", settings=SETTINGS)
    key = workspace / "ada.key"
    succeed("relay", "admins", "add", "ada", "--new-key", key, cwd=workspace)
    (port,) = free_ports(1)
    with hub.running("--port", str(port)):
        hub.admin = ("--as", "ada", "--key-file", str(key))
        hub.admin_key = key.read_text().strip()
        hub.bert = Owner("bert", hub, hub.datadir.dir / "network" / "bert", port)
        hub.bert.join(hub.admin)
        yield hub


@pytest.fixture(params=["contract", "original"])
def library(request):
    if request.param == "contract":
        return CLIENTS / "contract.mjs"
    path = os.environ.get("NETWORK_CLIENT")
    if path is None:
        pytest.skip("NETWORK_CLIENT does not name the original client")
    return path


@pytest.fixture
def agents(library, hub, tmp_path):
    """Two active agents without a heartbeat: ada, who is an admin, and carl."""
    made = [OtherAgent(library, name, hub, tmp_path) for name in ("ada", "carl")]
    ada, carl = made
    try:
        ada.register()
        assert agentlip("relay", "approve", "ada", *hub.admin, cwd=hub.workspace).code == 0
        carl.register()
        ada.call("admin", hub.admin_key, "approveAgent", "carl")
        yield made
    finally:
        for agent in made:
            agent.close()


def test_another_client_does_all_that_the_first_version_has(library, hub, agents):
    ada, carl = agents
    check_handshake(ada, carl)
    check_queue(ada, carl)
    check_messages_to_and_from_an_appliance(hub, carl)
    newest = "2.1" if library == CLIENTS / "contract.mjs" else "2.0"
    assert carl.call("envelopes")[-1]["version"] == newest  # the newest that it announces
    check_groups(hub, ada, carl)
    check_presence(ada)
    check_broadcasts(hub, ada, carl)
    check_ends(hub, ada, carl)


def check_handshake(ada, carl):
    ada.call("requestContact", "carl", "Hello!")
    refused = ada.answer("requestContact", "carl")
    assert "contacts" in refused["error"]
    (request,) = carl.call("checkContactRequests")
    assert (request["from"], request["greeting"]) == ("ada", "Hello!")
    carl.call("denyContact", "ada")
    assert carl.call("getPendingRequests") == []
    ada.call("requestContact", "carl")
    carl.call("acceptContact", "ada")
    (contact,) = ada.call("getContacts")
    assert contact["username"] == "carl"


def check_queue(ada, carl):
    """Carl was not online; his first heartbeat makes the next attempt succeed."""
    sent = ada.call("send", "carl", {"text": "later"})
    assert sent["status"] == "queued"
    carl.call("start")
    ada.call("start")
    until(lambda: carl.texts() == ["later"], SECONDS_MAX, "the message")
    until(lambda: ada.call("statuses")[-1]["status"] == "delivered", SECONDS_MAX, "the status")


def check_messages_to_and_from_an_appliance(hub, carl):
    carl.call("requestContact", "bert", "Hello!")
    hub.bert.run("accept", "carl")
    until(lambda: hub.http.get("/presence/bert").body["online"], SECONDS_MAX, "bert's heartbeat")
    sent = carl.call("send", "bert", {"text": TEXT})
    assert sent["status"] == "delivered"  # bert's appliance has not read its contacts since
    report = carl.call("getDeliveryReport", sent["messageId"])
    assert (report["finalStatus"], report["attempts"][0]["httpStatus"]) == ("delivered", 200)
    until(lambda: TEXT in inbox_of(hub), SECONDS_MAX, "the message in the inbox")
    answer = agentlip("outbox", "send", "network:carl", TEXT, "--json", cwd=hub.workspace)
    assert answer.json["status"] == "queued"
    until(lambda: TEXT in carl.texts(), SECONDS_MAX, "the message of the appliance")
    database = hub.datadir.database("relay").read_bytes()
    assert TEXT.encode() not in database


def check_groups(hub, ada, carl):
    """Carl's group has ada and the appliance's agent bert."""
    group = carl.call("createGroup", "builders")["groupId"]
    for name in ("ada", "bert"):
        carl.call("inviteToGroup", group, name, "Join us")
    (invitation,) = ada.call("getGroupInvitations")
    assert (invitation["groupName"], invitation["greeting"]) == ("builders", "Join us")
    ada.call("acceptGroupInvitation", group)
    hub.bert.run("group", "accept", group)
    roles = {row["agent"]: row["role"] for row in ada.call("getGroupMembers", group)}
    assert roles == {"ada": "member", "bert": "member", "carl": "owner"}
    sent = carl.call("sendToGroup", group, {"text": f"to all: {TEXT}"})
    assert sorted(sent["delivered"]) == ["ada", "bert"]
    assert ada.call("messages")[-1]["groupId"] == group
    until(lambda: f"to all: {TEXT}" in inbox_of(hub), SECONDS_MAX, "the group's message")
    statuses = {row["recipient"]: row["status"]
                for row in hub.bert.json("group", "send", group, TEXT)}  # fmt: skip
    assert statuses["carl"] == "delivered"
    assert carl.call("messages")[-1]["groupId"] == group
    carl.call("removeFromGroup", group, "bert")
    refused = hub.bert.run("group", "send", group, TEXT, fails=True)
    assert "not a member" in refused.err


def check_presence(ada):
    many = ada.call("relay", "batchPresence", ["bert", "carl", "nobody"])
    assert [row["online"] for row in many["data"]] == [True, True, False]
    assert many["data"][1]["endpoint"].startswith("http://127.0.0.1:")
    assert ada.call("checkPresence", "nobody")["online"] is False


def check_broadcasts(hub, ada, carl):
    payload = {"message": TEXT, "severity": "high"}
    ada.call("admin", hub.admin_key, "broadcast", "security-alert", payload)
    (broadcast,) = carl.call("checkBroadcasts")
    assert (broadcast["type"], broadcast["sender"]) == ("security-alert", "ada")
    assert broadcast["payload"] == payload
    for kind, count in (("security-alert", 1), ("maintenance", 0)):  # the query is signed too
        listed = carl.call("relay", "listBroadcasts", kind)
        assert (listed["status"], len(listed["data"])) == (200, count)
    refused = carl.answer("admin", hub.admin_key, "broadcast", "update", {})
    assert "admin" in refused["error"]


def check_ends(hub, ada, carl):
    carl.call("removeContact", "bert")
    assert carl.call("send", "bert", {"text": "x"}) == {
        "status": "failed", "messageId": "", "error": "Not a contact",
    }  # fmt: skip
    ada.call("admin", hub.admin_key, "revokeAgent", "carl")
    assert "revoked" in carl.answer("requestContact", "bert")["error"]
    assert ada.call("getContacts") == []
    assert carl.call("relay", "getPendingRequests")["status"] == 403
