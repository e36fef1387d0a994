"""Agents of the network in backups: their keys are treated as the other secrets, and nothing that
was sent or received before a restore happens again."""

from contextlib import closing

import pytest
from msgspec.structs import replace

from appliance.backup.create import create_backup
from appliance.sdk.network.folder import AgentConfig, AgentFolder
from appliance.sdk.network.outgoing import EXPIRY_MS, OutgoingMessages
from appliance.sdk.network.pins import KeyPin, KeyPins
from appliance.sdk.network.state import AgentState
from appliance.workspace.datadir import DataDir
from tests.support.relay import key as key_of
from tests.support.restored_workspace import CLOCK, SETTINGS, BackedUp

ENDPOINT = "https://anna.example.org/network/inbox"
KEYS = {name: key_of(name).pkcs8() + "\n" for name in ("anna", "new")}


@pytest.fixture
def workspace(tmp_path):
    made = BackedUp(tmp_path / "w")
    add_agent(made, "anna")
    return made


def folder_of(workspace, name, datadir=None):
    return (datadir or workspace.datadir).dir / "network" / name


def add_agent(workspace, name):
    path = folder_of(workspace, name)
    AgentFolder.create(path, AgentConfig(name, "https://relay.example", ENDPOINT), key_of(name))
    (path / "cache.json").write_text("{}")
    state = AgentState(path / "state.sqlite3")  # open, with a write-ahead log, as in a program
    KeyPins(state).put(KeyPin("bert", str(key_of("bert").public), verified=True))
    now_ms = CLOCK.now_ms()
    for text, sent_ms in (("old", now_ms - EXPIRY_MS), ("new", now_ms)):
        OutgoingMessages(state).add("bert", {"text": text}, "direct", sent_ms)
    return state


def pin_state(path):
    with closing(AgentState(path / "state.sqlite3")) as state:
        return KeyPins(state).get("bert").state


def test_backup_contains_the_agents_without_what_their_relay_has(workspace):
    made = workspace.back_up()
    names = {file.path for file in made.files if file.path.startswith(".agentlip/network/")}
    assert names == {f".agentlip/network/anna/{n}" for n in ("agent.json", "key", "state.sqlite3")}
    assert {file.kind for file in made.files if file.path in names} == {"secret"}


def test_agents_are_encrypted_like_the_member_key(workspace, key):
    settings = replace(SETTINGS, recipients=(key.recipient,), identity_file=str(key.file))
    with workspace.backups.only_writer():
        made = create_backup(workspace.work(settings), reason="manual")
    files = list(workspace.backups.path(made.name).iterdir())
    names = [file.path for file in made.files if file.path.startswith(".agentlip/network/")]
    assert len(names) == 3
    assert all(file.suffix == ".age" or file.name.endswith(".json") for file in files)
    secret = KEYS["anna"].strip().encode()
    assert not any(secret in file.read_bytes() for file in files)


def test_agents_are_restored_to_a_new_machine(workspace, tmp_path):
    made = workspace.back_up()
    target = DataDir(tmp_path / "elsewhere")
    workspace.restore(made, target=target, new=True)
    path = folder_of(workspace, "anna", target)
    assert (path / "key").read_text() == KEYS["anna"]
    assert {file.stat().st_mode & 0o777 for file in path.iterdir()} == {0o600}
    assert path.stat().st_mode & 0o777 == 0o700
    assert pin_state(path) == "verified"
    with closing(AgentState(path / "state.sqlite3")) as state:
        new, old = OutgoingMessages(state).reports()
        assert (new.status, old.status) == ("pending", "expired")
        assert OutgoingMessages(state).claim(CLOCK.now_ms()).payload == {"text": "new"}


@pytest.mark.parametrize(("revive", "kept"), [(False, "new"), (True, "anna")])
def test_present_key_stays_unless_a_restore_brings_secrets_back(workspace, revive, kept):
    made = workspace.back_up()
    path = folder_of(workspace, "anna")
    (path / "key").write_text(KEYS["new"])
    add_agent(workspace, "eve").close()
    done = workspace.restore(made, revive=revive)
    assert (path / "key").read_text() == KEYS[kept]
    assert (folder_of(workspace, "eve") / "key").exists() is not revive
    assert (".agentlip/network/anna" in done.plan.kept) is not revive
    assert pin_state(path) == "verified"
