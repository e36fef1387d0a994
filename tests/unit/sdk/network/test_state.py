"""The file of an agent: readable by its owner, shared by processes, refused when it is damaged."""

import stat

import pytest

from appliance.sdk.network.state import AgentState, AgentStateDamaged


def test_file_is_for_its_owner_and_is_shared(tmp_path, state):
    assert stat.S_IMODE((tmp_path / "state.sqlite3").stat().st_mode) == 0o600
    other = AgentState(tmp_path / "state.sqlite3")
    state.set_cursor("contacts", "7")
    assert (other.cursor("contacts"), other.cursor("broadcasts")) == ("7", "")
    other.close()


def test_damaged_file_is_refused(tmp_path):
    file = tmp_path / "state.sqlite3"
    file.write_bytes(b"x" * 10_000)
    with pytest.raises(AgentStateDamaged):
        AgentState(file)
    assert file.read_bytes() == b"x" * 10_000
