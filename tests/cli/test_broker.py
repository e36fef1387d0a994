"""`agentlip mesh` and `agentlip broker`, as processes."""

import pytest

from tests.support.broker import item, key
from tests.support.commands import agentlip
from tests.support.servedhub import serve

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("broker"), "--no-limits") as hub:
        yield hub


def run(hub, *arguments):
    return agentlip(*arguments, cwd=hub.workspace)


def test_mesh_is_created_used_and_listed(hub):
    assert run(hub, "mesh", "create", "lab", "--keep-days", "30").code == 0
    assert run(hub, "mesh", "create", "lab").code == 2
    pair = run(hub, "mesh", "keygen", "--out", "anna.key")
    seed = hub.workspace / "anna.key"
    assert seed.stat().st_mode & 0o777 == 0o600
    assert pair.out.strip() not in seed.read_text()
    assert run(hub, "mesh", "keygen", "--out", "anna.key").code == 2
    assert run(hub, "mesh", "add-member", "lab", "anna", "--key", pair.out.strip()).code == 0
    assert run(hub, "mesh", "add-member", "lab", "bert", "--key", key("bert")).code == 0
    assert run(hub, "mesh", "add-topic", "lab", "alerts").out == "topic alerts\n"
    assert run(hub, "mesh", "subscribe", "lab", "alerts", "bert").code == 0
    [topic] = run(hub, "mesh", "topics", "lab", "--json").json
    assert topic["subscribers"] == [key("bert")]
    refused = agentlip("mesh", "unsubscribe", "lab", "alrets", "bert", cwd=hub.workspace)
    assert (refused.code, "agentlip mesh topics lab" in refused.err) == (1, True), refused
    sender = {"X-Agentlip-Member": pair.out.strip()}
    assert hub.http.post("/broker/v1/accept", item("m1"), headers=sender).status == 201
    [past] = run(hub, "broker", "history", "lab", "--json").json
    assert past["message"]["body"] == "hello"
    status = run(hub, "broker", "status", "--json").json
    assert (status["messages"], status["waiting"]) == (1, 1)
    assert run(hub, "doctor", "--run", "broker.orphans").code == 0


def test_member_is_revoked_while_the_appliance_is_stopped(hub):
    """As before the start after a restore."""
    assert run(hub, "mesh", "create", "third").code == 0
    assert run(hub, "mesh", "add-member", "third", "dora", "--key", key("dora")).code == 0
    hub.stop()
    done = run(hub, "mesh", "revoke-member", "third", "dora", "--json")
    assert (done.code, done.json["member"]["state"]) == (0, "revoked")
    assert run(hub, "mesh", "revoke-member", "third", "nobody").code == 1
    hub.start()
    [member] = run(hub, "mesh", "members", "third", "--json").json
    assert (member["name"], member["state"]) == ("dora", "revoked")
