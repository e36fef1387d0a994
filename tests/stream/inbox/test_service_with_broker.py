"""Two served appliances: one with the broker, one that receives."""

import pytest

from tests.support.commands import agentlip, succeed
from tests.support.servedhub import serve
from tests.support.until import until

pytestmark = pytest.mark.slow

CONSTANTS = {
    "appliance.inbox.broker_connection.BrokerConnection.retry": {
        "initial_seconds": 0.05,
        "max_seconds": 0.3,
    }
}
MESHES = "/broker/v1/meshes"


def key_of(hub):
    return hub.http.get("/v1/identity").body["pubkey"]


def messages(hub, **query):
    query = "&".join(
        f"{name}={value}" for name, value in {"since": 0, "limit": 1000, **query}.items()
    )
    return hub.http.get(f"/v1/inbox?{query}").body["messages"]


def state_of(hub, mesh="lab"):
    links = hub.http.get(f"/v1/health?mesh={mesh}").body.get("links", [])
    return next((entry["state"] for entry in links if entry["mesh"] == mesh), None)


def send(hub, to, message, **more):
    answer = hub.http.post("/v1/send", {"to": to, "message": message, "mesh": "lab", **more})
    assert answer.status == 202, answer
    return answer.body["client_message_id"]


def names_by_key(hub):
    peers = hub.http.get("/v1/peers?mesh=lab").body["peers"]
    return {entry["pubkey"]: entry["name"] for entry in peers}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("broker")) as hub:
        assert hub.http.post(MESHES, {"slug": "lab"}).status == 201
        assert hub.http.post(f"{MESHES}/lab/topics", {"name": "alerts"}).status == 201
        yield hub


@pytest.fixture(scope="module")
def receiver(broker, tmp_path_factory):
    settings = (
        '[inbox]\nmesh = "lab"\n'
        f'[[outbox.brokers]]\nmesh = "lab"\nurl = "http://127.0.0.1:{broker.port}"\n'
    )
    with serve(tmp_path_factory.mktemp("receiver"), settings=settings, constants=CONSTANTS) as hub:
        assert hub.http.get("/v1/health").body["connected"] is False
        member = {"pubkey": key_of(hub), "name": "rita"}
        assert broker.http.post(f"{MESHES}/lab/members", member).status == 201
        until(lambda: state_of(hub) == "connected", what="the link is up")
        yield hub


@pytest.fixture(scope="module")
def home(broker):
    """The appliance with the broker, as a member of its own mesh."""
    member = {"pubkey": key_of(broker), "name": "hugo"}
    assert broker.http.post(f"{MESHES}/lab/members", member).status == 201
    until(lambda: state_of(broker) == "local", what="the broker's own inbox has joined")
    return broker


def test_messages_go_both_ways_once(home, receiver):
    to_receiver = send(home, key_of(receiver), "to rita")
    to_home = send(receiver, key_of(home), "to hugo", priority="now")
    until(lambda: [entry["client_message_id"] for entry in messages(receiver)] == [to_receiver])
    until(lambda: [entry["client_message_id"] for entry in messages(home, mesh="lab")] == [to_home])
    (got,) = messages(home, mesh="lab")
    assert (got["body"], got["sender_name"], got["priority"], got["own"]) == (
        "to hugo", "rita", "now", False,
    )  # fmt: skip
    assert got["sender_pubkey"] == key_of(receiver)


def test_a_kill_of_either_side_loses_and_doubles_nothing(home, receiver):
    before = len(messages(receiver))
    sent = []
    for round_ in range(4):
        sent += [send(home, key_of(receiver), f"{round_}.{number}") for number in range(20)]
        victim = (receiver, home)[round_ % 2]
        port = victim.port
        victim.kill()
        victim.start("--port", str(port))
    until(lambda: len(messages(receiver)) >= before + len(sent), 60, "all have come")
    until(lambda: state_of(receiver) == "connected")
    got = [entry["client_message_id"] for entry in messages(receiver)][before:]
    assert sorted(got) == sorted(sent)


def test_key_rotation_is_sent_to_the_broker(home, receiver):
    former = key_of(receiver)
    done = succeed("identity", "rotate", "--json", cwd=receiver.workspace)
    assert done.json["meshes"] == ["lab"]
    assert key_of(receiver) != former
    until(lambda: state_of(receiver) == "connected")
    sent = send(home, key_of(receiver), "to the new key")
    until(lambda: messages(receiver)[-1]["client_message_id"] == sent)
    back = send(receiver, key_of(home), "from the new key")
    until(lambda: messages(home, mesh="lab")[-1]["client_message_id"] == back)
    assert messages(home, mesh="lab")[-1]["sender_pubkey"] == key_of(receiver)


def test_a_member_renames_itself_and_is_mentioned_by_its_new_name(home, receiver):
    done = agentlip("inbox", "profile", "--name", "margarita", cwd=receiver.workspace)
    assert (done.code, done.out) == (0, "lab: idle; renamed to margarita\n"), done
    assert names_by_key(home)[key_of(receiver)] == "margarita"
    sent = send(receiver, key_of(home), "from margarita")
    until(lambda: messages(home, mesh="lab")[-1]["client_message_id"] == sent)
    assert messages(home, mesh="lab")[-1]["sender_name"] == "margarita"
    taken = receiver.http.post("/v1/profile", {"name": "hugo", "status": "dnd"})
    assert (taken.status, taken.body["details"]["status"]) == (502, 409)
    renamed = home.http.post("/v1/profile", {"name": "hugh", "mesh": "lab"})
    assert renamed.status == 200, renamed
    assert names_by_key(receiver)[key_of(home)] == "hugh"


def test_revoked_member_does_not_reconnect(home, receiver):
    assert home.http("DELETE", f"{MESHES}/lab/members/{key_of(receiver)}").status == 200
    until(lambda: state_of(receiver) == "stopped", what="the link is given up")
    link = receiver.http.get("/v1/health").body["links"][0]
    assert link["reason"] == "member_revoked"
    refused = receiver.http.post("/v1/send", {"to": "#alerts", "message": "x", "mesh": "lab"})
    assert (refused.status, refused.body["code"]) == (403, "MEMBER_REVOKED")
    former = key_of(receiver)
    assert refused.body["details"] == {"mesh": "lab", "member": former}
    assert "agentlip identity remint" in refused.body["hint"]
    receiver.stop()
    assert agentlip("identity", "remint", "--yes", cwd=receiver.workspace).code == 0
    receiver.start()
    assert key_of(receiver) != former
    refused = receiver.http.post("/v1/send", {"to": "#alerts", "message": "x", "mesh": "lab"})
    assert refused.body["code"] == "MEMBER_REVOKED", "it is remembered until a key is accepted"
    member = {"pubkey": key_of(receiver), "name": "rita-2"}
    assert home.http.post(f"{MESHES}/lab/members", member).status == 201
    until(lambda: state_of(receiver) == "connected", what="the new key is accepted")
    sent = send(receiver, key_of(home), "with a new key")
    until(lambda: messages(home, mesh="lab")[-1]["client_message_id"] == sent)
