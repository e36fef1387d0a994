"""`msg retopic`, `attachment` and `search`, with a hub and without."""

import json
from pathlib import Path

import pytest

from tests.support.commands import CommandOutput, agentlip
from tests.support.hubprocess import HubProcess
from tests.support.workspaces import Filled

pytestmark = pytest.mark.slow

LINK = '{"url": "https://example.com", "title": "Example"}'


def _do(hub: HubProcess, *arguments: object) -> CommandOutput:
    done = agentlip(*arguments, "--json", cwd=hub.workspace)
    assert done.code == 0, done
    return done


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


def test_retopic_prints_the_number_of_moved_messages(hub, topics, sent):
    move = ["msg", "retopic", sent[1], "--to-topic-id", topics["there"], "--mode", "later"]
    moved = _do(hub, *move, "--expected-version", 1).json
    assert set(moved) == {"affected_count", "event_ids"}
    assert moved["affected_count"] == len(moved["event_ids"]) == 2
    assert _do(hub, *move).json == {"affected_count": 0, "event_ids": []}
    late = agentlip(*move, "--expected-version", 1, cwd=hub.workspace)
    assert late.code == 2
    assert late.err.splitlines()[0] == "Error: version conflict (current: 2)"
    answer = agentlip(
        "msg", "retopic", sent[0], "--to-topic-id", topics["there"], "--mode", "one",
        cwd=hub.workspace,
    )  # fmt: skip
    assert answer.out == f"moved 1 message to {topics['there']}\n"


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


def test_search_finds_a_message_just_sent(hub: HubProcess, topics: dict[str, str]) -> None:
    send = ["msg", "send", "--topic-id", topics["here"], "--sender", "finder", "--content"]
    sent = _do(hub, *send, "a needle in the hay").json
    for arguments in (
        ["needle"],
        ['"needle in"', "--channel", "general"],
        ["needle OR nothing", "--topic-id", topics["here"], "--sender", "finder"],
        ["needle", "--after", "2026-01-01"],
    ):
        result = _do(hub, "search", *arguments).json
        assert set(result) == {"messages", "fts_used", "has_more"}
        assert [each["id"] for each in result["messages"]] == [sent["message_id"]]
        assert result["messages"][0]["snippet"] == "a needle in the hay"
        assert result["fts_used"] is True
    path = f"/api/v1/search?q=needle&topic_id={topics['here']}"
    assert hub.request("GET", path) == _do(hub, "search", "needle").json
    for arguments in (["needle", "--sender", "b"], ["needle", "--before", "2026-01-01"]):
        assert _do(hub, "search", *arguments).json["messages"] == []


@pytest.mark.parametrize("foreign", [False, True])
def test_search_needs_no_hub(tmp_path: Path, foreign: bool) -> None:
    filled = Filled(tmp_path, foreign=foreign, messages=12)
    done = agentlip("search", "message 11", "--json", cwd=filled.path)
    assert done.code == 0, done
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


def test_attachments_are_read_without_a_hub(tmp_path: Path) -> None:
    filled = Filled(tmp_path, foreign=True, messages=0)
    with filled.connect() as connection:
        connection.execute(
            "INSERT INTO topic_attachments VALUES ('a', ?, 'url', NULL, '{\"url\": \"x\"}', 'd',"
            " NULL, '2026-02-04T20:00:00.000Z')",
            (filled.topic_id,),
        )
    connection.close()
    done = agentlip("attachment", "list", "--topic-id", filled.topic_id, "--json", cwd=filled.path)
    assert done.json[0]["value_json"] == {"url": "x"}
    for arguments in (["nope"], [filled.topic_id, "--before-id", "nope"]):
        assert agentlip("attachment", "list", "--topic-id", *arguments, cwd=tmp_path).code == 1
