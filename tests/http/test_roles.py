"""Appliances with roles switched off, as their clients and operators see them."""

import io
import json
import shutil
from contextlib import contextmanager

import pytest

from appliance.app import Appliance
from appliance.kernel.clock import SystemClock
from appliance.kernel.log import Log
from appliance.roles import RolesSettings, role_off
from appliance.settings import Settings
from appliance.workspace import schema
from appliance.workspace.datadir import DataDir, WriterLock
from ops.write_paths import ALL_ROLES
from tests.support.commands import agentlip, agentlipd, succeed
from tests.support.servedhub import ServedHub

pytestmark = pytest.mark.slow

DURABLE = '[courier]\n[[courier.streams]]\npattern = "kept*"\ndurable = true\n'
ASKED = {
    "hub": "/api/v1/channels", "webhooks": "/api/v1/webhooks", "plugins": "/api/v1/plugins",
    "ask": "/api/v1/asks", "bus": "/bus/v1/claims", "courier": "/v1/stats", "outbox": "/v1/outbox",
    "inbox": "/v1/inbox", "hooks": "/v1/hooks/runs", "broker": "/broker/v1/status",
    "relay": "/admin/keys", "export": "/api/v1/segments", "jobs": "/api/v1/jobs/runs",
    "identity": "/v1/identity", "tokens": "/api/v1/tokens",
}  # fmt: skip
ROLES = RolesSettings.__struct_fields__


def only(*roles):
    return RolesSettings(**{role: role in roles for role in ROLES})


@contextmanager
def built(folder, roles=None):
    """An appliance that is not started, and what it logged."""
    lines = io.BytesIO()
    data, clock, log = DataDir(folder), SystemClock(), Log(lines)
    settings = Settings(roles=roles or ALL_ROLES)
    lock = WriterLock(data, "test", clock)
    schema.make_folders(data)
    lock.acquire()
    try:
        schema.create_workspace(
            data, clock=clock, log=log, locked=True, stores=settings.roles.stores
        )
        whole = Appliance(settings, lock, log)
        try:
            yield whole, lines
        finally:
            whole.stop()
    finally:
        lock.release()


def settings(*off, more=DURABLE):
    """All other roles are on, also those that are off by default."""
    on = "" if "relay" in off else "relay = true\n"
    return "[roles]\n" + on + "".join(f"{role} = false\n" for role in off) + more


def check_served(hub, served):
    for name, path in ASKED.items():
        answer = hub.http.get(path)
        if name in served or name == "tokens":
            assert answer.status == 200, (path, answer)
        else:
            assert (answer.status, answer.body["code"]) == (404, "ROLE_OFF"), (path, answer)
            assert answer.body["details"]["role"] == name
            assert f"{answer.body['details']['setting']} = true" in answer.body["hint"]


def check_healthy(hub, off):
    ready = hub.http.get("/-/ready")
    assert (ready.status, of_the_appliance(ready.body["findings"])) == (200, [])
    facts = {name.partition(".")[0] for name in ready.body["facts"]}
    assert not facts & {*off}
    output = json.loads(agentlip("doctor", "--json", cwd=hub.workspace).out)
    assert of_the_appliance(row for check in output["checks"] for row in check["findings"]) == []


def of_the_appliance(findings):
    """Without what only says that the machine is busy."""
    return [row for row in findings if row["check"] != "host.loop-delay"]


def test_server_with_the_broker_only(tmp_path):
    """Without the hub too: `up`, `status` and `/health` answer for the process."""
    off = set(ASKED) - {"broker", "identity", "tokens"} | {"mcp"}
    (tmp_path / "agentlip.toml").write_text(settings(*off))
    started = agentlipd("up", "--port", "0", cwd=tmp_path)
    assert started.code == 0, started
    assert "channel create" not in started.out
    hub = ServedHub(tmp_path)
    try:
        check_served(hub, {"broker"})
        check_healthy(hub, off)
        health = hub.http.get("/health")
        assert health.status == 200
        assert (health.body["status"], health.body["db_id"]) == ("ok", "")
        assert health.body["schema_version"] == 0
        assert health.body["features"] == []
        assert health.body["read_only"] is False
        shown = succeed("status", "--json", cwd=tmp_path)
        state = json.loads(shown.out)
        assert (state["status"], state["ready"], state["db_id"]) == ("running", True, "")
        assert "messages" not in state
        assert agentlip("status", cwd=tmp_path).code == 0
        made = hub.http.post("/broker/v1/meshes", {"slug": "m"})
        assert made.status == 201, made
        for path in ("/ws", "/v1/subscribe"):
            upgrade = {"Connection": "Upgrade", "Upgrade": "websocket",
                       "Sec-WebSocket-Version": "13",
                       "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}  # fmt: skip
            assert hub.connect().get(path, headers=upgrade).body["code"] == "ROLE_OFF"
        refused = agentlip("channel", "create", "general", cwd=tmp_path)
        assert refused.code != 0
        assert "hub is switched off (`roles.hub = false`)" in refused.err
        assert "set roles.hub = true" in refused.err
    finally:
        stopped = agentlipd("down", cwd=tmp_path)
    assert stopped.code == 0, stopped


def paths_of(whole):
    """The paths of routes and sockets of each subsystem."""
    return {
        part.name: [route.path for route in (*part.routes(), *part.sockets())]
        for part in whole.subsystems
    }


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """A workspace with all roles; the loops of each subsystem in their order, and its paths."""
    folder = tmp_path_factory.mktemp("everything")
    with built(folder) as (whole, lines):
        loops = {item.name: {loop.name for loop in item.loops} for item in whole.subsystems}
        paths = paths_of(whole)
    assert not [line for line in _log(lines) if "switched off" in line["msg"]]
    return folder, loops, paths


@pytest.mark.parametrize(
    "roles",
    [
        *(RolesSettings(**{role: False}) for role in ROLES),
        RolesSettings(outbox=False, inbox=False),
        only(),
        *(only(role) for role in ("hub", "courier", "outbox", "inbox", "broker")),
    ],
    ids=lambda roles: " ".join(sorted(roles.off)),
)
def test_only_what_is_on_is_built(everything, tmp_path, roles):
    folder, loops, paths = everything
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.sqlite3")}
    with built(tmp_path, roles) as (whole, lines):
        shown = [item.name for item in whole.subsystems if item.name in ROLES]
        assert shown == [name for name in loops if name in ROLES and name not in roles.off]
        served = paths_of(whole)
        assert "/health" in served.pop("health" if "hub" in roles.off else "hub")
        assert served == {name: paths[name] for name in served}
        for owner, path in [(part, path) for part, of_part in paths.items() for path in of_part]:
            refused = role_off(roles.off, path)
            assert (refused and refused.details["role"]) == (owner if owner in roles.off else None)
        stores = {store.name for item in whole.subsystems for store in item.stores}
        assert stores == {*roles.stores} | ({"bus"} if roles.bus else set())
        running = {loop.name for loop in whole.loops}
        for name in roles.off:
            assert not loops[name] & running, name
        assert ("local_meshes" in running) == (roles.inbox and roles.broker)
        assert whole._readiness().ready
        assert whole._readiness().findings == []
        (output,) = [line for line in _log(lines) if "switched off" in line["msg"]]
        assert {k: v for k, v in output.items() if k not in ("level", "ts", "msg")} == roles.off
    for path, changed in files.items():
        store = "hub" if path.stem == "db" else path.stem
        if store not in roles.stores:
            assert path.stat().st_mtime_ns == changed, store


def _log(lines):
    return [json.loads(line) for line in lines.getvalue().splitlines()]
