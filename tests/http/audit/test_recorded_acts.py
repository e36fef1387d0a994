"""Administrative requests and tools are recorded, with what was there before and after."""

import json
import os
import signal

import pytest

from appliance.audit.log import file
from tests.support.courier import envelope
from tests.support.servedhub import ServedHub, serve
from tests.support.until import until

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


GUESSES = (
    ("POST", "/ask/x", b"answer=yes", {"Content-Type": "application/x-www-form-urlencoded"}),
    ("POST", "/api/v1/sessions", b'{"invite": "agl_guessed"}', {}),
    ("POST", "/api/v1/sessions", b"{}", {}),
    ("POST", "/api/v1/invitations", b"{}", {}),
    ("DELETE", "/api/v1/sessions/current", None, {}),
    ("DELETE", "/api/v1/sessions/ses_x", None, {}),
    ("POST", "/api/v1/incoming/x", b"{}", {}),
    ("POST", "/api/v1/sign-in", b"", {}),
    ("POST", "/api/v1/sign-in/complete", b'{"state": "guessed", "code": "c"}', {}),
)


def test_refusals_without_a_credential_leave_no_record(hub):
    before = acts(hub, limit=1)
    stranger = hub.connect(None)
    document = hub.http.get("/api/v1/openapi.json").body["paths"]
    templates = {
        "/ask/x": "/ask/{link}",
        "/api/v1/sessions/ses_x": "/api/v1/sessions/{session_id}",
        "/api/v1/incoming/x": "/api/v1/incoming/{name}",
    }
    guessed = {f"{method} {templates.get(path, path)}" for method, path, *_ in GUESSES}
    is_open = {
        f"{method.upper()} {path}"
        for path, item in document.items()
        for method, operation in item.items()
        if method != "get" and operation["security"] == []
    }
    assert is_open == guessed, "each open route that changes something is in the table"
    for method, path, raw, headers in GUESSES:
        headers = {"Content-Type": "application/json", **headers}
        assert stranger(method, path, raw=raw, headers=headers).status in (401, 404)
    assert acts(hub, limit=1) == before


def test_act_that_needs_no_token_is_logged_and_displaces_no_record(hub):
    before = acts(hub, limit=1)
    job = {"to": "open", "envelope": envelope("e1")}
    assert hub.http.post("/v1/enqueue", job).status == 200
    stranger = hub.connect(None)
    assert stranger.post("/v1/streams/pause", {"stream": "open"}).status == 200
    assert acts(hub, limit=1) == before
    assert '"msg":"an act without a token"' in hub.log_text
    assert '"route":"/v1/streams/pause"' in hub.log_text
    assert hub.http.post("/v1/streams/resume", {"stream": "open"}).status == 200
    (resumed,) = acts(hub, limit=1)
    assert resumed["act"] == "POST /v1/streams/resume"


def test_sign_in_by_a_link_is_recorded_once(hub):
    invite = hub.made(hub.http.post("/api/v1/invitations", {}))["secret"]
    stranger, path = hub.connect(None), "/api/v1/sessions"
    assert stranger.post(path, {"invite": invite}).status == 201
    (signed_in,) = acts(hub, limit=1)
    assert (signed_in["act"], signed_in["outcome"]) == (f"POST {path}", "done")
    assert stranger.post(path, {"invite": invite}).status == 401
    assert acts(hub, limit=1) == [signed_in]


def test_open_routes_are_limited_by_address(tmp_path):
    """Each connection is new, and a caller with a token is not limited by its address."""
    with serve(tmp_path, limits=True) as hub:
        for method, path, raw, headers in GUESSES[:4]:

            def is_limited(method=method, path=path, raw=raw, headers=headers):
                headers = {"Content-Type": "application/json", **headers}
                reply = hub.connect(None)(method, path, raw=raw, headers=headers)
                return reply.status == 429

            until(is_limited, what=path)
        assert hub.http.get("/api/v1/tokens").status == 200
        assert hub.connect(None).get("/-/healthy").status == 200


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


def test_token_with_the_name_of_a_revoked_one_is_recorded_as_itself(hub):
    former = made_token(hub, "again", "hub:read")["token"]["id"]
    assert hub.http("DELETE", f"{TOKENS}/{former}").status == 200
    made = made_token(hub, "again", "hub:read")["token"]["id"]
    (record,) = acts(hub, limit=1)
    assert record["ended"]["after"]["id"] == record["ended"]["reply"]["token"]["id"] == made
    assert record["ended"]["reply"]["secret"] == "[hidden]"
