"""The folder of an agent: a key that only its owner can read, and a rotation that can crash."""

import stat

import pytest

from appliance.network.keys import AgentKey
from appliance.network.names import BadAgentName
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


def test_key_of_another_program_is_imported(tmp_path):
    key = AgentKey.generate()
    folder = AgentFolder.create(tmp_path / "anna", CONFIG, AgentKey.of(key.pkcs8()))
    assert folder.key().public == key.public


def test_agent_is_never_overwritten(folder):
    before = folder.key().public
    with pytest.raises(AgentFolderExists):
        AgentFolder.create(folder.path, CONFIG)
    assert folder.key().public == before


def test_key_that_others_can_read_is_refused(folder):
    (folder.path / "key").chmod(0o640)
    with pytest.raises(KeyExposed):
        folder.key()


def test_folder_without_an_agent_is_named_as_such(tmp_path):
    for read in (AgentFolder(tmp_path).config, AgentFolder(tmp_path).key):
        with pytest.raises(NoNetworkAgent):
            read()
    with pytest.raises(BadAgentName):
        AgentFolder.create(tmp_path, AgentConfig("Anna", "", ""))


def test_next_key_stays_the_same_until_it_replaces_the_key(folder):
    following = folder.next_key().public
    assert AgentFolder(folder.path).next_key().public == following != folder.key().public
    folder.promote_next()
    assert folder.key().public == following
    assert folder.next_key().public != following
