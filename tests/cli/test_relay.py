"""`agentlip relay`: the first admin gets in offline, then decides over HTTP."""

import hashlib
import json
import stat

import pytest

from appliance.network.keys import AgentKey
from tests.support.commands import agentlip, succeed
from tests.support.database_files import execute
from tests.support.servedhub import ServedHub

pytestmark = pytest.mark.slow
SETTINGS = '[roles]\nrelay = true\n[relay]\noptions = ["loopback-endpoints"]\n'


def test_admin_approves_revokes_and_announces(tmp_path):
    key_file = tmp_path / "ada.key"
    hub = ServedHub(tmp_path / "w", "--no-limits", settings=SETTINGS)
    added = succeed(
        "relay", "admins", "add", "ada", "--new-key", str(key_file), "--json", cwd=hub.workspace
    )
    fingerprint = json.loads(added.out)["fingerprint"]
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    listed = agentlip("relay", "admins", "list", cwd=hub.workspace)
    assert fingerprint in listed.out
    who = ("--as", "ada", "--key-file", str(key_file))
    with hub.running():
        keys = agentlip("relay", "keys", cwd=hub.workspace).out
        assert fingerprint in keys
        assert "_relay" in keys  # known to agents before its first signature
        refused = agentlip("relay", "admins", "add", "bo", "--new-key", "k", cwd=hub.workspace)
        assert refused.code != 0
        register(hub)
        pending = agentlip("relay", "pending", *who, cwd=hub.workspace)
        assert "cleo@example.org" in pending.out
        approved = agentlip("relay", "approve", "cleo", *who, "--json", cwd=hub.workspace)
        assert json.loads(approved.out) == {"name": "cleo", "status": "active"}
        succeed("relay", "broadcast", "hello", *who, cwd=hub.workspace)
        revoked = agentlip("relay", "revoke", "cleo", *who, "--json", cwd=hub.workspace)
        assert json.loads(revoked.out)["status"] == "revoked"
        audit = json.loads(succeed("relay", "audit", "--json", cwd=hub.workspace).out)
        assert (audit["number"], audit["problems"]) == (2, [])
        unknown = agentlip("relay", "approve", "nobody", *who, cwd=hub.workspace)
        assert unknown.code != 0
        assert "no such agent" in unknown.err
    execute(hub.datadir.database("relay"), "UPDATE key_log SET event = 'known' WHERE number = 2")
    audit = agentlip("relay", "audit", cwd=hub.workspace)
    assert (audit.code, "entry 2 does not follow" in audit.out) == (1, True)
    checked = agentlip("doctor", "--run", "relay.keys", cwd=hub.workspace)
    assert "entry 2 does not follow" in checked.out
    everything = hub.log_text + added.out + added.err + listed.out
    assert key_file.read_text().strip() not in everything


def register(hub):
    mail = {"agentName": "cleo", "email": "cleo@example.org"}
    assert hub.http.post("/verify/send", mail).status == 200
    codes = hub.datadir.dir / "relay-codes.txt"
    assert stat.S_IMODE(codes.stat().st_mode) == 0o600
    code = codes.read_text().rpartition(" is ")[2][:6]
    assert code not in hub.log_text
    confirmed = hub.http.post("/verify/confirm", {"agentName": "cleo", "code": code})
    assert confirmed.status == 200
    key = AgentKey(hashlib.sha256(b"cleo").digest())
    body = {
        "name": "cleo", "publicKey": str(key.public), "ownerEmail": "cleo@example.org",
        "endpoint": f"http://127.0.0.1:{hub.port}/network/inbox",
    }  # fmt: skip
    assert hub.http.post("/registry/agents", body).status == 201
