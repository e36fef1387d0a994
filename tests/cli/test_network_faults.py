"""Two appliances whose relay or recipient fails or lies: three served processes, shorter times."""

import os
import signal
from contextlib import ExitStack, contextmanager

import pytest

from tests.cli.test_network import Owner, free_ports, inbox_of, outbox_send
from tests.support.commands import agentlip, succeed
from tests.support.database_files import execute
from tests.support.relay import key
from tests.support.servedhub import ServedHub
from tests.support.until import until

pytestmark = pytest.mark.slow
RELAY = '[roles]\nrelay = true\n[relay]\noptions = ["loopback-endpoints"]\n'
SOON = {
    "appliance.integrations.mailbox_outbox.DELAYS_MS": [100, 300, 900],
    "appliance.integrations.mailbox_outbox.WATCH_MS": 600,
}


class Appliances:
    """`relay` has no agents; the outbox of `first` sends for anna, to bert of `second`."""

    def __init__(self, folder, more=""):
        """`more`: further settings of both appliances."""
        self.relay = ServedHub(folder / "r", "--no-limits", settings=RELAY)
        self.first, self.second = (
            ServedHub(folder / name, "--no-limits", settings=f"[roles]\nnetwork = true\n{more}")
            for name in ("a", "b")
        )
        self.first.constants = self.second.constants = SOON
        self.hubs = (self.relay, self.first, self.second)
        self.ports = dict(zip(self.hubs, free_ports(3), strict=True))

    @contextmanager
    def running(self):
        with ExitStack() as stack:
            for hub in self.hubs:
                stack.callback(hub.stop)
            self.join()
            yield self

    def start(self, *hubs):
        for hub in hubs:
            hub.start("--port", str(self.ports[hub]))

    def join(self):
        """Both agents, which are contacts then."""
        file = self.relay.workspace / "ada.key"
        agentlip("relay", "admins", "add", "ada", "--new-key", file, cwd=self.relay.workspace)
        self.start(self.relay)
        self.anna, self.bert = (
            Owner(name, self.relay, hub.datadir.dir / "network" / name, self.ports[hub])
            for name, hub in (("anna", self.first), ("bert", self.second))
        )
        for owner in (self.anna, self.bert):
            owner.join(("--as", "ada", "--key-file", str(file)))
        self.anna.run("request", "bert")
        self.bert.run("accept", "anna")
        self.start(self.second, self.first)
        until(lambda: self.anna.json("contacts")[0]["online"], what="bert's heartbeat")

    def send(self, text):
        sent = outbox_send(self.first, text)
        assert sent.json["status"] == "queued"
        return sent.json["client_message_id"]

    def wait_for(self, *texts):
        until(lambda: inbox_of(self.second) == list(texts), what=f"the messages {texts}")

    def inspect(self, send_id):
        shown = agentlip("outbox", "inspect", send_id, "--json", cwd=self.first.workspace)
        return shown.json["send"]

    def wait_for_attempts(self, send_id):
        """The send when it waits for its next attempt, after one that failed."""

        def waits():
            send = self.inspect(send_id)
            return send["attempts"] > 1 and send["status"] == "pending" and send

        return until(waits, what="attempts that fail")

    def show_key(self, public):
        """The relay shows another key for bert; what it showed before."""
        self.relay.stop()
        file = self.relay.datadir.database("relay")
        ((before,),) = execute(file, "SELECT public_key FROM agents WHERE name = 'bert'")
        execute(file, "UPDATE agents SET public_key = ? WHERE name = 'bert'", public)
        self.start(self.relay)
        return before


@pytest.fixture(scope="module")
def appliances(tmp_path_factory):
    with Appliances(tmp_path_factory.mktemp("appliances")).running() as made:
        yield made


def test_appliances_exchange_messages_while_the_relay_is_down(appliances):
    appliances.send("with the relay")  # from it the first appliance knows the other one
    appliances.wait_for("with the relay")
    appliances.relay.kill()
    appliances.send("without the relay")
    appliances.wait_for("with the relay", "without the relay")
    succeed("outbox", "send", "network:anna", "back", cwd=appliances.second.workspace)
    until(lambda: inbox_of(appliances.first) == ["back"], what="the answer")
    appliances.start(appliances.relay)


def test_nothing_is_sent_to_a_key_that_the_relay_lies_about(appliances):
    """Not after a restart either: the pin is in a file."""
    mallory = key("mallory").public
    appliances.first.stop()
    true_key = appliances.show_key(str(mallory))
    appliances.start(appliances.first)
    until(lambda: '"kind":"key-changed"' in appliances.first.log_text, what="a warning")
    send_id = appliances.send("secret")
    assert "another key" in appliances.wait_for_attempts(send_id)["last_error"]
    assert appliances.anna.json("verify", "bert")["state"] == "changed"
    assert inbox_of(appliances.second) == ["with the relay", "without the relay"]
    appliances.show_key(true_key)
    appliances.first.stop()
    appliances.start(appliances.first)
    appliances.wait_for("with the relay", "without the relay", "secret")


def test_messages_go_on_while_the_relay_hangs(appliances):
    """The relay accepts connections, and never answers."""
    before = inbox_of(appliances.second)
    texts = [f"while it hangs {number}" for number in range(12)]
    process_id = appliances.relay.pid
    os.kill(process_id, signal.SIGSTOP)
    try:
        for text in texts:
            appliances.send(text)
        until(lambda: len(inbox_of(appliances.second)) == len(before) + 12, what="the messages")
    finally:
        os.kill(process_id, signal.SIGCONT)
    assert sorted(inbox_of(appliances.second)[len(before) :]) == sorted(texts)
