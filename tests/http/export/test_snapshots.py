"""Snapshots of the tables over HTTP: listed newest first, and downloaded in parts."""

import hashlib
import json
from urllib.parse import quote

import pytest

from tests.support.commands import agentlip
from tests.support.servedhub import serve

LIST = "/api/v1/snapshots"
SETTINGS = "[export]\nexport_format = 'jsonl'\n"


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("snapshots"), settings=SETTINGS) as hub:
        assert hub.http.get(LIST).body == {"snapshots": [], "has_more": False, "next": None}
        _, topic_id = hub.channel_with_topic("general")
        for content in ("one", "two"):
            hub.send_many(topic_id, [content])
            assert agentlip("export", "snapshot", cwd=hub.workspace).code == 0
        yield hub


@pytest.fixture
def newest(hub):
    return hub.http.get(LIST).body["snapshots"][0]


def test_snapshots_are_listed_newest_first_as_their_manifests_say(hub):
    results = hub.http.get(LIST).body["snapshots"]
    assert [item["as_of_event_id"] for item in results] == [4, 3]
    first = hub.http.get(f"{LIST}?limit=1").body
    assert (first["snapshots"], first["has_more"]) == (results[:1], True)
    second = hub.http.get(f"{LIST}?limit=1&after={first['next']}").body
    assert second == {"snapshots": results[1:], "has_more": False, "next": None}
    assert hub.http.get(f"{LIST}?after=x").status == 400
    assert hub.http.get(f"{LIST}?limit=0").status == 400
    for item in results:
        folder = hub.datadir.dir / "export/snapshot" / item.pop("name")
        assert json.loads((folder / "manifest.json").read_text()) == item


def test_every_table_of_a_snapshot_is_downloaded_whole_and_in_parts(hub, newest):
    for item in newest["files"].values():
        path = f"{LIST}/{newest['name']}/{item['file']}"
        answer = hub.http.get(path)
        assert (answer.status, len(answer.raw)) == (200, item["bytes"])
        assert hashlib.sha256(answer.raw).hexdigest() == item["sha256"]
        assert answer.headers["etag"] == f'"{item["sha256"]}"'
    table = newest["files"]["messages"]
    path = f"{LIST}/{newest['name']}/{table['file']}"
    whole = hub.http.get(path).raw
    assert [json.loads(line)["content_raw"] for line in whole.splitlines()] == ["one", "two"]
    part = hub.http.get(path, headers={"Range": "bytes=5-"})
    assert (part.status, part.raw) == (206, whole[5:])
    beyond = hub.http.get(path, headers={"Range": f"bytes={len(whole)}-"})
    assert (beyond.status, beyond.body["code"]) == (416, "RANGE_NOT_SATISFIABLE")


@pytest.mark.parametrize("file", ["manifest.json", "../manifest.json", "..%2fmanifest.json", "x"])
def test_only_tables_of_snapshots_are_served(hub, newest, file):
    assert hub.http.get(f"{LIST}/{newest['name']}/{quote(file, safe='/%')}").status in (400, 404)
    answer = hub.http.get(f"{LIST}/other/messages.jsonl")
    assert (answer.status, answer.body["code"]) == (404, "SNAPSHOT_NOT_FOUND")
