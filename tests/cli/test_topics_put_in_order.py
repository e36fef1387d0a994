"""`msg retopic`, `attachment` and `search`, with a hub and without."""

import json
from pathlib import Path

import pytest

from tests.support.commands import CommandOutput, agentlip, succeed
from tests.support.hubprocess import HubProcess
from tests.support.workspaces import Filled

pytestmark = pytest.mark.slow

LINK = '{"url": "https://example.com", "title": "Example"}'


def _do(hub: HubProcess, *arguments: object) -> CommandOutput:
    return succeed(*arguments, "--json", cwd=hub.workspace)


@pytest.fixture(scope="module")
def topics(hub: HubProcess) -> dict[str, str]:
    """Ids of two topics in a channel, and of one elsewhere."""
    for channel in ("general", "other"):
        _do(hub, "channel", "create", channel)
    titles = [("here", "general"), ("there", "general"), ("far", "other")]
    return {
        title: _do(hub, "topic", "create", "--channel", channel, title).json["topic"]["id"]
        for title, channel in titles
    }


@pytest.fixture
def sent(hub: HubProcess, topics: dict[str, str]) -> list[str]:
    send = ["msg", "send", "--topic-id", topics["here"], "--sender", "a", "--content"]
    return [_do(hub, *send, f"note {number}").json["message_id"] for number in range(3)]


def test_retopic_of_all_needs_force(hub, topics, sent):
    move = ["msg", "retopic", sent[0], "--to-topic-id", topics["there"], "--mode", "all"]
    refused = agentlip(*move, cwd=hub.workspace)
    assert (refused.code, refused.out) == (1, "")
    assert "--force" in refused.err
    assert _do(hub, *move, "--force").json["affected_count"] == 3


@pytest.mark.parametrize("mode", ["one", "later", "all"])
def test_retopic_into_another_channel_is_forbidden(hub, topics, sent, mode):
    done = agentlip(
        "msg", "retopic", sent[0], "--to-topic-id", topics["far"], "--mode", mode, "--force",
        cwd=hub.workspace,
    )  # fmt: skip
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines()[0] == "Error: cross-channel move forbidden"
    odd = ["msg", "retopic", sent[0], "--to-topic-id", topics["there"], "--mode", "some"]
    assert agentlip(*odd, cwd=hub.workspace).code == 1


def test_attachments_are_added_once_and_listed(hub, topics, sent):
    add = ["attachment", "add", "--topic-id", topics["here"], "--kind", "url"]
    first = _do(hub, *add, "--value-json", LINK, "--source-message-id", sent[0]).json
    assert set(first) == {"attachment_id", "event_id"}
    turned = '{"title":"Example","url":"https:\\/\\/example.com"}'
    second = _do(hub, *add, "--value-json", turned).json
    wanted = {"attachment_id": first["attachment_id"], "event_id": None, "deduplicated": True}
    assert second == wanted
    _do(hub, *add[:-1], "note", "--value-json", "{}", "--key", "k", "--dedupe-key", "d")
    listed = _do(hub, "attachment", "list", "--topic-id", topics["here"], "--kind", "url").json
    assert [each["id"] for each in listed] == [first["attachment_id"]]
    assert listed[0]["value_json"] == json.loads(LINK)
    assert set(listed[0]) == {
        "id", "topic_id", "kind", "key", "value_json", "dedupe_key", "source_message_id",
        "created_at",
    }  # fmt: skip
    newest = _do(hub, "attachment", "list", "--topic-id", topics["here"], "--limit", 1).json
    assert (newest[0]["kind"], newest[0]["key"]) == ("note", "k")
    older = ["attachment", "list", "--topic-id", topics["here"], "--before-id", newest[0]["id"]]
    assert _do(hub, *older).json == listed
    people = agentlip("attachment", "list", "--topic-id", topics["here"], cwd=hub.workspace)
    assert '{"url":"https://example.com","title":"Example"}' in people.out


@pytest.mark.parametrize("foreign", [False, True])
def test_search_needs_no_hub(tmp_path: Path, foreign: bool) -> None:
    filled = Filled(tmp_path, foreign=foreign, messages=12)
    done = succeed("search", "message 11", "--json", cwd=filled.path)
    assert [each["content_raw"] for each in done.json["messages"]] == ["message 11"]
    assert done.json["fts_used"] is not foreign
    output = agentlip("search", "message", "--limit", 2, cwd=filled.path)
    assert "message 11" in output.out
    assert "narrow the search" in output.err
    assert ("compared as substrings" in output.err) == foreign
    nothing = agentlip("search", "nothing", cwd=filled.path)
    assert (nothing.code, nothing.out) == (0, "")
    lines = agentlip("search", "message", "--jsonl", "--limit", 3, cwd=filled.path).lines
    assert len(lines) == 3
