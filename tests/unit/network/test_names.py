"""Names of agents."""

import pytest

from appliance.network.names import BadAgentName, check_agent_name


@pytest.mark.parametrize("name", ["a", "7", "bmo", "r2-d2", "a_b", "x" * 32])
def test_name_is_accepted(name):
    assert check_agent_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "Bmo", "-a", "_a", "a b", "ä", "x" * 33, "a\n", "a/b", "batch", "pending"]
)
def test_name_is_refused(name):
    with pytest.raises(BadAgentName):
        check_agent_name(name)
