"""Which commands are administrative acts."""

import pytest

from appliance.audit.log.commands import is_act
from appliance.kernel.child_environment import child_environment


@pytest.mark.parametrize(
    ("command", "given", "expected"),
    [
        ("agentlip export compact", {}, True),
        ("agentlip token create", {"name": "bob"}, True),
        ("agentlip token list", {}, False),
        ("agentlip backup prune", {"dry_run": True}, False),
    ],
)
def test_command_is_an_act_unless_it_reads_or_plans(command, given, expected):
    assert is_act(command, given) is expected


def test_command_of_the_appliances_own_loop_is_not_recorded(monkeypatch):
    for name, value in child_environment().items():
        monkeypatch.setenv(name, value)
    assert not is_act("agentlip export compact", {})
