"""A copied workspace with a network agent: the agent never runs on two machines."""

import json
from pathlib import Path

import pytest

from appliance.identity import host
from appliance.sdk.network.folder import AgentConfig, AgentFolder
from tests.support.commands import succeed
from tests.support.servedhub import ServedHub

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(host.host_id(Path("/")) is None, reason="this machine has no id"),
]
SETTINGS = '[roles]\nnetwork = true\n[identity]\nmode = "persistent"\n'
OTHER = {"fingerprint": "0" * 64, "host_id_sha256": "0" * 64, "card_sha256": None}


@pytest.fixture
def copied(tmp_path):
    """A workspace from another machine, copied or restored from a backup."""
    hub = ServedHub(tmp_path / "w", settings=SETTINGS)
    config = AgentConfig("anna", "http://127.0.0.1:9", "https://anna.example.org/network/inbox")
    AgentFolder.create(hub.datadir.dir / "network" / "anna", config)
    with hub.running():
        pass
    file = hub.datadir.dir / "identity" / "host_fingerprint.json"
    file.write_text(json.dumps(json.loads(file.read_bytes()) | OTHER))
    return hub


def test_agent_of_a_copy_does_not_run_until_the_owner_decides(copied):
    with pytest.raises(AssertionError, match="made on another machine"):
        copied.start()
    succeed("identity", "accept-host", cwd=copied.workspace)  # the other machine was stopped
    with copied.running():
        metrics = copied.http.get("/metrics").raw.decode()
    assert "agentlip_network_agents 1" in metrics


def test_agent_of_a_copy_is_put_aside_with_the_member_key(copied):
    reminted = succeed("identity", "remint", "--yes", cwd=copied.workspace)
    (key,) = copied.datadir.dir.glob("network.copied/*/anna/key")
    assert str(key.parent.parent) in reminted.err
    with copied.running():
        checked = succeed("doctor", "--group", "network", cwd=copied.workspace)
    assert "anna" not in checked.out


def test_damaged_member_key_leaves_the_agents_in_place(copied):
    (copied.datadir.dir / "identity" / "keypair.json").write_text("{}")
    succeed("identity", "remint", "--yes", cwd=copied.workspace)
    assert (copied.datadir.dir / "network" / "anna" / "key").exists()
