"""A file with the state of an agent."""

import pytest

from appliance.sdk.network.state import AgentState


@pytest.fixture
def state(tmp_path):
    with_state = AgentState(tmp_path / "state.sqlite3")
    yield with_state
    with_state.close()
