"""`agentlip backup targets|upload|fetch` as processes, with a real S3 server that is killed too."""

import os
import random
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyrage
import pytest

from appliance.workspace.datadir import DataDir
from tests.support.backupsets import SetsFixture
from tests.support.commands import agentlip, command, environment
from tests.support.s3server import ACCESS, SECRET, S3Server, s3_server
from tests.support.until import until
from tests.support.workspaces import Filled

pytestmark = pytest.mark.slow
KEYS = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET}
FILE_BYTES = 4_000
LARGE = {f"segment-{n:03}.zst.age": os.urandom(FILE_BYTES) for n in range(100)}


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    Filled(path)
    return path


def configure(workspace: Path, s3: S3Server, *more: str, backup: str = "") -> None:
    """One target below a prefix of its own; `more` are further tables."""
    text = f"""
[backup]
upload_attempts_max = 2
free_bytes_min = 0
{backup}

[[backup.targets]]
name = "offsite"
url = "s3://backups/{workspace.parent.name}"
endpoint = "{s3.endpoint}"
"""
    (workspace / "agentlip.toml").write_text("\n".join([text, *more]))


def large_set(workspace: Path) -> str:
    return SetsFixture.of(DataDir(workspace)).add(LARGE)


def files_at(s3: S3Server, workspace: Path) -> int:
    return len(s3.names(workspace.parent.name))


def check(workspace: Path) -> Any:
    seen = agentlip("backup", "targets", "--check", "--json", cwd=workspace, **KEYS)
    return seen.json[0]


def uploader(workspace: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        command("agentlip", "backup", "upload", "--json"),
        cwd=workspace,
        env=environment(**KEYS),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_backup_of_a_workspace_comes_back_on_a_machine_without_one(
    s3: S3Server, workspace: Path, tmp_path: Path
) -> None:
    identity = pyrage.x25519.Identity.generate()
    configure(workspace, s3, backup=f'recipients = ["{identity.to_public()}"]')
    name = agentlip("backup", "create", "--json", cwd=workspace).json["name"]
    uploaded = agentlip("backup", "upload", "--json", cwd=workspace, **KEYS)
    assert [row["result"] for row in uploaded.json] == ["copied"], uploaded
    seen = check(workspace)
    assert (seen["state"], seen["sets"], seen["missing"]) == ("ok", [name], [])

    empty = tmp_path / "new machine"
    empty.mkdir()
    fetched = agentlip(
        "backup", "fetch", "--latest", "--url", f"s3://backups/{tmp_path.name}",
        "--endpoint", s3.endpoint, "--into", empty / "sets", "--json", cwd=empty, **KEYS,
    )  # fmt: skip
    assert fetched.json["name"] == name, fetched
    there, here = Path(fetched.json["path"]), workspace / ".agentlip" / "backups" / name
    files = {path.name for path in there.iterdir()}
    kept = {"upload-offsite.json", "verification.json"}  # only here
    assert files | kept == {path.name for path in here.iterdir()}
    for file in files:
        assert (there / file).read_bytes() == (here / file).read_bytes()


def test_plain_backup_is_refused_and_targets_are_named(s3: S3Server, workspace: Path) -> None:
    configure(workspace, s3)
    agentlip("backup", "create", cwd=workspace)
    refused = agentlip("backup", "upload", cwd=workspace, **KEYS)
    assert refused.code == 23, refused
    assert "allow_plain" in refused.err
    unknown = agentlip("backup", "upload", "--target", "nas", cwd=workspace, **KEYS)
    assert (unknown.code, "no target is named 'nas'" in unknown.err) == (18, True)


def test_one_target_that_fails_gives_a_partial_result(
    s3: S3Server, workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "disk").mkdir()
    disk = f'[[backup.targets]]\nname = "disk"\nurl = "file://{tmp_path}/disk"\n'
    configure(workspace, s3, disk)
    name = large_set(workspace)
    partial = agentlip(
        "backup", "upload", "--json", cwd=workspace, **{**KEYS, "AWS_SECRET_ACCESS_KEY": "x"}
    )
    assert partial.code == 24, partial
    assert [(row["target"], row["result"]) for row in partial.json] == [
        ("offsite", "failed"),
        ("disk", "copied"),
    ]
    assert (tmp_path / "disk" / name / "manifest.json").exists()


def test_uploader_killed_at_random_moments_continues(s3: S3Server, workspace: Path) -> None:
    configure(workspace, s3)
    name = large_set(workspace)
    chance, kills = random.Random(14), 0
    while True:
        enough = files_at(s3, workspace) + chance.randint(1, 30)
        process = uploader(workspace)
        until(at_least(s3, workspace, enough, process))
        if process.poll() is not None:
            break
        process.kill()
        process.communicate()
        kills += 1
        # The server may still accept what was sent before the kill; the manifest is sent last.
        seen = check(workspace)
        if seen["sets"]:
            assert (seen["sets"], seen["problems"]) == ([name], [])
            break
        assert kills < 50
    process.communicate()
    assert kills >= 2
    final = agentlip("backup", "upload", "--json", cwd=workspace, **KEYS)
    assert final.json[0]["result"] in ("copied", "present"), final
    seen = check(workspace)
    assert (seen["state"], seen["sets"], seen["problems"]) == ("ok", [name], [])


def test_server_killed_during_an_upload_is_continued_with(s3: S3Server, workspace: Path) -> None:
    configure(workspace, s3)
    name = large_set(workspace)
    process = uploader(workspace)
    until(at_least(s3, workspace, 30, process))
    s3.kill()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 18, (out, err)
    down = agentlip("backup", "targets", "--json", cwd=workspace, **KEYS)
    assert (down.code, down.json[0]["state"]) == (0, "unreachable")
    s3.start()
    again = agentlip("backup", "upload", "--json", cwd=workspace, **KEYS)
    assert again.json[0]["result"] == "copied", again
    assert again.json[0]["bytes"] <= (100 - 25) * FILE_BYTES
    assert check(workspace)["sets"] == [name]


def test_flipped_byte_at_the_target_is_found_and_repaired(s3: S3Server, workspace: Path) -> None:
    configure(workspace, s3)
    name = large_set(workspace)
    agentlip("backup", "upload", cwd=workspace, **KEYS)
    s3.flip(f"{workspace.parent.name}/{name}/segment-042.zst.age", 77)
    seen = agentlip("backup", "targets", "--check", cwd=workspace, **KEYS)
    assert seen.code == 18, seen
    assert "segment-042" in seen.err
    into = workspace / "elsewhere"
    refused = agentlip("backup", "fetch", name, "--into", into, cwd=workspace, **KEYS)
    assert (refused.code, list(into.glob("2*"))) == (11, [])
    again = agentlip("backup", "upload", "--json", cwd=workspace, **KEYS)
    assert again.json[0]["bytes"] == FILE_BYTES, again
    assert check(workspace)["state"] == "ok"


def test_no_output_contains_a_key(s3: S3Server, workspace: Path) -> None:
    configure(workspace, s3)
    large_set(workspace)
    wrong = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET + "x"}
    for keys, codes in ((wrong, (18, 18, 22)), (KEYS, (0, 0, 0))):
        commands = (["targets", "--check"], ["upload"], ["fetch", "--latest"])
        for arguments, code in zip(commands, codes, strict=True):
            for flag in ([], ["--json"]):
                seen = agentlip("backup", *arguments, *flag, cwd=workspace, **keys)
                assert seen.code == code, seen
                assert SECRET not in seen.out + seen.err
                assert ACCESS not in seen.out + seen.err
    for path in workspace.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes()


def test_listing_without_end_is_ended(workspace: Path, tmp_path: Path) -> None:
    """Empty pages that always announce another page keep the library from returning."""
    page = (
        b"<ListBucketResult><IsTruncated>true</IsTruncated>"
        b"<NextContinuationToken>again</NextContinuationToken></ListBucketResult>"
    )

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.release()
            self.send_response(200)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: Any) -> None:
            pass

    asked = threading.Semaphore(0)
    settings = """
[backup]
seconds_max = 1.0
request_seconds_max = 1.0
[[backup.targets]]
name = "endless"
url = "s3://bucket/x"
endpoint = "http://127.0.0.1:{port}"
"""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        (workspace / "agentlip.toml").write_text(settings.format(port=server.server_port))
        large_set(workspace)
        ended = agentlip("backup", "upload", cwd=workspace, **KEYS)
        assert ended.code == -signal.SIGALRM, ended
        process = uploader(workspace)
        for _ in range(3):
            assert asked.acquire(timeout=20)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
        assert process.returncode in (-signal.SIGINT, -signal.SIGALRM)
        server.shutdown()


def at_least(
    s3: S3Server, workspace: Path, count: int, process: "subprocess.Popen[bytes]"
) -> Callable[[], bool]:
    """Whether so many files are at the target, or the process has ended."""
    return lambda: process.poll() is not None or files_at(s3, workspace) >= count
