"""Administrative requests and tools are recorded, with what was there before and after."""

import json
import os
import signal

import pytest

from appliance.auditlog import file
from tests.support.servedhub import ServedHub, serve

PATH = "/api/v1/audit"
TOKENS = "/api/v1/tokens"


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("audit"), "--no-limits") as hub:
        yield hub


def acts(hub, **query):
    text = "&".join(f"{name}={value}" for name, value in query.items())
    return hub.http.get(f"{PATH}?{text}").body["acts"]


def made_token(hub, name, *scopes):
    return hub.made(hub.http.post(TOKENS, {"name": name, "scopes": [*scopes]}))


def test_act_has_actor_request_and_the_state_before_and_after(hub):
    token = made_token(hub, "bob", "hub:read")["token"]
    hub.http("DELETE", f"{TOKENS}/{token['id']}")
    revoked, made = acts(hub, limit=2)
    assert (made["act"], made["actor"], made["via"]) == (f"POST {TOKENS}", "server", "http")
    assert made["began"]["request"]["name"] == "bob"
    assert "before" not in made["began"]
    assert made["ended"]["after"]["state"] == "active"
    assert (revoked["act"], revoked["outcome"]) == (f"DELETE {TOKENS}/{{token_id}}", "done")
    assert revoked["began"]["path"] == {"token_id": token["id"]}
    assert revoked["began"]["before"]["state"] == "active"
    assert revoked["ended"]["after"]["state"] == "revoked"
    assert revoked["began"]["request_id"]


def test_caller_without_the_scope_leaves_no_record(hub):
    secret = made_token(hub, "reader", "hub:read")["secret"]
    before = acts(hub, limit=1)
    client = hub.connect(secret)
    assert client.post(TOKENS, {"name": "more", "scopes": ["admin"]}).status == 403
    assert client.get(PATH).status == 403
    assert acts(hub, limit=1) == before


def test_tool_of_an_agent_is_recorded_through_the_same_hook(hub):
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    call["params"] = {"name": "outbox_drop", "arguments": {"id": "none"}}
    hub.http.post("/mcp", call)
    (act,) = acts(hub, limit=1)
    assert (act["act"], act["actor"], act["via"]) == ("tool outbox_drop", "server", "mcp")
    assert act["outcome"] == "refused"
    hub.http.post("/mcp", {**call, "params": {"name": "status", "arguments": {}}})
    assert acts(hub, limit=1) == [act], "reading is not recorded"


def test_secrets_of_requests_and_replies_are_nowhere_in_the_file(hub):
    made = made_token(hub, "secretive", "hub:read")
    invited = hub.made(hub.http.post("/api/v1/invitations", {}))
    signed_in = hub.connect(None).post("/api/v1/sessions", {"invite": invited["secret"]})
    assert signed_in.status == 201
    hub.connect(None).post("/api/v1/sessions", {"token": made["secret"]})
    cookie = signed_in.headers["set-cookie"].partition("=")[2].partition(";")[0]
    data = b"".join(path.read_bytes() for path in hub.datadir.dir.glob("audit.sqlite3*"))
    assert b"secretive" in data
    for secret in (made["secret"], invited["secret"], cookie, hub.token):
        assert secret.encode() not in data


def test_act_is_refused_if_it_can_not_be_recorded(tmp_path):
    with serve(tmp_path, "--no-limits") as hub:
        path = file.file_in(hub.datadir.workspace)
        path.write_bytes(b"no database" * 1000)
        answer = hub.http.post(TOKENS, {"name": "bob", "scopes": ["hub:read"]})
        assert (answer.status, answer.body["code"]) == (503, "AUDIT_UNAVAILABLE")
        assert "bob" not in hub.http.get(TOKENS).raw.decode()
        path.unlink()
        made_token(hub, "bob", "hub:read")


@pytest.mark.slow
def test_killed_server_leaves_no_act_without_a_record(tmp_path):
    """Killed at random moments: whatever token is there, its intent is in the log."""
    hub = ServedHub(tmp_path, "--no-limits")
    for number in range(4):
        hub.start()
        client = hub.connect()
        made_token(hub, f"first-{number}", "hub:read")
        body = json.dumps({"name": f"killed-{number}", "scopes": ["hub:read"]})
        headers = {"Authorization": f"Bearer {hub.token}", "Content-Type": "application/json"}
        client.connection.request("POST", TOKENS, body, headers)
        os.kill(hub.pid, signal.SIGKILL)
        hub.kill()
    hub.start()
    names = {row["name"] for row in hub.http.get(f"{TOKENS}?limit=100").body["tokens"]}
    recorded = {act["began"].get("request", {}).get("name") for act in acts(hub, limit=100)}
    hub.kill()
    assert {name for name in names if "-" in name} <= recorded
    assert not file.verify(file.file_in(tmp_path)).broken
