"""Segments over HTTP: listed with a cursor, downloaded in parts, exported while the hub serves."""

import hashlib
import json
import os
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest

from appliance.export import segment
from tests.support.commands import agentlip, succeed
from tests.support.exports import StoreLog, ids_in, manifests
from tests.support.servedhub import serve
from tests.support.until import until

pytestmark = pytest.mark.slow

LIST = "/api/v1/segments"
SETTINGS = "[export]\nexport_format = 'jsonl'\nsegment_rows_max = 20\n"
CONSTANTS = {"appliance.export.service.DOWNLOAD_CHUNK_BYTES": 1000}


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("segments"), settings=SETTINGS, constants=CONSTANTS) as hub:
        assert hub.http.get(LIST).body == {
            "segments": [],
            "next": 0,
            "has_more": False,
            "begins_after": 0,
        }
        _, topic_id = hub.channel_with_topic("general")
        hub.send_many(topic_id, [f"text {number}" for number in range(98)])
        assert agentlip("export", "segments", cwd=hub.workspace).code == 0
        yield hub


@pytest.fixture(scope="module")
def delivery(hub):
    """The only segment of the broker's log."""
    StoreLog(hub, "broker", 7)
    assert agentlip("export", "segments", cwd=hub.workspace).code == 0
    (item,) = hub.http.get(f"{LIST}?log=broker").body["segments"]
    return item


@pytest.fixture(scope="module")
def listed(hub):
    return hub.http.get(LIST).body["segments"]


def test_all_segments_are_listed_page_by_page_with_a_cursor(hub, listed):
    assert [item["rows"] for item in listed] == [20] * 5
    output = {key: value for key, value in listed[0].items() if key != "name"}
    manifest = manifests(hub.datadir.dir / "export")[0]
    assert {**output, "file": listed[0]["name"]} == json.loads(msgspec.json.encode(manifest))
    results, after = [], 0
    while True:
        page = hub.http.get(f"{LIST}?after={after}&limit=2").body
        results += page["segments"]
        after = page["next"]
        if not page["has_more"]:
            break
    assert results == listed
    assert after == 100
    assert hub.http.get(f"{LIST}?after=100").body["segments"] == []
    assert hub.http.get(f"{LIST}?limit=0").status == 400


def test_a_download_is_the_file_with_its_hash_as_etag(hub, listed):
    for item in listed:
        answer = hub.http.get(f"{LIST}/{item['name']}")
        assert answer.status == 200
        assert hashlib.sha256(answer.raw).hexdigest() == item["sha256"]
        assert answer.headers["etag"] == f'"{item["sha256"]}"'
        assert answer.headers["content-length"] == str(item["bytes"])
        assert answer.headers["accept-ranges"] == "bytes"
    lines = answer.raw.splitlines()
    assert json.loads(lines[-1])["event_id"] == 100
    head = hub.http("HEAD", f"{LIST}/{item['name']}")
    assert (head.status, head.raw) == (200, b"")
    assert head.headers["content-length"] == str(item["bytes"])


def test_range_gets_206_and_a_range_outside_the_file_416(hub, listed):
    item = listed[0]
    path, size = f"{LIST}/{item['name']}", item["bytes"]
    whole = hub.http.get(path).raw

    def part(text, **more):
        return hub.http.get(path, headers={"Range": text, **more})

    middle = part("bytes=5-4004")
    assert (middle.status, middle.raw) == (206, whole[5:4005])
    assert middle.headers["content-range"] == f"bytes 5-4004/{size}"
    beyond = part(f"bytes={size}-")
    assert (beyond.status, beyond.body["code"]) == (416, "RANGE_NOT_SATISFIABLE")
    assert beyond.headers["content-range"] == f"bytes */{size}"
    several = part("bytes=0-1,5-6")
    assert (several.status, several.raw) == (200, whole)
    etag = f'"{item["sha256"]}"'
    assert part("bytes=0-4", **{"If-Range": etag}).status == 206
    assert part("bytes=0-4", **{"If-Range": '"other"'}).status == 200


def test_each_log_needs_its_own_scope(hub, listed, delivery):
    def issued(*scopes):
        body = {"name": f"log {scopes}", "scopes": list(scopes)}
        return hub.connect(hub.made(hub.http.post("/api/v1/tokens", body))["secret"])

    events = (LIST, f"{LIST}?log=events", f"{LIST}/{listed[0]['name']}")
    others = (f"{LIST}?log=broker", f"{LIST}/{delivery['name']}?log=broker")
    reader, deliverer = issued("export:read"), issued("export:delivery")
    for allowed, refused, token in ((events, others, reader), (others, events, deliverer)):
        assert [token.get(path).status for path in allowed] == [200] * len(allowed)
        assert [token.get(path).status for path in refused] == [403] * len(refused)
    assert reader.get(others[0]).body["hint"].endswith("--scope export:delivery")
    assert deliverer.get("/api/v1/snapshots").status == 403
    assert deliverer.get("/api/v1/reports/activity").status == 403


@pytest.mark.parametrize(
    "name",
    [
        "../db.sqlite3",
        "..%2f..%2fdb.sqlite3",
        segment.stem(1, 20),
        f"{segment.stem(1, 20)}.manifest.json",
        f"{segment.stem(1, 999)}.jsonl",
        f"{segment.stem(1, 20)}.parquet",
        ".lock",
    ],
)
def test_only_segments_are_served(hub, name):
    assert hub.http.get(f"{LIST}/{quote(name, safe='/%')}").status in (400, 404)


def test_a_torn_segment_and_a_torn_manifest_are_reported_and_not_sent(tmp_path):
    with serve(tmp_path / "house", settings=SETTINGS, constants=CONSTANTS) as hub:
        _, topic_id = hub.channel_with_topic("general")
        hub.send_many(topic_id, ["x"] * 38)
        assert agentlip("export", "segments", cwd=hub.workspace).code == 0
        first, second = hub.http.get(LIST).body["segments"]
        file = next((hub.datadir.dir / "export").rglob(first["name"]))
        os.truncate(file, 100)
        answer = hub.http.get(f"{LIST}/{first['name']}")
        assert (answer.status, answer.body["code"]) == (503, "SEGMENTS_DAMAGED")
        assert hub.http.get(f"{LIST}/{second['name']}").status == 200
        output = agentlip("doctor", "--run", "export.segments", cwd=hub.workspace)
        assert "its manifest requires" in output.out, output
        file.with_name(file.stem + segment.MANIFEST).write_text("{")
        answer = hub.http.get(LIST)
        assert (answer.status, answer.body["details"]) == (503, {"code": "SEGMENT_TORN"})


def test_running_appliance_exports_segments_and_reports_progress(tmp_path):
    settings = "[export]\nexport = true\nsegment_open_seconds = 0.05\n"
    with serve(tmp_path / "house", settings=settings) as hub:
        out = Path(hub.datadir.dir / "export")
        _, topic_id = hub.channel_with_topic("general")
        for number in range(1, 10):  # more segments than compaction leaves alone
            hub.send_many(topic_id, ["x"] * 10)
            want = number * 10 + 2
            until(lambda want=want: seen(hub, 'log_last_row{log="events"}') == want, what="a round")
        assert ids_in(out) == list(range(1, 93))
        until(lambda: any(each.replaces for each in manifests(out)), what="compaction")
        assert ids_in(out) == list(range(1, 93))
        assert seen(hub, "waiting_events") == 0
        assert seen(hub, "rows_total") == 92
        succeed("doctor", "--run", "export.lag,export.segments", cwd=hub.workspace)
    assert "round failed" not in hub.log_text


def seen(hub, name):
    text = hub.http.get("/metrics").raw.decode()
    return next(
        (
            float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.startswith(f"agentlip_export_{name} ")
        ),
        None,
    )
