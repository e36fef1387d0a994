"""S3-compatible storage: keys, addresses, and servers that fail or lie."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from appliance.backup import target_s3
from appliance.backup.errors import BackupDamaged, TargetRefused, TargetUnreachable
from appliance.backup.settings import TargetSettings
from appliance.backup.target import BackupTarget
from appliance.kernel.errors import ApplianceError, Invalid
from tests.support.backup_targets import TargetBackups
from tests.support.http_server import HttpRequest, Reply, http_server
from tests.support.s3server import ACCESS, SECRET, S3Server

KEYS = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET}


def opened(
    path: Path, target: TargetSettings, environment: dict[str, str] = KEYS, **settings: Any
) -> BackupTarget:
    machine = TargetBackups(path / "machine", target, **settings)
    with patch.dict(os.environ, environment):
        return machine.open(attempts_max=1)


@contextmanager
def server(answer: bytes) -> Iterator[str]:
    """Answers every request with these bytes; b"" answers nothing."""
    done = threading.Event()

    def reply(_request: HttpRequest) -> bytes | None:
        if not answer:
            done.wait(20)
        return answer

    with http_server(reply) as running:
        try:
            yield f"http://127.0.0.1:{running.port}"
        finally:
            done.set()


def http_answer(status: str, body: bytes = b"", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {size}\r\n\r\n"
    return head.encode() + body


def test_keys_come_from_files_or_the_environment(s3: S3Server, tmp_path: Path) -> None:
    from_files = opened(tmp_path / "a", s3.target(prefix=tmp_path.name), {})
    from_files.write("x/y", [b"1"])
    plain = s3.target(prefix=tmp_path.name, access_key_file="", secret_key_file="")
    from_environment = opened(tmp_path / "b", plain)
    assert b"".join(from_environment.read("x/y")) == b"1"
    with pytest.raises(Invalid, match="no keys"):
        opened(tmp_path / "c", plain, {})


def test_variables_of_other_tools_do_not_change_the_address(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "planted-session")
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    monkeypatch.setenv("AWS_BUCKET", "other")
    target = opened(tmp_path, s3.target(prefix=tmp_path.name), {})
    target.write("x/y", [b"1"])
    assert list(target.list()) == ["x/y"]


def test_wrong_keys_are_refused_without_showing_them(s3: S3Server, tmp_path: Path) -> None:
    wrong = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": "planted-wrong-secret"}
    target = opened(tmp_path, s3.target(access_key_file="", secret_key_file=""), wrong)
    with pytest.raises(TargetRefused) as caught:
        target.write("x/y", [b"1"])
    assert "403 SignatureDoesNotMatch" in caught.value.message
    assert_no_secret(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "s3://key:planted-secret-key-that-nobody-may-see@bucket/x",
        "s3://",
        "file://host/path",
        "file:///",
        "ftp://x/y",
        "/mnt/backups",
        "",
    ],
)
def test_address_that_can_not_work_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(Invalid) as caught:
        opened(tmp_path, TargetSettings(name="t", url=url))
    assert_no_secret(caught.value)


@pytest.mark.parametrize(
    "endpoint", ["http://203.0.113.1", "http://example.com:9000", "x", "ftp://h"]
)
def test_unencrypted_address_is_refused_unless_it_is_this_machine(
    tmp_path: Path, endpoint: str
) -> None:
    target = TargetSettings(name="t", url="s3://b/p", endpoint=endpoint)
    with pytest.raises(Invalid):
        opened(tmp_path / "a", target)
    allowed = TargetSettings(
        name="t", url="s3://b/p", endpoint="http://203.0.113.1", allow_http=True
    )
    opened(tmp_path / "b", allowed)
    for number, own in enumerate(("http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1")):
        opened(tmp_path / str(number), TargetSettings(name="t", url="s3://b/p", endpoint=own))


def test_allow_http_does_not_send_https_in_the_clear(s3: S3Server, tmp_path: Path) -> None:
    encrypted = s3.target(endpoint=s3.endpoint.replace("http:", "https:"), allow_http=True)
    with pytest.raises(TargetUnreachable):
        opened(tmp_path, encrypted, {}).list()


@pytest.mark.parametrize(
    ("status", "error"),
    [
        ("403 Forbidden", TargetRefused),
        ("401 Unauthorized", TargetRefused),
        ("400 Bad Request", TargetRefused),
        ("301 Moved Permanently", TargetRefused),
        ("500 Internal Server Error", TargetUnreachable),
        ("503 Slow Down", TargetUnreachable),
        ("429 Too Many Requests", TargetUnreachable),
    ],
)
def test_status_decides_whether_the_request_is_repeated(
    tmp_path: Path, status: str, error: type[ApplianceError]
) -> None:
    body = f"<Error><Code>{SECRET}</Code><Message>{ACCESS} {SECRET}</Message></Error>".encode()
    with server(http_answer(status, body)) as endpoint:
        target = opened(tmp_path, TargetSettings(name="t", url="s3://b/p", endpoint=endpoint))
        for request in (
            lambda: target.list(),
            lambda: target.write("x/y", [b"1"]),
            lambda: list(target.read("x/y")),
            lambda: target.remove("x/y"),
        ):
            with pytest.raises(error) as caught:
                request()
            assert_no_secret(caught.value)


@pytest.mark.parametrize(
    "answer", [b"", b"\0\1\2 not http", http_answer("200 OK", b"abc", length=1000)]
)
def test_silent_and_broken_servers_are_unreachable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    monkeypatch.setattr(target_s3, "REQUEST_SECONDS_MAX", 0.5)
    with server(answer) as endpoint:
        target = opened(tmp_path, TargetSettings(name="t", url="s3://b/p", endpoint=endpoint))
        with pytest.raises(TargetUnreachable):
            target.list()


def test_request_that_breaks_is_repeated_until_it_succeeds(tmp_path: Path) -> None:
    modified = {"ETag": '"x"', "Last-Modified": "Mon, 02 Feb 2026 00:00:00 GMT"}

    def reply(request: HttpRequest) -> Reply:
        if "range" in request.headers:
            return 206, modified | {"Content-Range": "bytes 3-5/6"}, b"def"
        return 200, modified | {"Content-Length": "6", "Connection": "close"}, b"abc"

    with http_server(reply) as running:
        endpoint = f"http://127.0.0.1:{running.port}"
        target = TargetSettings(name="t", url="s3://b/p", endpoint=endpoint)
        machine = TargetBackups(tmp_path, target)
        with patch.dict(os.environ, KEYS):
            assert b"".join(machine.open().read("x/y")) == b"abcdef"
    assert [request.headers.get("range") for request in running.requests] == [None, "bytes=3-5"]


def test_endless_listing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_s3, "OBJECTS_MAX", 5000)
    entries = "".join(
        f"<Contents><Key>p/x/{n}</Key><Size>1</Size><ETag>e</ETag>"
        "<LastModified>2026-02-04T00:00:00.000Z</LastModified></Contents>"
        for n in range(1000)
    )
    body = (
        "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>again"
        f"</NextContinuationToken>{entries}</ListBucketResult>"
    ).encode()
    with server(http_answer("200 OK", body)) as endpoint:
        target = opened(tmp_path, TargetSettings(name="t", url="s3://b/p", endpoint=endpoint))
        with pytest.raises(ApplianceError):
            target.list()


def test_large_file_is_one_object_or_none(s3: S3Server, tmp_path: Path) -> None:
    """Longer than what is sent at once, in pieces that don't end where a part does."""
    target = opened(tmp_path, s3.target(prefix=tmp_path.name), {})
    pieces = [bytes([number]) * 1_000_003 for number in range(40)]

    def broken() -> Iterator[bytes]:
        yield from pieces
        raise BackupDamaged("planted")

    with pytest.raises(BackupDamaged, match="planted"):
        target.write("x/large", broken())
    assert target.list("x") == {}
    target.write("x/large", pieces)
    assert target.list("x") == {"x/large": 40_000_120}
    assert b"".join(target.read("x/large")) == b"".join(pieces)


def assert_no_secret(error: ApplianceError) -> None:
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None
    text = json.dumps([error.message, error.hint, error.details, repr(error)])
    assert SECRET not in text
    assert ACCESS not in text
    assert "planted" not in text
