"""Which tools are listed: at most twelve, or the groups in the URL. Others can be called too."""

import json

from appliance.mcp.toolsets import DAILY, LISTED_MAX
from tests.mcp.test_tools import Agent
from tests.mcp.test_tools import agent as agent
from tests.support.servedhub import ServedHub

CHARS_PER_TOKEN = 4  # as catch-ups count


def test_default_list_is_the_twelve_daily_tools(agent: Agent) -> None:
    assert agent.names("") == agent.names("default") == set(DAILY)
    assert len(DAILY) == LISTED_MAX


def test_default_list_costs_two_fifths_of_all_tools(agent: Agent) -> None:
    daily, every = (len(json.dumps(agent.listed(name))) for name in ("default", "all"))
    assert daily < 4_200 * CHARS_PER_TOKEN
    assert daily * 5 < every * 2


def test_named_groups_list_exactly_their_tools(agent: Agent) -> None:
    assert agent.names("jobs") == {"job_run", "job_status"}
    assert agent.names("jobs,%20ask") == {"job_run", "job_status", "ask_person"}
    assert agent.names("default,jobs") == {*DAILY, "job_run", "job_status"}
    assert agent.names("all") > agent.names("default,bus,jobs")


def test_limited_token_sees_its_own_tools_before_free_ones(hub: ServedHub) -> None:
    limited = Agent(hub, "outbox:send")
    names = limited.names("")
    assert "outbox_send" in names
    assert len(names) <= LISTED_MAX
    assert limited.names("bus") == set()
    limited.http.close()


def test_unknown_group_is_refused_naming_the_groups(agent: Agent) -> None:
    answer = agent.ask("tools/list", "?tools=bus,wrong")
    assert (answer.status, answer.body["code"]) == (400, "NO_SUCH_TOOL_GROUP")
    assert answer.body["details"]["unknown"] == ["wrong"]
    assert {"ask", "bus", "hub", "jobs"} <= set(answer.body["details"]["groups"])
    assert "bus" in answer.body["hint"]
    assert agent.ask("tools/list", "?tools=" + "x" * 501).body["code"] == "INVALID_INPUT"


def test_unlisted_tool_can_be_called(agent: Agent) -> None:
    assert "list_channels" not in agent.names("default")
    assert "channels" in agent.call("list_channels")


def test_instructions_name_the_groups(agent: Agent) -> None:
    started = agent.ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={})
    assert "?tools=all or some of default,ask,blobs,bus" in started.body["result"]["instructions"]
