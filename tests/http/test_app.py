"""The door as a client meets it: one example resource, every rule, every failure's shape."""

import json
from typing import Any, Literal

import falcon
import msgspec
import pytest

from appliance.kernel.errors import Conflict, Invalid
from appliance.web.body import BodyPlan, check_text
from appliance.web.media import reply
from appliance.web.page import PageLimit, clamp
from appliance.web.route import OPEN, Operation, Route, UnfitRoute
from appliance.web.settings import HttpSettings, LimitSettings
from tests.support.http import (
    NARROW_TOKEN,
    SCRAPE_TOKEN,
    TOKEN,
    Client,
    Lines,
    StillClock,
    app_of,
)


class Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str
    size: int = 0
    tags: list[str] = []


class Edit(msgspec.Struct, frozen=True, tag_field="op", tag="edit"):
    text: str


class Delete(msgspec.Struct, frozen=True, tag_field="op", tag="delete"):
    actor: str


class Notes(msgspec.Struct, frozen=True):
    notes: list[Note]


class ListNotes(msgspec.Struct, frozen=True):
    limit: PageLimit = 50
    after: int = 0
    tag: list[str] = []
    name: str | None = None
    tail: bool = False


class Taken(Conflict):
    code = "NOTE_TAKEN"
    sentence = "that note is taken"
    advice = "choose another"


class NoteResource:
    """Keeps the last command, and fails as it is told."""

    def __init__(self) -> None:
        self.seen: Any = None

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        self.seen = req.context.query
        reply(resp, {"limit": clamp(req.context.query.limit, 100)})

    def on_post(self, req: falcon.Request, resp: falcon.Response, command: Note) -> None:
        self.seen = command
        check_text(command.text, "text")
        match command.text:
            case "taken":
                raise Taken(extra={"current_version": 4, "code": "FORGED"})
            case "fault":
                raise RuntimeError("a secret in the exception's text")
            case "falcon":
                raise falcon.HTTPServiceUnavailable
            case "teapot":
                raise falcon.HTTPError(418)
        reply(resp, {"key": req.context.idempotency_key, "by": req.context.principal.id}, 201)

    def on_get_item(self, req: falcon.Request, resp: falcon.Response, note_id: str) -> None:
        reply(resp, {"id": note_id})

    def on_patch_item(
        self, req: falcon.Request, resp: falcon.Response, note_id: str, command: Edit | Delete
    ) -> None:
        self.seen = command
        reply(resp, {"id": note_id})

    def on_post_batch(self, req: falcon.Request, resp: falcon.Response, command: Notes) -> None:
        reply(resp, {"count": len(command.notes)})

    def on_get_open(self, req: falcon.Request, resp: falcon.Response) -> None:
        reply(resp, {"up": True})


def routes(resource: NoteResource) -> list[Route]:
    return [
        Route(
            "/notes",
            resource,
            {
                "GET": Operation("hub:read", "list", query=ListNotes),
                "POST": Operation("hub:post", "create", body=Note, status=201),
            },
        ),
        Route(
            "/notes/{note_id}",
            resource,
            {
                "GET": Operation("hub:read", "one"),
                "PATCH": Operation("hub:post", "change", body=Edit | Delete),
            },
            suffix="item",
        ),
        Route(
            "/batch",
            resource,
            {
                "POST": Operation(
                    "hub:post", "many", body=Notes, batch=True, cost=lambda c: len(c.notes)
                )
            },
            suffix="batch",
        ),
        Route("/-/up", resource, {"GET": Operation(OPEN, "up", probe=True)}, suffix="open"),
    ]


@pytest.fixture
def resource() -> NoteResource:
    return NoteResource()


def client(resource: NoteResource, token: str | None = TOKEN, **more: Any) -> Client:
    peer = {name: more.pop(name) for name in ("host", "address", "port") if name in more}
    return Client(app_of(routes(resource), **more), token, **peer)


JSON = {"Content-Type": "application/json"}


def post(
    to: Client, body: bytes | Any, path: str = "/notes", headers: Any = JSON
) -> falcon.testing.Result:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return to.simulate_post(path, body=raw, headers=headers)


def assert_failure(result: Any, status: int, code: str) -> dict[str, Any]:
    shown = result.json
    assert (result.status_code, shown["code"]) == (status, code), shown
    assert {"error", "code", "details", "hint", "request_id"} <= set(shown)
    assert isinstance(shown["error"], str)
    assert shown["error"]
    assert isinstance(shown["details"], dict)
    assert shown["request_id"] == result.headers["x-request-id"]
    assert result.headers["content-type"] == "application/json"
    return dict(shown)


# --- bodies -----------------------------------------------------------------


def test_body_arrives_as_struct(resource: NoteResource) -> None:
    result = post(client(resource), {"text": "hä", "size": 3})
    assert result.status_code == 201
    assert result.json == {"key": None, "by": "workspace"}
    assert resource.seen == Note("hä", 3)


def test_sql_metacharacters_and_duplicate_keys_are_ordinary(resource: NoteResource) -> None:
    assert post(client(resource), b'{"text":"a","text":"\'; DROP TABLE--"}').status_code == 201
    assert resource.seen.text == "'; DROP TABLE--"


BAD_BODIES: list[tuple[bytes, str | None]] = [
    (b"", None),
    (b"null", ""),
    (b"[]", ""),
    (b'"x"', ""),
    (b"{}", "text"),
    (b"{", None),
    (b'{"text":"x"} y', None),
    (b'{"text":null}', "text"),
    (b'{"text":1}', "text"),
    (b'{"text":"x","size":"1"}', "size"),
    (b'{"text":"x","size":1.5}', "size"),
    (b'{"text":"x","size":true}', "size"),
    (b'{"text":"x","size":NaN}', None),
    (b'{"text":"x","size":Infinity}', None),
    (b'{"text":"x","size":99999999999999999999}', "size"),
    (b'{"text":"x","size":-99999999999999999999}', "size"),
    (b'{"text":"x","size":9223372036854775808}', "size"),
    (b'{"text":"x","tags":[1]}', "tags[0]"),
    (b'{"text":"x","more":1}', "more"),
    (b'{"text":"a\\u0000b"}', "text"),
    (b'{"text":"x","tags":["\\u0000"]}', "tags[0]"),
    (b'{"text":"\\ud800"}', None),
    (b'{"text":"\\udc00x"}', None),
    (b'{"text":"\xff"}', None),
    (b'{"text":"\xed\xa0\x80"}', None),
    (b'\xef\xbb\xbf{"text":"x"}', None),
    (b'{"text":' + b"[" * 200_000, "text"),
    (b'{"text":"x","tags":' + b"[" * 200_000, "tags[0]"),
]


@pytest.mark.parametrize(("body", "field"), BAD_BODIES, ids=lambda v: repr(v)[:40])
def test_bad_body_is_a_typed_400_naming_the_field(
    resource: NoteResource, body: bytes, field: str | None
) -> None:
    shown = assert_failure(post(client(resource), body), 400, "INVALID_INPUT")
    assert shown["details"].get("field") == field
    assert resource.seen is None


def test_escaped_backslash_before_u0000_is_no_nul(resource: NoteResource) -> None:
    assert post(client(resource), b'{"text":"\\\\u0000"}').status_code == 201
    assert resource.seen.text == "\\u0000"


def test_largest_integers_pass(resource: NoteResource) -> None:
    assert post(client(resource), {"text": "x", "size": 2**63 - 1}).status_code == 201
    assert post(client(resource), {"text": "x", "size": -(2**63)}).status_code == 201


def test_tagged_union_body_and_its_unknown_op(resource: NoteResource) -> None:
    door = client(resource)
    good = door.simulate_patch("/notes/n1", body='{"op":"delete","actor":"a"}', headers=JSON)
    assert good.json == {"id": "n1"}
    assert resource.seen == Delete("a")
    bad = door.simulate_patch("/notes/n1", body='{"op":"frob"}', headers=JSON)
    assert assert_failure(bad, 400, "INVALID_INPUT")["details"]["field"] == "op"


@pytest.mark.parametrize("declared", [513 * 1024, 10**17])
def test_declared_oversize_is_refused_before_reading(resource: NoteResource, declared: int) -> None:
    result = post(client(resource), b"{}", headers={**JSON, "Content-Length": str(declared)})
    shown = assert_failure(result, 400, "PAYLOAD_TOO_LARGE")
    assert shown["details"] == {"bytes_max": 512 * 1024}


@pytest.mark.parametrize("declared", ["-1", "1x", "", " ", "9" * 30])
def test_content_length_that_is_no_number_is_refused(declared: str) -> None:
    with pytest.raises(Invalid):
        BodyPlan(Note, 100).read({"CONTENT_LENGTH": declared, "CONTENT_TYPE": "application/json"})


def test_body_shorter_than_declared_is_refused(resource: NoteResource) -> None:
    result = post(client(resource), b'{"text":"x"}', headers={**JSON, "Content-Length": "40"})
    assert_failure(result, 400, "INVALID_INPUT")


def test_oversize_without_length_is_refused_while_reading(resource: NoteResource) -> None:
    small = HttpSettings(body_bytes_max=100)
    for size, status in ((80, 201), (101, 400)):
        body = b'{"text":"' + b"x" * (size - 11) + b'"}'
        result = client(resource, settings=small).simulate_post(
            "/notes",
            body=body,
            headers={**JSON, "Transfer-Encoding": "chunked"},
            extras={"CONTENT_LENGTH": ""},
        )
        assert result.status_code == status, result.text


def test_batch_may_be_larger_than_a_body(resource: NoteResource) -> None:
    settings = HttpSettings(body_bytes_max=50, batch_bytes_max=1000)
    note = {"text": "x" * 100}
    door = client(resource, settings=settings)
    assert post(door, {"notes": [note]}, "/batch").json == {"count": 1}
    assert_failure(post(door, note), 400, "PAYLOAD_TOO_LARGE")
    assert_failure(post(door, {"notes": [note] * 10}, "/batch"), 400, "PAYLOAD_TOO_LARGE")


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/json; charset=latin-1"},
        {"Content-Type": "application/jsonx"},
        {"Content-Type": ""},
        {**JSON, "Content-Encoding": "gzip"},
    ],
)
def test_wrong_content_type_is_415(resource: NoteResource, headers: dict[str, str]) -> None:
    result = post(client(resource), {"text": "x"}, headers=headers)
    assert_failure(result, 415, "UNSUPPORTED_MEDIA_TYPE")


@pytest.mark.parametrize(
    "given", ["application/json; charset=utf-8", 'Application/JSON;charset="UTF-8"']
)
def test_charset_utf8_is_json_too(resource: NoteResource, given: str) -> None:
    result = post(client(resource), {"text": "x"}, headers={"Content-Type": given})
    assert result.status_code == 201


# --- query, path, key ---------------------------------------------------------


def test_query_arrives_as_struct_and_limit_is_clamped(resource: NoteResource) -> None:
    result = client(resource).simulate_get(
        "/notes", query_string="limit=500&after=7&tag=a&tag=b&name=null&tail=true"
    )
    assert result.json == {"limit": 100}
    assert resource.seen == ListNotes(500, 7, ["a", "b"], "null", True)


def test_numbers_beyond_64_bits_are_the_largest_one(resource: NoteResource) -> None:
    result = client(resource).simulate_get(
        "/notes", query_string=f"limit={'9' * 5000}&after={'9' * 40}"
    )
    assert result.json == {"limit": 100}
    assert resource.seen.after == 2**63 - 1


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=-1", "limit"),
        ("limit=", "limit"),
        ("limit=ten", "limit"),
        ("limit=1.0", "limit"),
        ("limit=1e3", "limit"),
        ("limit=+1", "limit"),
        ("limit=1&limit=2", "limit"),
        ("limit=%D9%A3", "limit"),
        ("after=null", "after"),
        ("tail=yes", "tail"),
        ("name=a%00b", "name"),
        ("limt=5", "limt"),
        ("name=%ff", None),
        ("&".join(f"tag={n}" for n in range(200)), None),
    ],
)
def test_bad_query_is_a_typed_400_naming_the_parameter(
    resource: NoteResource, query: str, field: str | None
) -> None:
    result = client(resource).simulate_get("/notes", query_string=query)
    assert assert_failure(result, 400, "INVALID_INPUT")["details"].get("field") == field
    assert resource.seen is None


def test_query_where_none_is_declared_is_refused(resource: NoteResource) -> None:
    result = client(resource).simulate_get("/notes/n1", query_string="x=1")
    assert_failure(result, 400, "INVALID_INPUT")


@pytest.mark.parametrize("path", ["/notes/a%00b", "/notes/%ff"])
def test_path_parameters_are_valid_text(resource: NoteResource, path: str) -> None:
    assert_failure(client(resource).simulate_get(path), 400, "INVALID_INPUT")


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ("abc", "abc"),
        ('"abc"', "abc"),
        ('"a b"', "a b"),
        ('"a\\"b\\\\"', 'a"b\\'),
        ("x" * 255, "x" * 255),
    ],
)
def test_idempotency_key_forms(resource: NoteResource, header: str, key: str) -> None:
    result = post(client(resource), {"text": "x"}, headers={**JSON, "Idempotency-Key": header})
    assert result.json["key"] == key


@pytest.mark.parametrize("header", ["", " ", '""', '"a', "a b", "x" * 256, "é", '"a"b"', "a\tb"])
def test_bad_idempotency_key_is_refused(resource: NoteResource, header: str) -> None:
    result = post(client(resource), {"text": "x"}, headers={**JSON, "Idempotency-Key": header})
    assert_failure(result, 400, "INVALID_INPUT")
    assert resource.seen is None


# --- routes and methods ---------------------------------------------------------


def test_unknown_route_is_a_json_404(resource: NoteResource) -> None:
    assert_failure(client(resource).simulate_get("/nowhere"), 404, "NOT_FOUND")


def test_unknown_method_is_405_with_allow(resource: NoteResource) -> None:
    for method in ("DELETE", "PUT", "TRACE", "PROPFIND", "FROB"):
        result = client(resource).simulate_request(method, "/notes")
        assert_failure(result, 405, "METHOD_NOT_ALLOWED")
        assert result.headers["allow"] == "GET, HEAD, OPTIONS, POST"


def test_head_is_get_without_a_body(resource: NoteResource) -> None:
    result = client(resource).simulate_head("/notes")
    assert (result.status_code, result.content) == (200, b"")
    assert result.headers["content-length"] == str(len(b'{"limit":50}'))
    assert client(resource).simulate_head("/batch").status_code == 405


def test_options_tells_allow_to_who_may_do_something(resource: NoteResource) -> None:
    result = client(resource).simulate_options("/notes")
    assert (result.status_code, result.content) == (204, b"")
    assert result.headers["allow"] == "GET, HEAD, OPTIONS, POST"
    assert "access-control-allow-origin" not in result.headers


def test_options_and_405_are_no_hole_for_strangers(resource: NoteResource) -> None:
    for method in ("OPTIONS", "DELETE"):
        result = client(resource, None).simulate_request(method, "/batch")
        assert_failure(result, 401, "UNAUTHORIZED")
        result = client(resource, SCRAPE_TOKEN).simulate_request(method, "/batch")
        assert_failure(result, 403, "FORBIDDEN")


# --- failures of ours -------------------------------------------------------------


def test_our_error_keeps_its_five_keys_and_adds_extra(resource: NoteResource) -> None:
    shown = assert_failure(post(client(resource), {"text": "taken"}), 409, "NOTE_TAKEN")
    assert shown["current_version"] == 4
    assert shown["hint"] == "choose another"


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


def test_falcons_own_errors_have_our_shape(resource: NoteResource) -> None:
    result = post(client(resource), {"text": "falcon"})
    assert_failure(result, 503, "SERVICE_UNAVAILABLE")
    assert result.headers["retry-after"] == "1"
    assert_failure(post(client(resource), {"text": "teapot"}), 400, "INVALID_INPUT")


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
def test_who_may_do_what(
    resource: NoteResource, bind: str, address: str, token: str | None, method: str, status: int
) -> None:
    door = client(resource, token, settings=HttpSettings(host=bind), address=address)
    body = {"body": b'{"text":"x"}', "headers": JSON} if method == "POST" else {}
    result = door.simulate_request(method, "/notes", **body)
    assert result.status_code == status
    if status == 401:
        assert_failure(result, 401, "UNAUTHORIZED")
        assert result.headers["www-authenticate"].startswith("Bearer")


def test_refused_caller_s_body_is_not_read(resource: NoteResource) -> None:
    assert post(client(resource, None), b"rubbish").status_code == 401


def test_probe_is_open_everywhere(resource: NoteResource) -> None:
    far = client(resource, None, settings=HttpSettings(host="0.0.0.0"), address="10.0.0.9")
    assert far.simulate_get("/-/up").json == {"up": True}


def test_token_in_query_is_400_and_not_looked_up(resource: NoteResource) -> None:
    for name in ("token", "access_token"):
        result = client(resource).simulate_get("/notes", query_string=f"{name}={TOKEN}")
        assert_failure(result, 400, "TOKEN_IN_QUERY")
        assert TOKEN not in result.text


@pytest.mark.parametrize(
    ("bind", "host", "status"),
    [
        ("127.0.0.1", "evil.example:8080", 421),
        ("127.0.0.1", "localhost", 200),
        ("127.0.0.1", "[::1]:9", 200),
        ("0.0.0.0", "anything.example", 200),
    ],
)
def test_host_header(resource: NoteResource, bind: str, host: str, status: int) -> None:
    result = client(resource, settings=HttpSettings(host=bind), host=host).simulate_get("/notes")
    assert result.status_code == status
    if status == 421:
        assert_failure(result, 421, "HOST_REFUSED")


def test_probe_s_host_is_judged_only_on_loopback(resource: NoteResource) -> None:
    named = HttpSettings(host="0.0.0.0", allowed_hosts=("hub.example",))
    probe = client(resource, None, settings=named, host="10.1.2.3:8080")
    assert probe.simulate_get("/-/up").status_code == 200
    assert probe.simulate_get("/notes").status_code == 421
    rebound = client(resource, None, host="evil.example")
    assert rebound.simulate_get("/-/up").status_code == 421


def test_foreign_origin_may_read_but_not_change(resource: NoteResource) -> None:
    door = client(resource)
    foreign = {**JSON, "Origin": "https://evil.example"}
    assert_failure(post(door, {"text": "x"}, headers=foreign), 403, "ORIGIN_REFUSED")
    assert resource.seen is None
    same = {**JSON, "Origin": "http://localhost:8080"}
    assert post(door, {"text": "x"}, headers=same).status_code == 201
    assert door.simulate_get("/notes", headers=foreign).status_code == 200


# --- rates ---------------------------------------------------------------------------


def test_the_request_after_the_limit_is_429_until_the_window_turns(
    resource: NoteResource,
) -> None:
    clock = StillClock(1_700_000_000_250)
    door = client(resource, limits=LimitSettings(per_connection=3), clock=clock)
    lefts = [door.simulate_get("/notes").headers["x-ratelimit-remaining"] for _ in range(3)]
    assert lefts == ["2", "1", "0"]
    result = door.simulate_get("/notes")
    shown = assert_failure(result, 429, "RATE_LIMITED")
    assert shown["details"]["limit"] == 3
    assert shown["details"]["window"] == "1s"
    assert shown["details"]["retry_after"] == 0.75
    assert result.headers["retry-after"] == "1"
    assert result.headers["x-ratelimit-limit"] == "3"
    assert result.headers["x-ratelimit-remaining"] == "0"
    assert result.headers["x-ratelimit-reset"] == "2023-11-14T22:13:21.000Z"
    clock.tick(750)
    assert door.simulate_get("/notes").status_code == 200


def test_hundred_by_default(resource: NoteResource) -> None:
    door = client(resource, limits=LimitSettings())
    codes = [door.simulate_get("/notes").status_code for _ in range(101)]
    assert codes == [200] * 100 + [429]


def test_refusals_carry_the_headers_and_count(resource: NoteResource) -> None:
    door = client(resource, "wrong", limits=LimitSettings(per_connection=2))
    results = [door.simulate_get(path) for path in ("/notes", "/nowhere", "/notes")]
    assert [r.status_code for r in results] == [401, 401, 429]
    assert results[0].headers["x-ratelimit-limit"] == "2"


def test_probes_are_not_limited(resource: NoteResource) -> None:
    door = client(resource, limits=LimitSettings(per_connection=1))
    assert {door.simulate_get("/-/up").status_code for _ in range(5)} == {200}
    assert door.simulate_get("/notes").status_code == 200


def test_batch_costs_its_items(resource: NoteResource) -> None:
    clock = StillClock()
    door = client(resource, limits=LimitSettings(per_connection=10), clock=clock)
    batch = {"notes": [{"text": "x"}] * 4}
    lefts = [post(door, batch, "/batch").headers["x-ratelimit-remaining"] for _ in range(2)]
    assert lefts == ["6", "2"]
    assert_failure(post(door, batch, "/batch"), 429, "RATE_LIMITED")


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


def test_request_ids_differ(resource: NoteResource) -> None:
    door = client(resource)
    ids = {door.simulate_get("/notes").headers["x-request-id"] for _ in range(50)}
    assert len(ids) == 50


@pytest.mark.parametrize(
    ("access", "statuses"), [("errors", [404]), ("all", [200, 404]), ("off", [])]
)
def test_access_log(
    resource: NoteResource, access: Literal["errors", "all", "off"], statuses: list[int]
) -> None:
    lines = Lines()
    door = client(resource, lines=lines, access=access)
    door.simulate_get("/notes")
    door.simulate_get("/nowhere")
    assert [line["status"] for line in lines.entries()] == statuses


def test_slow_request_is_logged_and_nothing_secret_is(resource: NoteResource) -> None:
    lines, clock = Lines(), StillClock()

    class Slow(NoteResource):
        def on_post(self, req: Any, resp: Any, command: Note) -> None:
            clock.tick(1500)
            super().on_post(req, resp, command)

    door = client(Slow(), lines=lines, clock=clock)
    post(door, {"text": "private words"})
    (entry,) = lines.entries()
    assert (entry["ms"], entry["route"], entry["principal_id"]) == (1500.0, "/notes", "workspace")
    assert b"private" not in lines.getvalue()
    assert TOKEN.encode() not in lines.getvalue()


def test_latency_is_counted_by_template_not_by_path(resource: NoteResource) -> None:
    from appliance.kernel.metrics import REGISTRY

    def count(route: str, status: str = "2xx", method: str = "GET") -> float:
        labels = {"method": method, "route": route, "status": status}
        return REGISTRY.get_sample_value("agentlip_http_request_seconds_count", labels) or 0.0

    door = client(resource)
    before, lost, odd = count("/notes/{note_id}"), count("unmatched", "4xx"), None
    odd = count("/notes", "4xx", "other")
    door.simulate_get("/notes/n1")
    door.simulate_get("/notes/n2")
    door.simulate_get("/nowhere/n2")
    door.simulate_request("PROPFIND", "/notes")
    assert count("/notes/{note_id}") == before + 2
    assert count("unmatched", "4xx") == lost + 1
    assert count("/notes", "4xx", "other") == odd + 1
    assert REGISTRY.get_sample_value("agentlip_http_requests_in_flight") == 0


# --- what may be mounted --------------------------------------------------------------


def test_responder_without_operation_is_not_mounted(resource: NoteResource) -> None:
    with pytest.raises(UnfitRoute, match="on_patch_item"):
        app_of([r for r in routes(resource) if r.suffix != "item"])


@pytest.mark.parametrize(
    ("operations", "complaint"),
    [
        ({"DELETE": Operation("hub:post", "x")}, "no responder"),
        ({"GET": Operation("hub:read")}, "no summary"),
        ({"GET": Operation("read", "x")}, "scope"),
        ({"GET": Operation("hub:read", "x", probe=True)}, "probe"),
        ({"GET": Operation("hub:read", "x", batch=True)}, "no body|is none"),
        ({"HEAD": Operation(OPEN, "x")}, "HEAD"),
    ],
)
def test_unfit_operation_is_not_mounted(operations: dict[str, Operation], complaint: str) -> None:
    class Plain:
        def on_get(self, req: Any, resp: Any) -> None: ...

        def on_head(self, req: Any, resp: Any) -> None: ...

    with pytest.raises(UnfitRoute, match=complaint):
        app_of([Route("/x", Plain(), operations)])


def test_path_is_mounted_once(resource: NoteResource) -> None:
    with pytest.raises(UnfitRoute, match="twice"):
        app_of([*routes(resource), routes(resource)[0]])
