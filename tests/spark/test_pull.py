"""Segments and snapshots from an appliance: resumed, verified, the manifest last; a
refusal is one sentence."""

import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from spark import appliance_client, pull, secret, segments
from spark.errors import SegmentMissing, SegmentTorn, SourceUnreachable, Usage, WrongHash
from tests.spark.log import Log
from tests.support.http_server import http_server

TOKEN = "secret-of-this-test"


class Hub(BaseHTTPRequestHandler):
    """Lists what a directory holds, two a page, and breaks off each first download."""

    def do_GET(self):
        self.server.seen.append((self.path, self.headers.get("Range")))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.send_error(401)
        elif self.path.startswith("/api/v1/segments?"):
            self._list(int(self.path.partition("after=")[2].split("&")[0] or 0))
        elif self.path.startswith("/api/v1/snapshots?"):
            self._send(200, json.dumps(self._snapshots()).encode())
        else:
            self._file(self.path.rsplit("/", 1)[1].partition("?")[0])

    def _list(self, after):
        mine = [row for row in self.server.listing if row["last_event_id"] > after]
        page = mine[:2]
        last = page[-1]["last_event_id"] if page else after
        self._send(200, json.dumps(
            {"segments": page, "next": last, "has_more": len(mine) > 2,
             "begins_after": self.server.begins_after}
        ).encode())  # fmt: skip

    def _snapshots(self):
        if not self.server.pages:
            return {"snapshots": self.server.snapshots}
        start = int(self.path.partition("&after=")[2] or 0)
        more = start + 1 < len(self.server.snapshots)
        return {"snapshots": self.server.snapshots[start : start + 1],
                "has_more": more, "next": str(start + 1) if more else None}  # fmt: skip

    def _file(self, name):
        raw = self.server.files[name]
        range_header = self.headers.get("Range")
        if range_header:
            self._send(206, raw[int(range_header[len("bytes=") : -1]) :])
        elif name in self.server.broken:
            self._send(200, raw, limit=len(raw) // 2)
        else:
            self._send(200, raw)

    def _send(self, status, raw, limit=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw[:limit])

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(tmp_path):
    log = Log()
    topic = log.topic(log.channel())
    for _ in range(5):
        log.wait(days=1).say(topic)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.seen, server.listing, server.files, server.snapshots = [], [], {}, []
    server.pages, server.begins_after = False, 0
    for manifest in log.export(tmp_path / "theirs"):
        fields = json.loads(manifest.read_text())
        server.listing.append({**fields, "name": fields["file"]})
        server.files[fields["file"]] = (manifest.parent / fields["file"]).read_bytes()
    taken = log.snapshot(tmp_path / "theirs")
    fields = json.loads((taken / "manifest.json").read_text())
    newer = {**fields, "name": "epoch-1-later", "as_of_event_id": log.last + 1}
    server.snapshots = [newer, {**fields, "name": taken.name}]
    server.files |= {file.name: file.read_bytes() for file in taken.glob("*.parquet")}
    server.broken = set(server.files)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    server.url = f"http://127.0.0.1:{server.server_port}"
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_segments_come_whole_though_each_download_breaks_off(hub, tmp_path):
    assert pull.pull(hub.url, TOKEN, tmp_path / "ours") == 6
    theirs = segments.manifests(tmp_path / "theirs")
    ours = segments.manifests(tmp_path / "ours")
    assert [file._replace(path=None) for file in ours] == [
        file._replace(path=None) for file in theirs
    ]
    for file in ours:
        segments.verify(file)
    assert any(range_header for _, range_header in hub.seen)
    hub.seen.clear()
    assert pull.pull(hub.url, TOKEN, tmp_path / "ours") == 0
    assert all(path.startswith("/api/v1/segments?") for path, _ in hub.seen)


def test_wrong_bytes_are_thrown_away(hub, tmp_path):
    hub.listing[0]["sha256"] = "0" * 64
    with pytest.raises(WrongHash):
        pull.pull(hub.url, TOKEN, tmp_path / "ours")
    assert not list(tmp_path.glob("ours/events/*/*"))


@pytest.mark.parametrize("name", ["../../evil", "a/b", ""])
def test_listing_can_not_write_elsewhere(hub, tmp_path, name):
    hub.listing[0]["name"] = name
    with pytest.raises(SegmentTorn):
        pull.pull(hub.url, TOKEN, tmp_path / "ours")


def test_refusals_name_the_address_and_never_the_token(hub, tmp_path):
    with pytest.raises(SourceUnreachable, match="rejected the token") as refused:
        pull.pull(hub.url, "wrong-token", tmp_path / "ours")
    assert "wrong-token" not in str(refused.value)
    empty = tmp_path / "token"
    empty.write_text("\n")
    with pytest.raises(Usage) as refused:
        secret.read(empty, secret.TOKEN_HINT)
    assert "agentlip token create" in refused.value.hint


def test_newest_snapshot_that_the_segments_reach_comes_whole_beside_them(hub, tmp_path):
    pull.pull(hub.url, TOKEN, tmp_path / "ours")
    name = pull.pull_snapshot(hub.url, TOKEN, tmp_path / "ours")
    (theirs,) = (tmp_path / "theirs/snapshot").iterdir()
    (ours,) = (tmp_path / "ours/snapshot").iterdir()
    assert name == ours.name == theirs.name
    assert {file.name: file.read_bytes() for file in ours.glob("*.parquet")} == {
        file.name: file.read_bytes() for file in theirs.glob("*.parquet")
    }
    assert json.loads((ours / "manifest.json").read_text()) == json.loads(
        (theirs / "manifest.json").read_text()
    )
    hub.seen.clear()
    assert pull.pull_snapshot(hub.url, TOKEN, tmp_path / "ours") == name
    assert [path for path, _ in hub.seen] == ["/api/v1/snapshots?limit=100"]


def test_snapshots_are_looked_through_page_by_page(hub, tmp_path):
    hub.pages = True
    pull.pull(hub.url, TOKEN, tmp_path / "ours")
    (theirs,) = (tmp_path / "theirs/snapshot").iterdir()
    assert pull.pull_snapshot(hub.url, TOKEN, tmp_path / "ours") == theirs.name
    listed = [path for path, _ in hub.seen if path.startswith("/api/v1/snapshots?")]
    assert listed == ["/api/v1/snapshots?limit=100", "/api/v1/snapshots?limit=100&after=1"]


def test_older_snapshots_and_forgotten_parts_go(hub, tmp_path):
    folder = tmp_path / "ours/snapshot"
    for age, name in enumerate((".old.part", "b", "a"), 2):
        (folder / name).mkdir(parents=True)
        at = time.time() - age * 86_400
        os.utime(folder / name, (at, at))
    (folder / ".new.part").mkdir()
    name = pull.pull_snapshot(hub.url, TOKEN, tmp_path / "ours")
    assert {each.name for each in folder.iterdir()} == {name, "b", ".new.part"}
    assert name == hub.snapshots[1]["name"], "the oldest, as there are no segments"


def test_torn_table_leaves_no_snapshot_and_a_name_can_not_write_elsewhere(hub, tmp_path):
    pull.pull(hub.url, TOKEN, tmp_path / "ours")
    hub.files["topics.parquet"] = hub.files["topics.parquet"][:-1] + b"x"
    with pytest.raises(WrongHash):
        pull.pull_snapshot(hub.url, TOKEN, tmp_path / "ours")
    assert not list(tmp_path.glob("ours/snapshot/[!.]*"))
    for name in ("../../evil", "", ".hidden"):
        hub.snapshots[1]["name"] = name
        with pytest.raises(SegmentTorn):
            pull.pull_snapshot(hub.url, TOKEN, tmp_path / "ours")
    hub.snapshots.clear()
    with pytest.raises(SegmentMissing, match="has no snapshot"):
        pull.pull_snapshot(hub.url, TOKEN, tmp_path / "ours")


def test_token_does_not_follow_a_redirection(hub, tmp_path, monkeypatch):
    def redirect(self):
        self.send_response(302)
        self.send_header("Location", f"http://127.0.0.1:{elsewhere.port}{self.path}")
        self.send_header("Content-Length", "0")
        self.end_headers()

    with http_server(lambda _request: (404, {}, b"")) as elsewhere:
        monkeypatch.setattr(Hub, "do_GET", redirect)
        with pytest.raises(SourceUnreachable):
            pull.pull(hub.url, TOKEN, tmp_path / "ours")
    assert ["authorization" in request.headers for request in elsewhere.requests] == [False]


def test_file_that_does_not_end_is_not_taken_beyond_its_size(hub, tmp_path):
    name = hub.listing[0]["file"]
    hub.broken.clear()
    hub.files[name] += bytes(3_000_000)
    taken = []
    with pytest.MonkeyPatch.context() as patched:
        plain = pull.segments.verify_file

        def verify(path, size, sha256):
            taken.append(path.stat().st_size - size)
            plain(path, size, sha256)

        patched.setattr(pull.segments, "verify_file", verify)
        with pytest.raises(SegmentTorn):
            pull.pull(hub.url, TOKEN, tmp_path / "ours")
    assert taken == [1]


class Reset:
    """A body whose connection breaks."""

    status = 200

    def __init__(self, error):
        self.error = error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def read(self, *_):
        raise self.error


@pytest.mark.parametrize("error", [ConnectionResetError("reset"), TimeoutError("late")])
def test_connection_that_breaks_is_the_networks_fault_not_the_disks(tmp_path, monkeypatch, error):
    attempts = []
    monkeypatch.setattr(
        appliance_client, "urlopen", lambda *_, **__: attempts.append(1) or Reset(error)
    )
    with pytest.raises(SourceUnreachable, match="broke off"):
        pull.pull("http://hub.example", TOKEN, tmp_path)
    attempts.clear()
    with pytest.raises(SourceUnreachable, match="broke off"):
        appliance_client.ApplianceClient("http://hub.example", TOKEN).bring(
            "/x", tmp_path / "part", 9, "0" * 64
        )
    assert len(attempts) == appliance_client.ATTEMPTS_MAX


@pytest.mark.parametrize("url", ["http://[::1", "http://", "http://hub.example:port"])
def test_invalid_address_is_reported(tmp_path, url):
    with pytest.raises(SourceUnreachable):
        pull.pull(url, None, tmp_path)


@pytest.mark.parametrize(
    "listed", [{"segments": 5, "next": 1}, {"segments": [], "has_more": True}, []]
)
def test_listing_of_another_shape_is_said(hub, tmp_path, monkeypatch, listed):
    raw = json.dumps(listed).encode()
    monkeypatch.setattr(Hub, "do_GET", lambda self: self._send(200, raw))
    with pytest.raises(SourceUnreachable, match="does not list segments"):
        pull.pull(hub.url, TOKEN, tmp_path)


def test_other_logs_come_beside_the_events_and_retention_is_noted(hub, tmp_path):
    for row in hub.listing:
        row["kind"] = "broker"
    hub.begins_after = 3
    assert pull.pull(hub.url, TOKEN, tmp_path, ("broker",)) == 6
    assert len(segments.manifests(tmp_path, "broker")) == 6
    assert segments.begins_after(tmp_path, "broker") == 3
    assert any("log=broker" in path for path, _ in hub.seen if path.startswith("/api/v1/segments/"))
    hub.begins_after = 4  # what was downloaded before stays
    assert pull.pull(hub.url, TOKEN, tmp_path, ("broker",)) == 0
    assert segments.begins_after(tmp_path, "broker") == 3


def test_segments_of_another_log_than_requested_are_refused(hub, tmp_path):
    with pytest.raises(SegmentTorn):
        pull.pull(hub.url, TOKEN, tmp_path, ("inbox",))


def test_scope_that_the_token_lacks_is_named(hub, tmp_path, monkeypatch):
    refusal = json.dumps({"details": {"scope": "export:delivery"}}).encode()
    monkeypatch.setattr(Hub, "do_GET", lambda self: self._send(403, refusal))
    with pytest.raises(SourceUnreachable, match="lacks the scope export:delivery"):
        pull.pull(hub.url, TOKEN, tmp_path, ("broker",))
    monkeypatch.setattr(Hub, "do_GET", lambda self: self._send(403, b"[]"))
    with pytest.raises(SourceUnreachable, match="rejected the token"):
        pull.pull(hub.url, TOKEN, tmp_path, ("broker",))
