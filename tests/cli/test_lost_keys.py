"""The section about lost and stolen keys: its commands as printed, with a served relay."""

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.test_network import SETTINGS, Owner, free_ports
from tests.support.commands import agentlip, succeed
from tests.support.servedhub import ServedHub

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "network.md"


def commands(relay, endpoint):
    """The words of each command of the section, with these addresses."""
    text = PAGE.read_text(encoding="utf-8").partition("\n## Replace a lost or stolen key\n")[2]
    blocks = re.findall(r"```sh\n(.*?)```", text.partition("\n## ")[0], re.DOTALL)
    for line in "".join(blocks).splitlines():
        line = line.replace("https://relay.example.org", relay)
        yield shlex.split(line.replace("https://anna.example.org/network/inbox", endpoint))


def test_commands_of_the_section_replace_keys(tmp_path):
    hub = ServedHub(tmp_path / "w", "--no-limits", settings=SETTINGS)
    key = hub.workspace / "ada.key"
    agentlip("relay", "admins", "add", "ada", "--new-key", str(key), cwd=hub.workspace)
    admin = ("--as", "ada", "--key-file", str(key))
    with hub.running():
        ports = free_ports(2)
        anna = Owner("anna", hub, hub.datadir.dir / "network" / "anna", ports[0])
        bert = Owner("bert", hub, tmp_path / "bert", ports[1])
        for owner in (anna, bert):
            owner.join(admin)
        anna.run("request", "bert")
        bert.run("accept", "anna")
        relay = f"http://127.0.0.1:{hub.port}"
        (
            rotate, away, again, ask, confirm, revoke, move, init, register, request, remove, add,
            drop,
        ) = commands(relay, f"http://127.0.0.1:{anna.port}/network/inbox")  # fmt: skip

        succeed(*rotate[1:], cwd=hub.workspace)
        (contact,) = bert.json("contacts")
        assert (contact["agent"], contact["key"]) == ("anna", "new")
        succeed("network", "contacts", cwd=hub.workspace)  # with the new key

        (hub.workspace / away[1]).rename(hub.workspace / away[2])
        succeed(*again[1:], "--loopback", cwd=hub.workspace)
        succeed(*ask[1:], cwd=hub.workspace)
        code = (hub.datadir.dir / "relay-codes.txt").read_text().rpartition(" is ")[2][:6]
        succeed(*confirm[1:-1], code, cwd=hub.workspace)
        (hub.workspace / away[1]).rename(tmp_path / "recovering")
        (hub.workspace / away[2]).rename(hub.workspace / away[1])
        succeed("network", "cancel-recovery", cwd=hub.workspace)  # with the present key
        port = hub.port
        hub.stop()
        hub.start("--port", str(port))  # three codes an hour for one client address

        (hub.workspace / "bert").symlink_to(bert.folder)
        succeed(*remove[1:], "--folder", "bert", cwd=hub.workspace)
        assert bert.json("contacts") == []

        succeed(*revoke[1:], cwd=hub.workspace)
        assert "revoked" in agentlip("network", "contacts", "--pending", cwd=hub.workspace).err
        (hub.workspace / move[1]).rename(hub.workspace / move[2])
        succeed(*init[1:], "--loopback", cwd=hub.workspace)
        succeed(*register[1:], cwd=hub.workspace)
        code = (hub.datadir.dir / "relay-codes.txt").read_text().rpartition(" is ")[2][:6]
        succeed(*register[1:], "--code", code, cwd=hub.workspace)
        succeed("relay", "approve", "anna-2", *admin, cwd=hub.workspace)
        succeed(*request[1:], cwd=hub.workspace)
        assert [row["from"] for row in bert.json("contacts", "--pending")] == ["anna-2"]

    for words in (add, drop):
        succeed(*words[1:], cwd=hub.workspace)
    with hub.running():
        refused = agentlip("relay", "pending", *admin, cwd=hub.workspace)
        assert refused.code != 0
