"""Pages cut by their bytes, and all our code that reads them: no reader stops too early."""

import pytest

from appliance.sdk.client import Client
from appliance.sdk.discovery import find_hub
from appliance.sdk.http import HubClient
from appliance.sdk.remotereader import RemoteReader
from tests.support.servedhub import serve

COUNT = 30
CONSTANTS = {"appliance.kernel.reader.PAGE_BYTES_MAX": 50_000}


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("hub"), constants=CONSTANTS) as hub:
        hub.topic_id = hub.channel_with_topic("general")[1]
        results = hub.send_many(hub.topic_id, ["x" * 10_000 + str(n) for n in range(COUNT)])
        hub.ids = [result["message"]["id"] for result in results]
        yield hub


def test_a_page_is_cut(hub):
    answer = hub.http.get(f"/api/v1/messages?topic_id={hub.topic_id}&limit=1000")
    assert answer.body["has_more"]
    assert 1 <= len(answer.body["messages"]) <= 5
    assert len(answer.raw) <= 50_000


def test_the_command_lines_reader_by_url_gives_as_many_as_asked_for(hub):
    with RemoteReader(HubClient(lambda: find_hub(hub.workspace))) as reader:
        rows = reader.messages(hub.topic_id, limit=25)
        assert [row["id"] for row in rows] == hub.ids[:4:-1]
        rows = reader.messages(hub.topic_id, limit=1000, after_id=hub.ids[0])
        assert [row["id"] for row in rows] == hub.ids[1:]
        rows = reader.messages(hub.topic_id, limit=25, since=rows[0]["created_at"])
        assert len(rows) == 25
        assert len(reader.channels(1000)) == 1


def test_the_sdk_reads_a_topic_to_its_end(hub):
    with Client(hub.workspace) as client:
        assert [message.id for message in client.messages(hub.topic_id)] == hub.ids


def test_the_tool_for_agents_waits_from_where_its_page_ended(hub):
    seen, after = [], 0
    while True:
        arguments = {"after": after, "limit": 50, "wait_s": 0}
        params = {"name": "wait_events", "arguments": arguments}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = hub.http.post("/mcp", call, headers={"Accept": "application/json"})
        output = answer.body["result"]["structuredContent"]
        if not output["events"]:
            break
        seen += [event["id"] for event in output["events"]]
        after = output["cursor"]
    assert seen == list(range(1, hub.head + 1))
