"""Errors speak to a model, which has tools and no shell."""

import pytest

from appliance.hub import wire
from appliance.hub.access import OtherChannel
from appliance.kernel import errors
from appliance.kernel.auth import SenderNotAllowed
from appliance.mcp.results import hint_for_model
from appliance.mcp.tools import TOOLS


def kinds(parent):
    for kind in parent.__subclasses__():
        yield kind
        yield from kinds(kind)


def test_command_for_a_shell_is_marked_as_the_operators():
    errors_of = kinds(errors.ApplianceError)
    own = [kind for kind in errors_of if kind.__module__.startswith("appliance.")]
    assert len(own) > 20
    for kind in own:
        error = kind.__new__(kind)
        errors.ApplianceError.__init__(error)
        hint = hint_for_model(error)
        assert hint, kind
        if "agentlip " in hint or "GET /" in hint or ".toml" in hint:
            assert hint.startswith("for the operator: "), kind


@pytest.mark.parametrize(
    ("error", "tool"),
    [
        (wire.NoSuchChannel(), "list_channels"),
        (wire.NoSuchTopic(), "list_topics"),
        (wire.NoSuchMessage(), "read_topic"),
        (wire.VersionConflict(), "read_message"),
        (OtherChannel(), "status"),
        (SenderNotAllowed(), "status"),
    ],
)
def test_hint_names_a_tool_that_exists(error, tool):
    assert tool in hint_for_model(error)
    assert tool in {row.name for row in TOOLS}
