"""`agentlip mesh` and `agentlip broker`, as processes."""

import pytest

from tests.support.broker import key
from tests.support.commands import agentlip
from tests.support.hubprocess import served

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with served(tmp_path_factory.mktemp("broker"), "--no-limits") as hub:
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
    send = ("broker", "accept", "lab", "--as", "anna", "--topic", "alerts", "--id", "m1")
    first = run(hub, *send, "hello", "--json").json
    assert first["duplicate"] is False
    assert (
        run(hub, *send, "hello", "--json").json["broker_message_id"] == (first["broker_message_id"])
    )
    assert run(hub, *send, "else").code == 2
    assert run(hub, "broker", "accept", "lab", "x", "--as", "anna", "--to", "nobody").code == 1
    [past] = run(hub, "broker", "history", "lab", "--json").json
    assert past["message"]["body"] == "hello"
    status = run(hub, "broker", "status", "--json").json
    assert (status["messages"], status["waiting"]) == (1, 1)
    checked = run(hub, "broker", "orphans")
    assert (checked.code, checked.out) == (0, "no orphaned rows\n")
    assert run(hub, "broker", "orphans", "--json").json == []


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
