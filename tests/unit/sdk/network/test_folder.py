"""The folder of an agent: a key that only its owner can read, and a rotation that can crash."""

import stat
import sys
from types import SimpleNamespace

import msgspec
import pytest

from appliance.network.keys import AgentKey
from appliance.sdk.network.folder import (
    AgentConfig,
    AgentFolder,
    AgentFolderExists,
    KeyExposed,
    NoNetworkAgent,
)

CONFIG = AgentConfig("anna", "https://relay.example", "https://anna.example/network/inbox")


@pytest.fixture
def folder(tmp_path):
    return AgentFolder.create(tmp_path / "anna", CONFIG)


def test_new_agent_has_a_key_for_its_owner_only(folder):
    file = folder.path / "key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert str(AgentKey.of(file.read_text().strip()).public) == str(folder.key().public)
    assert folder.config() == CONFIG


def test_agent_is_never_overwritten(folder):
    before = folder.key().public
    with pytest.raises(AgentFolderExists):
        AgentFolder.create(folder.path, CONFIG)
    assert folder.key().public == before


def test_key_that_others_can_read_is_refused(folder):
    (folder.path / "key").chmod(0o640)
    with pytest.raises(KeyExposed):
        folder.key()


def test_next_key_stays_the_same_until_it_replaces_the_key(folder):
    before, following = folder.key().public, folder.next_key().public
    assert AgentFolder(folder.path).next_key().public == following != folder.key().public
    folder.promote_next()
    assert folder.key().public == following
    assert folder.former_key().public == before
    assert folder.next_key().public != following
    folder.promote_next()
    assert folder.former_key().public == following
    for _ in range(2):
        folder.forget_former()
    with pytest.raises(NoNetworkAgent):
        folder.former_key()


@pytest.fixture
def entries(monkeypatch):
    """What a keyring of the system has. The library `keyring` finds one only on a desktop."""
    entries = {}
    keyring = SimpleNamespace(
        get_password=lambda service, name: entries.get((service, name)),
        set_password=lambda service, name, secret: entries.update({(service, name): secret}),
        delete_password=lambda service, name: entries.pop((service, name)),
    )
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    return entries


def test_key_can_be_in_the_keyring_of_the_system(tmp_path, entries):
    folder = AgentFolder.create(tmp_path / "anna", msgspec.structs.replace(CONFIG, keyring=True))
    assert [file.name for file in folder.path.iterdir()] == ["agent.json"]
    before, following = folder.key().public, folder.next_key().public
    assert len(entries) == 2
    assert folder.next_key().public == following != before
    folder.promote_next()
    assert folder.key().public == following
    assert folder.former_key().public == before
    assert len(entries) == 2
    for _ in range(2):
        folder.forget_former()
    assert len(entries) == 1
    with pytest.raises(AgentFolderExists):  # its entry in the keyring is not replaced either
        AgentFolder.create(tmp_path / "other", folder.config())
    entries.clear()
    with pytest.raises(NoNetworkAgent, match="keyring"):
        folder.key()
