"""Files of a served appliance: headers, ranges, scopes, kills, full disks, backups, commands."""

import asyncio
import hashlib
import json
import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO

import pytest

from appliance.sdk import AsyncClient, Client
from appliance.sdk.errors import Refused
from appliance.sdk.http import ConnectionBroken, Retry
from tests.support.commands import agentlip, succeed
from tests.support.servedhub import ServedHub, serve
from tests.support.smalldisk import MIB, small_disk
from tests.support.until import until

pytestmark = pytest.mark.slow
PATH = "/api/v1/blobs"
CONTENT = b"0123456789"
PAGE = b"<script>alert(document.cookie)</script>"


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("hub"), "--no-limits") as hub:
        hub.channel_with_topic("general")
        yield hub


def ref_of(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


def put(hub, content, client=None, media_type="text/plain", ref=None):
    headers = {"Content-Type": media_type}
    path = f"{PATH}/{ref or ref_of(content)}"
    return (client or hub.http)("PUT", path, raw=content, headers=headers)


def get(hub, content, client=None, **headers):
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return (client or hub.http).get(f"{PATH}/{ref_of(content)}", headers=sent)


def files(hub):
    return sorted(os.listdir(hub.workspace / ".worker-state/blobs"))


def client_with(hub, name, *scopes):
    made = hub.http.post("/api/v1/tokens", {"name": name, "scopes": list(scopes)})
    return hub.connect(ServedHub.made(made)["secret"])


def test_put_is_created_once_and_refused_with_another_hash(hub):
    first = put(hub, b"once")
    assert (first.status, first.body["created"]) == (201, True)
    assert (put(hub, b"once").status, put(hub, b"once").body["created"]) == (200, False)
    by_post = hub.http.post(PATH, raw=b"once", headers={"Content-Type": "text/plain"})
    assert (by_post.status, by_post.body["blob"]["ref"]) == (200, ref_of(b"once"))
    wrong = put(hub, b"other", ref=ref_of(b"once"))
    assert (wrong.status, wrong.body["code"]) == (400, "BLOB_MISMATCH")
    assert wrong.body["details"]["ref"] == ref_of(b"other")
    assert get(hub, b"other").status == 404


def test_page_is_never_shown_by_a_browser(hub):
    put(hub, PAGE, media_type="text/html")
    got = get(hub, PAGE)
    assert got.raw == PAGE
    assert got.headers["content-disposition"] == "attachment"
    assert got.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in got.headers["content-security-policy"]
    assert got.headers["content-type"] == "text/html"


@pytest.mark.parametrize(
    ("header", "status", "sent", "span"),
    [
        (None, 200, CONTENT, None),
        ("bytes=0-0", 206, b"0", "bytes 0-0/10"),
        ("bytes=3-5", 206, b"345", "bytes 3-5/10"),
        ("bytes=8-", 206, b"89", "bytes 8-9/10"),
        ("bytes=8-99", 206, b"89", "bytes 8-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=-99", 206, CONTENT, "bytes 0-9/10"),
        ("bytes=10-", 416, None, "bytes */10"),
        ("bytes=-0", 416, None, "bytes */10"),
        ("bytes=5-3", 200, CONTENT, None),
        ("bytes=0-1,3-4", 200, CONTENT, None),
        ("lines=0-1", 200, CONTENT, None),
    ],
)
def test_range_is_sent_as_requested(hub, header, status, sent, span):
    put(hub, CONTENT)
    got = get(hub, CONTENT, **({} if header is None else {"Range": header}))
    assert (got.status, got.headers.get("content-range")) == (status, span)
    if sent is None:
        assert got.body["code"] == "RANGE_NOT_SATISFIABLE"
    else:
        assert got.raw == sent


def test_head_and_conditions_send_no_content(hub):
    put(hub, CONTENT)
    etag = get(hub, CONTENT).headers["etag"]
    head = hub.http("HEAD", f"{PATH}/{ref_of(CONTENT)}")
    assert (head.status, head.headers["content-length"], head.raw) == (200, "10", b"")
    assert get(hub, CONTENT, If_None_Match=etag).status == 304
    assert get(hub, CONTENT, If_None_Match='"other"').raw == CONTENT
    assert get(hub, CONTENT, Range="bytes=0-1", If_Range='"other"').raw == CONTENT


def test_scopes_and_channels_limit_readers_and_writers(hub):
    channel, topic = hub.channel_with_topic("private")
    other = hub.channel("elsewhere")
    reader = client_with(hub, "reads", "hub:read")
    assert put(hub, b"text", reader).status == 403
    inside = client_with(hub, "inside", f"hub:read@{channel}", f"hub:post@{channel}")
    outside = client_with(hub, "outside", f"hub:read@{other}", f"hub:post@{other}")
    put(hub, b"private text")
    assert get(hub, b"private text", reader).status == 200
    assert get(hub, b"private text", inside).status == 404
    hub.send(topic, f"see {ref_of(b'private text')}")
    assert get(hub, b"private text", inside).raw == b"private text"
    assert get(hub, b"private text", outside).status == 404
    assert put(hub, b"private text", outside).status == 200
    assert get(hub, b"private text", outside).status == 200
    assert inside("DELETE", f"{PATH}/{ref_of(b'private text')}").status == 403


def test_same_content_put_by_many_at_once_is_one_file(hub):
    content = os.urandom(300_000)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: put(hub, content, hub.connect()), range(16)))
    assert sorted(answer.status for answer in answers) == [200] * 15 + [201]
    assert get(hub, content).raw == content
    assert not [name for name in files(hub) if name.startswith(".")]


def test_put_and_erase_at_once_leave_no_row_without_its_file(hub):
    content = os.urandom(100_000)

    def act(number):
        client = hub.connect()
        if number % 3:
            return put(hub, content, client).status
        return client("DELETE", f"{PATH}/{ref_of(content)}").status

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(act, range(60))) <= {200, 201, 404}
    rows = hub.rows("SELECT 1 FROM x_blobs WHERE hash = ?", ref_of(content)[7:])
    assert (get(hub, content).status == 200) == bool(rows)
    assert put(hub, content).status in (200, 201)
    assert get(hub, content).raw == content


def test_kill_during_a_put_leaves_no_half_file(tmp_path):
    hub = ServedHub(tmp_path / "hub")
    with hub.running():
        with socket.create_connection(("127.0.0.1", hub.port)) as sock:
            sock.sendall(
                f"PUT {PATH}/{ref_of(CONTENT)} HTTP/1.1\r\nHost: localhost\r\n"
                f"Authorization: Bearer {hub.token}\r\nContent-Length: 500000\r\n\r\n".encode()
                + b"x" * 200_000
            )
            folder = hub.workspace / ".worker-state/blobs"
            until(lambda: any(path.stat().st_size for path in folder.glob(".put-*")), 20, "bytes")
            hub._end(signal.SIGKILL)
        assert len(files(hub)) == 1, "the kill came too late"
        hub.start()
        assert files(hub) == []
        assert get(hub, CONTENT).status == 404
        assert put(hub, CONTENT).status == 201
        hub._end(signal.SIGKILL)
        hub.start()
        assert get(hub, CONTENT).raw == CONTENT


def test_file_that_does_not_fit_on_the_disk_is_refused(tmp_path):
    with small_disk(tmp_path, "tmpfs", 120) as disk:
        hub = ServedHub(disk.root / "hub")
        with hub.running():
            large = os.urandom(30 * MIB)
            disk.leave(25 * MIB)
            with Client(hub.workspace, retry=Retry(attempts_max=1)) as client:
                with pytest.raises(Refused) as refused:
                    client.put_file(BytesIO(large))
                assert refused.value.code == "STORAGE_FULL"
            disk.clear()
            assert put(hub, large, hub.connect()).status == 201
            assert files(hub) == [ref_of(large).replace(":", "-")]


def test_garbage_in_a_file_is_found_and_not_delivered(tmp_path):
    hub = ServedHub(tmp_path / "hub")
    with hub.running():
        for content in (b"damaged" * 30_000, b"cut", b"missing"):
            put(hub, content)
        damaged, cut, missing = (
            hub.workspace / ".worker-state/blobs" / ref_of(content).replace(":", "-")
            for content in (b"damaged" * 30_000, b"cut", b"missing")
        )
        damaged.write_bytes(b"DAMAGED" * 30_000)
        cut.write_bytes(b"c")
        missing.unlink()
        with pytest.raises(ConnectionBroken), Client(hub.workspace) as client:
            client.get_file(ref_of(b"damaged" * 30_000))
        assert get(hub, b"cut", hub.connect()).body["code"] == "BLOB_DAMAGED"
        cheap = doctor(hub, "blobs.files")
        assert cheap == {("missing", ref_of(b"missing")), ("damaged", ref_of(b"cut"))}
        assert doctor(hub, "blobs.content") == cheap | {("damaged", ref_of(b"damaged" * 30_000))}
        put(hub, b"missing", hub.connect())
        put(hub, b"cut", hub.connect())
        put(hub, b"damaged" * 30_000, hub.connect())
        assert doctor(hub, "blobs.content") == set()


def doctor(hub, check):
    done = agentlip("--json", "doctor", "--all", "--run", check, cwd=hub.workspace)
    (row,) = [row for row in json.loads(done.out)["checks"] if row["check"] == check]
    return {(finding["problem"], finding["subject"]) for finding in row["findings"]}


def test_backup_and_restore_bring_files_back(tmp_path):
    hub = ServedHub(tmp_path / "hub")
    with hub.running():
        put(hub, b"kept")
        made = json.loads(succeed("--json", "backup", "create", cwd=hub.workspace).out)
        put(hub, b"later")
        hub.http("DELETE", f"{PATH}/{ref_of(b'kept')}")
        assert get(hub, b"kept").status == 404
        checked = succeed("--json", "backup", "verify", made["name"], cwd=hub.workspace)
        assert [row["result"] for row in json.loads(checked.out)] == ["good"]
    succeed("backup", "restore", made["name"], "--yes", cwd=hub.workspace)
    with hub.running():
        assert get(hub, b"kept").raw == b"kept"
        assert get(hub, b"later").status == 404


def test_commands_put_get_and_erase_a_file(hub, tmp_path):
    (tmp_path / "build.log").write_bytes(CONTENT * 50_000)
    where = {"cwd": hub.workspace}
    ref = succeed("put", tmp_path / "build.log", **where).out.strip()
    assert ref == ref_of(CONTENT * 50_000)
    again = json.loads(succeed("--json", "put", tmp_path / "build.log", **where).out)
    assert (again["created"], again["blob"]["media_type"]) == (False, "text/x-log") or (
        again["created"], again["blob"]["size"]) == (False, 500_000)  # fmt: skip
    assert succeed("get", ref, **where).out == (CONTENT * 50_000).decode()
    assert succeed("get", ref, "--range", "-3", **where).out == "789"
    succeed("get", ref, "--output", tmp_path / "copy", **where)
    assert (tmp_path / "copy").read_bytes() == CONTENT * 50_000
    for span in ("5-2", "abc", "0-1,4-5"):
        refused = agentlip("get", ref, "--range", span, **where)
        assert (refused.code, refused.out) == (1, "")
    refused = agentlip("put", "-", "--media-type", "text/csv\nx: y", **where)
    assert refused.err.startswith("Error: Content-Type must be printable ASCII")
    from_input = succeed("put", "-", "--media-type", "text/csv", stdin=b"a,b", **where)
    assert from_input.out.strip() == ref_of(b"a,b")
    assert get(hub, b"a,b").headers["content-type"] == "text/csv"
    refused = agentlip("erase", ref, **where)
    assert refused.code == 1
    assert f"agentlip erase {ref} --yes" in refused.err
    succeed("erase", ref, "--yes", **where)
    missing = agentlip("get", ref, "--output", tmp_path / "none", **where)
    assert missing.code == 1
    assert not (tmp_path / "none").exists()
    absent = agentlip("put", tmp_path / "absent", **where)
    assert (absent.code, "No such file" in absent.err) == (1, True)


def test_clients_put_and_get_a_file(hub, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(os.urandom(1_000_000))
    with Client(hub.workspace) as client:
        put_ = client.put_file(path, "image/png")
        assert (put_.created, put_.blob.size) == (True, 1_000_000)
        client.save_file(put_.blob.ref, tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == path.read_bytes()
        with path.open("rb") as file:
            assert not client.put_file(file).created
        assert client.erase_file(put_.blob.ref).erased
        with pytest.raises(Refused, match="no such file"):
            client.get_file(put_.blob.ref)

    async def run():
        async with AsyncClient(hub.workspace) as client:
            again = await client.put_file(path)
            return await client.get_file(again.blob.ref)

    assert asyncio.run(run()) == path.read_bytes()


def test_upload_that_is_refused_early_reports_its_reason(tmp_path):
    with (
        serve(tmp_path / "hub", settings="[blobs]\nfile_bytes_max = 1000\n") as hub,
        Client(hub.workspace) as client,
    ):
        (tmp_path / "large").write_bytes(b"x" * 20_000_000)
        with pytest.raises(Refused) as refused:
            client.put_file(tmp_path / "large")
        assert refused.value.code == "BLOB_TOO_LARGE"
        assert put(hub, b"x" * 1001, hub.connect()).body["details"] == {"bytes_max": 1000}


def test_bus_payload_is_a_file_of_the_same_folder(hub):
    where = {"cwd": hub.workspace}
    payload = json.dumps({"text": "x" * 5000}, separators=(",", ":"))
    succeed("bus", "send", "note", payload, "--agent", "ann", **where)
    (name,) = [name for name in files(hub) if b'"text"' in read(hub, name)]
    ref = name.replace("-", ":")
    content = succeed("get", ref, **where).out
    assert json.loads(content) == json.loads(payload)
    put(hub, b"of the hub")
    old = hub.workspace / ".worker-state/blobs" / ref_of(b"of the hub").replace(":", "-")
    os.utime(old, (1, 1))
    succeed("bus", "archive", "--blobs", **where)
    assert get(hub, b"of the hub").raw == b"of the hub", "no bus message names it, but the hub does"


def read(hub, name):
    return (hub.workspace / ".worker-state/blobs" / name).read_bytes()
