"""Errors speak to a model, which has tools and no shell."""

import pytest

from appliance.courier.wire import NoSuchEnvelope
from appliance.hub import wire
from appliance.hub.access import OtherChannel
from appliance.hub.ask.wire import NoSuchAsk, TooManyAsks
from appliance.hub.blobs.wire import NoSuchBlob
from appliance.hub.entries.wire import EntrySettled, NoSuchEntry, NotListed
from appliance.jobs.wire import NoSuchRun, RunOver
from appliance.kernel import errors
from appliance.kernel.auth import SenderNotAllowed
from appliance.mcp.results import hint_for_model
from appliance.mcp.tools import TOOLS
from appliance.outbox.wire import NoSuchSend
from tests.mcp.test_client import TOOLS as CLIENT_TOOLS


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


@pytest.mark.parametrize(
    ("error", "tool"),
    [
        (NoSuchEntry(), "my_inbox"),
        (EntrySettled(), "my_inbox"),
        (NotListed(), "my_inbox"),
        (NoSuchAsk(), "catch_up"),
        (TooManyAsks(), "catch_up"),
        (NoSuchBlob(), "put_file"),
        (NoSuchSend(), "outbox_send"),
        (NoSuchEnvelope(), "courier_receive"),
        (NoSuchRun(), "job_status"),
        (RunOver(), "job_status"),
    ],
)
def test_operators_command_becomes_the_tool_that_does_it(error, tool):
    hint = hint_for_model(error)
    assert hint.startswith(tool)
    assert "operator" not in hint
    assert tool in CLIENT_TOOLS
