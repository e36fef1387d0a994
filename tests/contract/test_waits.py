"""A command that waits gets its answer: each wait is shorter than the timeout of its client."""

import pytest

from appliance.hub.agents import running
from appliance.hub.ask import cli as ask
from appliance.hub.entries import cli as entries
from appliance.hub.entries.wire import WAIT_SECONDS_MAX
from appliance.inbox import cli as inbox
from appliance.jobs import cli as jobs
from appliance.sdk.http import REQUEST_TIMEOUT_SECONDS, REQUEST_WAIT_SECONDS_MAX

WAITS = {
    "agent run": (max(running.WAIT_SECONDS), running.TIMEOUT_SECONDS),
    "ask": (ask.WAIT_SECONDS, REQUEST_TIMEOUT_SECONDS),
    "entries": (entries.WAIT_SECONDS, REQUEST_TIMEOUT_SECONDS),
    "inbox": (inbox.WAIT_SECONDS, REQUEST_TIMEOUT_SECONDS),
    "jobs": (jobs.WAIT_SECONDS, REQUEST_TIMEOUT_SECONDS),
    "sdk": (REQUEST_WAIT_SECONDS_MAX, REQUEST_TIMEOUT_SECONDS),
}


@pytest.mark.parametrize(("wait", "timeout"), WAITS.values(), ids=WAITS)
def test_wait_ends_before_its_client_gives_up(wait: float, timeout: float) -> None:
    assert wait + 5 <= timeout
    assert wait <= WAIT_SECONDS_MAX
