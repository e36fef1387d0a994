"""HTTP as a client sees it: failures, access, rates, headers, log and metrics."""

import gzip
import json

import pytest

from appliance.web.settings import HttpSettings
from tests.support.http import (
    NARROW_TOKEN,
    SCRAPE_TOKEN,
    TOKEN,
    Lines,
)
from tests.support.notes_resource import (
    JSON,
    NoteResource,
    assert_failure,
    client,
    post,
)

# --- routes and methods ---------------------------------------------------------


@pytest.mark.parametrize(("method", "body"), [("GET", b"onetwo"), ("HEAD", b"")])
def test_stream_is_ended_once_whatever_the_method(resource, method, body):
    result = client(resource).simulate_request(method, "/notes.stream")
    assert (result.status_code, result.content) == (200, body)
    assert resource.stream.closed == 1


def test_options_and_405_need_a_permitted_token(resource: NoteResource) -> None:
    for method in ("OPTIONS", "DELETE"):
        result = client(resource, None).simulate_request(method, "/batch")
        assert_failure(result, 401, "UNAUTHORIZED")
        result = client(resource, SCRAPE_TOKEN).simulate_request(method, "/batch")
        assert_failure(result, 403, "FORBIDDEN")


# --- failures of ours -------------------------------------------------------------


def test_unexpected_error_leaks_nothing_and_is_logged_by_type(resource: NoteResource) -> None:
    lines = Lines()
    shown = assert_failure(
        post(client(resource, lines=lines), {"text": "fault"}), 500, "INTERNAL_ERROR"
    )
    assert "secret" not in json.dumps(shown)
    assert "secret" not in lines.getvalue().decode()
    entry = next(line for line in lines.entries() if line["level"] == "error")
    assert entry["error_type"] == "RuntimeError"
    assert entry["request_id"] == shown["request_id"]
    assert any("on_post" in frame for frame in entry["frames"])


# --- who may ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bind", "address", "token", "method", "status"),
    [
        ("127.0.0.1", "127.0.0.1", None, "GET", 200),
        ("127.0.0.1", "127.0.0.1", None, "POST", 401),
        ("127.0.0.1", "127.0.0.1", "wrong", "GET", 401),
        ("127.0.0.1", "127.0.0.1", "wrong", "POST", 401),
        ("127.0.0.1", "127.0.0.1", NARROW_TOKEN, "POST", 403),
        ("127.0.0.1", "127.0.0.1", SCRAPE_TOKEN, "GET", 200),
        ("127.0.0.1", "127.0.0.1", TOKEN, "POST", 201),
        ("0.0.0.0", "127.0.0.1", None, "GET", 401),
        ("0.0.0.0", "10.0.0.9", None, "GET", 401),
        ("0.0.0.0", "10.0.0.9", SCRAPE_TOKEN, "GET", 403),
        ("0.0.0.0", "10.0.0.9", NARROW_TOKEN, "GET", 200),
        ("0.0.0.0", "10.0.0.9", NARROW_TOKEN, "POST", 403),
        ("0.0.0.0", "10.0.0.9", TOKEN, "POST", 201),
    ],
)
def test_access_by_bind_address_token_and_method(resource, bind, address, token, method, status):
    door = client(resource, token, settings=HttpSettings(host=bind), address=address)
    body = {"body": b'{"text":"x"}', "headers": JSON} if method == "POST" else {}
    result = door.simulate_request(method, "/notes", **body)
    assert result.status_code == status
    if status == 401:
        assert_failure(result, 401, "UNAUTHORIZED")
        assert result.headers["www-authenticate"].startswith("Bearer")


def test_host_of_a_probe_is_validated_only_on_loopback(resource: NoteResource) -> None:
    named = HttpSettings(host="0.0.0.0", allowed_hosts=("hub.example",))
    probe = client(resource, None, settings=named, host="pod.example:8080")
    assert probe.simulate_get("/-/up").status_code == 200
    assert probe.simulate_get("/notes").status_code == 421
    rebound = client(resource, None, host="evil.example")
    assert rebound.simulate_get("/-/up").status_code == 421


# --- headers, ids, log, metrics ----------------------------------------------------------


def test_every_reply_carries_the_headers(resource: NoteResource) -> None:
    door = client(resource)
    for result in (
        door.simulate_get("/notes"),
        door.simulate_get("/nowhere"),
        door.simulate_options("/notes"),
        post(door, {"text": "fault"}),
        client(resource, "wrong").simulate_get("/notes"),
        client(resource, host="evil.example").simulate_get("/notes"),
    ):
        assert result.headers["x-content-type-options"] == "nosniff"
        assert result.headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in result.headers["content-security-policy"]
        assert result.headers["referrer-policy"] == "no-referrer"
        assert result.headers["cache-control"] == "no-store"
        assert result.headers["x-instance-id"] == "instance-1"
        assert result.headers["x-request-id"]


@pytest.mark.parametrize(
    ("given", "echoed"),
    [
        ("3f2b-req.1", True),
        ("x" * 128, True),
        ("x" * 129, False),
        ("a b", False),
        ("<b>", False),
        ("", False),
    ],
)
def test_request_id_is_echoed_when_safe(resource: NoteResource, given: str, echoed: bool) -> None:
    result = client(resource).simulate_get("/notes", headers={"X-Request-ID": given})
    assert (result.headers["x-request-id"] == given) is echoed


@pytest.mark.parametrize(
    ("access", "statuses"), [("errors", [404]), ("all", [200, 404]), ("off", [])]
)
def test_access_log_has_selected_requests(resource, access, statuses):
    lines = Lines()
    door = client(resource, lines=lines, access=access)
    door.simulate_get("/notes")
    door.simulate_get("/nowhere")
    assert [line["status"] for line in lines.entries()] == statuses


def test_page_is_equal_for_clients_with_and_without_gzip(hub):
    client = hub.connect(token=None)
    packed = client.get("/ui/account.js", headers={"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.raw) == client.get("/ui/account.js").raw
    assert packed.raw != client.get("/ui/account.js").raw
