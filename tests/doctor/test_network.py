"""The checks of agents of the network: each reports what a test broke, and reports nothing else."""

import json

import pytest
from msgspec.structs import replace

from appliance.sdk.network.folder import AgentConfig, AgentFolder
from appliance.sdk.network.pins import KeyPin, KeyPins
from appliance.sdk.network.state import AgentState
from tests.doctor.workspace import WorkspaceFixture
from tests.support.database_files import execute
from tests.support.relay import key

CHECKS = ("network.agents", "network.keys", "network.links", "network.clock")
LIVE = {"network.relay_failed": 0.0, "network.unreachable": 0.0, "network.skew_seconds": 1.5}
CACHE = {"contacts": {"bert": {"agent": "bert", "publicKey": str(key("bert").public)}}}


@pytest.fixture
def workspace(tmp_path):
    made = WorkspaceFixture(tmp_path)
    path = made.data.dir / "network" / "anna"
    endpoint = "https://anna.example.org/network/inbox"
    AgentFolder.create(path, AgentConfig("anna", "https://relay.example", endpoint), key("anna"))
    state = AgentState(path / "state.sqlite3")
    pins = KeyPins(state)
    pins.put(KeyPin("bert", str(key("bert").public), verified=True))
    pins.revoke("chaos")
    state.close()
    (path / "cache.json").write_text(json.dumps(CACHE))
    return made


def list_findings(workspace):
    return {f"{name}:{finding.problem}" for name in CHECKS for finding in workspace.find(name)}


def test_nothing_is_wrong(workspace):
    assert list_findings(workspace) == set()
    workspace.live = LIVE
    assert list_findings(workspace) == set()
    (workspace.data.dir / "network" / "anna" / "state.sqlite3").unlink()  # it was never used
    assert list_findings(workspace) == set()


def open_key(folder):
    (folder / "key").chmod(0o644)


def remove_key(folder):
    (folder / "key").unlink()


def use_plain_http(folder):
    config = AgentFolder(folder).config()
    AgentFolder(folder).configure(replace(config, relay="http://relay.example"))


def damage_state(folder):
    (folder / "state.sqlite3").write_bytes(b"not a database, but long enough" * 200)


def change_key(folder):
    state = AgentState(folder / "state.sqlite3")
    KeyPins(state).put(KeyPin("bert", str(key("bert").public), offered=str(key("eve").public)))
    state.close()


def revoke_contact(folder):
    execute(folder / "state.sqlite3", "INSERT INTO revoked (agent) VALUES ('bert')")


def refuse_key_log(folder):
    execute(
        folder / "state.sqlite3",
        "INSERT INTO cursors (name, value) VALUES ('key_log_problem', 'the log is shorter')",
    )


def refuse_group_log(folder):
    execute(
        folder / "state.sqlite3",
        "INSERT INTO group_heads (group_id, at, hash, refused) VALUES ('g1', '', '', 1)",
    )


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (open_key, "network.agents:unusable"),
        (remove_key, "network.agents:unusable"),
        (damage_state, "network.agents:unusable"),
        (use_plain_http, "network.agents:unusable"),
        (change_key, "network.keys:key-changed"),
        (revoke_contact, "network.keys:revoked"),
        (refuse_key_log, "network.keys:key-log"),
        (refuse_group_log, "network.keys:group-log"),
    ],
)
def test_problem_of_a_folder_is_found(workspace, change, problem):
    change(workspace.data.dir / "network" / "anna")
    assert list_findings(workspace) == {problem}


@pytest.mark.parametrize(
    ("fact", "number", "problem", "severity"),
    [
        ("relay_failed", 1.0, "network.links:relay", "warning"),
        ("unreachable", 2.0, "network.links:unreachable", "warning"),
        ("skew_seconds", 61.0, "network.clock:skew", "warning"),
        ("skew_seconds", 301.0, "network.clock:skew", "error"),
    ],
)
def test_problem_of_the_running_appliance_is_found(workspace, fact, number, problem, severity):
    workspace.live = LIVE | {f"network.{fact}": number}
    assert list_findings(workspace) == {problem}
    (finding,) = workspace.find(problem.partition(":")[0])
    assert finding.severity.value == severity
