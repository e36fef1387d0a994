"""Every route against every kind of wrong input: the one error shape, and nothing half-written.

Wrong input is made from the served description, so a new route is in these tables by itself.
"""

import json
import re
from copy import deepcopy

import pytest
from jsonschema import Draft202012Validator

from tests.contract import freeze
from tests.contract.test_openapi_walk import ENDLESS
from tests.support.servedhub import serve

pytestmark = pytest.mark.slow

KB = 1024
OWN_ENVELOPE = {"/mcp"}  # JSON-RPC has its own form of errors: tests/mcp/test_protocol.py
ITEM_BY_ITEM = {"CreateMessages"}  # tests/http/hub/test_resources_keys.py: refused one by one
FAILURE_KEYS = {"error", "code", "details", "hint", "request_id"}
VALUES = [None, True, 7, -1, 0, 1.5, 2**63, 10**30, "", "text", "a b", [], [None], {}, {"a": []}]
NUL = "a\0b"
BODIES = {
    "null": b"null",
    "a list": b"[]",
    "text": b'"x"',
    "a number": b"7",
    "nothing": b"",
    "half": b'{"a": ',
    "more behind it": b"{} {}",
    "not UTF-8": b'{"a": "\xff"}',
    "half a character": b'{"a": "\xed\xa0\x80"}',
    "a lone surrogate": b'{"\\ud800": 1}',
    "NaN": b'{"a": NaN}',
    "too deep": b'{"a": ' + b"[" * 100_000,
}
LIMITS = ["0", "-1", "", "x", "1.5", "1e3", "+1", "%D9%A3", "null", "true", "1&{name}=2"]
TEXTS = ["a%00b", "%FF", "%ED%A0%80"]
KEYS = ["a b", "x" * 256, '"open', '""']
VERIFIES_SENDER = "/api/v1/incoming/nobody"  # refuses a request without a signature undecoded
MADE_BY_NAME = {
    ("PUT", "/api/v1/blobs/{ref}"),
    ("POST", "/api/v1/agents/{agent}/report"),
    ("POST", "/api/v1/agents/{agent}/pause"),
    ("PUT", "/api/v1/jobs/{job}"),
}
CONSTANTS = {
    "appliance.hub.ask.wire.WAIT_SECONDS_MAX": 0.05,
    "appliance.hub.entries.wire.WAIT_SECONDS_MAX": 0.05,
    "appliance.bus.wire.WAIT_SECONDS_MAX": 0.05,
    "appliance.hub.service.WAIT_SECONDS_MAX": 0.02,
    "appliance.courier.service.WAIT_SECONDS_MAX": 0.05,
    "appliance.jobs.wire.WAIT_SECONDS_MAX": 0.05,
}


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("hub"), constants=CONSTANTS) as hub:
        hub.channel_with_topic("general")
        yield hub
        assert hub.http.get("/health").body["pid"] == hub.pid
        assert '"level":"error"' not in hub.log_text


@pytest.fixture(scope="module")
def document(hub):
    return hub.http.get("/api/v1/openapi.json").body


@pytest.fixture(scope="module")
def operations(document):
    """(method, path, what is said of it), without those that have an envelope of their own."""
    described = [
        (method.upper(), path, operation)
        for path, item in document["paths"].items()
        if path not in OWN_ENVELOPE
        for method, operation in item.items()
    ]
    assert len(described) >= 40
    return described


@pytest.fixture(autouse=True)
def nothing_is_written(hub):
    """Whatever is refused leaves every table as it was."""
    before = rows_of(hub)
    yield
    assert rows_of(hub) == before


def rows_of(hub):
    names = [row[0] for row in hub.rows("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    return {
        name: hub.rows(f"SELECT count(*) FROM {name}")
        for name in names
        if not name.startswith(("messages_fts", "x_cjk_messages", "sqlite_"))
    }


class RefusalChecker:
    """Sends what is wrong and collects what was not answered as it must be, or is not described."""

    def __init__(self, hub, document):
        self.client, self.wrong, self.count = hub.connect(), [], 0
        self.described = {
            (method.upper(), re.compile(re.sub(r"{\w+}", "[^/]+", path))): set(
                operation["responses"]
            )
            for path, item in document["paths"].items()
            for method, operation in item.items()
        }

    def expect(self, statuses, what, method, path, *, field=None, **sent):
        self.count += 1
        answer = self.client(method, path, **sent)
        problem = fault(answer, statuses, field) or self._undescribed(method, path, answer.status)
        if problem:
            self.wrong.append(f"{method} {path[:90]} with {what}: {problem}: {answer.raw[:200]!r}")
        if answer.headers.get("connection") == "close":
            self.client.close()

    def _undescribed(self, method, path, status):
        path = path.partition("?")[0]
        for (described_method, pattern), statuses in self.described.items():
            if described_method == method and pattern.fullmatch(path):
                return None if str(status) in statuses else f"{status} is not described"
        return None if status in (401, 405) else "no such operation"

    def end(self, at_least):
        self.client.close()
        assert self.wrong == [], "\n".join(self.wrong[:40])
        assert self.count >= at_least, "the tables were made of something"


def fault(answer, statuses, field):
    """What is wrong with a refusal; None if nothing."""
    if answer.status not in statuses:
        return f"{answer.status}, not {statuses}"
    if answer.headers["content-type"] != "application/json":
        return "not JSON"
    body = answer.body
    if not body.keys() >= FAILURE_KEYS or not body["error"] or not body["code"]:
        return "not the error shape"
    if not isinstance(body["details"], dict) or not isinstance(body["hint"], str):
        return "not the error shape"
    if not body["hint"]:
        return "no hint"
    if body["request_id"] != answer.headers["x-request-id"]:
        return "another request id"
    if field is not None and re.split(r"[.\[]", str(body["details"].get("field")))[0] != field:
        return f"named {body['details'].get('field')!r}, not {field!r}"
    return None


# -- made from the description ----------------------------------------------------------------


def good_value(schema, document):
    """The smallest thing that fits."""
    schema = resolved(schema, document)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema or "oneOf" in schema:
        return good_value((schema.get("anyOf") or schema["oneOf"])[0], document)
    kind = schema.get("type")
    if kind == "object" or "properties" in schema:
        return good_body(schema, document)
    if kind == "array":
        return [good_value(schema["items"], document)] * schema.get("minItems", 0)
    if kind == "integer" or kind == "number":
        return max(1, schema.get("minimum", 1))
    if kind == "boolean":
        return False
    if "examples" in schema:
        return schema["examples"][0]
    text = "x" * max(1, schema.get("minLength", 1))
    return text if re.search(schema.get("pattern", ""), text) else "0" * 64  # a hash


def good_body(schema, document):
    properties = schema.get("properties", {})
    return {
        name: good_value(properties[name], document)
        for name in schema.get("required", ())
        if name in properties
    }


def resolved(schema, document):
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def variants(schema, document):
    """The objects that a body may be."""
    schema = resolved(schema, document)
    inner = schema.get("anyOf") or schema.get("oneOf")
    if inner is None:
        return [schema]
    return [variant for kind in inner for variant in variants(kind, document)]


def bodies(operations, document):
    """(method, path, schema, a good body) of all that take one."""
    for method, path, operation in operations:
        media = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if media is not None:
            for schema in variants(media["schema"], document):
                yield method, filled(path), schema, good_body(schema, document)


def filled(path, value="nobody"):
    return re.sub(r"{\w+}", value, path)


def spoilt(schema, good, document):
    """(what, field, body) with one thing wrong each, at the top and in the items of a list."""
    judge = Draft202012Validator({**schema, "components": document["components"]})
    for name in schema.get("required", ()):
        yield f"no {name}", name, {key: good[key] for key in good if key != name}
    for name, kind in schema.get("properties", {}).items():
        kind = resolved(kind, document)
        values = [*VALUES, "x" * (kind.get("maxLength", 0) + 1) if "maxLength" in kind else None]
        if kind.get("type") == "array":
            values += [[value] for value in VALUES]
        for value in values:
            if schema["title"] in ITEM_BY_ITEM and isinstance(value, list):
                continue  # its items are refused one by one, in a 200
            body = {**deepcopy(good), name: value}
            if not judge.is_valid(body) or beyond_64_bits(value):
                yield f"{name}={str(value)[:30]!r}", name, body
        if kind.get("type") == "string" or "anyOf" in kind:
            body = {**deepcopy(good), name: NUL}
            yield f"{name} with NUL", name, body


def beyond_64_bits(value):
    return isinstance(value, int) and abs(value) >= 2**63


# -- the tables -------------------------------------------------------------------------------


def test_every_body_field_refuses_invalid_values(hub, operations, document):
    checker = RefusalChecker(hub, document)
    for method, path, schema, good in bodies(operations, document):
        for what, field, body in spoilt(schema, good, document):
            checker.expect({400}, what, method, path, field=field, body=body)
    checker.end(at_least=600)


def test_every_invalid_body_is_refused(hub, operations, document):
    checker = RefusalChecker(hub, document)
    for method, path, _schema, good in bodies(operations, document):
        for what, raw in BODIES.items():
            headers = {"Content-Length": "0"} if raw == b"" else {}
            undecoded = path == VERIFIES_SENDER and raw
            checker.expect(
                {401 if undecoded else 400}, what, method, path, raw=raw, headers=headers
            )
        surplus = json.dumps({**good, "surplus": "X"}).encode()
        for what, value in (("not UTF-8", b"\xff"), ("NUL", b"\\u0000")):
            raw = surplus.replace(b'"X"', b'"%b"' % value)
            # Where items are validated one by one, a NUL may be found only then.
            statuses = {200, 400} if path.endswith("/batch") else {400}
            statuses = {401} if path == VERIFIES_SENDER else statuses
            checker.expect(statuses, f"{what} in a field nobody knows", method, path, raw=raw)
        text = {"Content-Type": "text/plain"}
        checker.expect({415}, "another type", method, path, body=good, headers=text)
        packed = {"Content-Encoding": "gzip"}
        checker.expect({415}, "compression", method, path, body=good, headers=packed)
    checker.end(at_least=200)


def test_every_body_has_a_limit(hub, operations, document):
    checker = RefusalChecker(hub, document)
    for method, path, _schema, good in bodies(operations, document):
        size = 8 * 1024 * KB if path.endswith("batch") else 512 * KB
        raw = json.dumps(good).encode()
        raw += b" " * (size + 1 - len(raw))
        checker.expect({400}, "a byte too much", method, path, raw=raw)
    checker.end(at_least=20)


def test_every_query_refuses_unknown_parameters(hub, operations, document):
    checker = RefusalChecker(hub, document)
    for method, path, operation in operations:
        if method != "GET" or path in ("/ui", "/ui/"):  # an issuer adds more to the UI's
            continue
        where = filled(path)
        parameters = [each for each in operation.get("parameters", ()) if each.get("in") == "query"]
        needed = {each["name"]: "x" for each in parameters if each["required"]}
        checker.expect({400}, "an unknown one", method, query_of(where, needed, "colour=red"))
        for parameter in parameters:
            name, schema = parameter["name"], parameter["schema"]
            others = {key: needed[key] for key in needed if key != name}
            wrong = list(TEXTS)
            if schema.get("type") == "integer":
                wrong += [each for each in LIMITS if each != "0" or schema.get("minimum", 1) > 0]
            for value in wrong:
                text = f"{name}={value.format(name=name)}"
                checker.expect({400}, text, method, query_of(where, others, text))
    checker.end(at_least=150)


def query_of(path, needed, more):
    return f"{path}?{'&'.join([*(f'{name}={value}' for name, value in needed.items()), more])}"


def test_every_id_in_a_path_must_exist(hub, operations, document):
    checker = RefusalChecker(hub, document)
    for method, path, operation in operations:
        if "{" not in path or (method, path) in MADE_BY_NAME:
            continue
        media = operation.get("requestBody", {}).get("content", {}).get("application/json")
        kinds = variants(media["schema"], document) if media else [None]
        for kind in kinds:
            body = None if kind is None else good_body(kind, document)
            unverified = method == "POST" and filled(path) == VERIFIES_SENDER
            status = 401 if unverified else 404
            checker.expect({status}, "an unknown id", method, filled(path), body=body)
            for value in ("a%00b", "%FF", "%ED%A0%80"):
                checker.expect({400}, value, method, filled(path, value), body=body)
    checker.end(at_least=30)


def test_every_keyed_route_refuses_invalid_keys(hub, operations, document):
    checker = RefusalChecker(hub, document)
    offered = {"$ref": "#/components/parameters/IdempotencyKey"}
    keyed = [
        operation_row
        for operation_row in operations
        if offered in operation_row[2].get("parameters", ())
    ]
    for method, path, _schema, good in bodies(keyed, document):
        for key in KEYS:
            headers = {"Idempotency-Key": key}
            checker.expect({400}, "a bad key", method, path, body=good, headers=headers)
    checker.end(at_least=50)


def test_every_route_refuses_unknown_tokens_and_methods(hub, operations, document):
    checker = RefusalChecker(hub, document)
    paths = {path: set() for _, path, _ in operations}
    for method, path, _ in operations:
        paths[path].add(method)
    for path, methods in paths.items():
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE"} - methods:
            checker.expect({405}, "another method", method, filled(path))
    stranger = {"Authorization": "Bearer " + "0" * 64}
    for method, path, operation in operations:
        if operation.get("security") != []:
            checker.expect({401}, "a wrong token", method, filled(path), headers=stranger)
    checker.end(at_least=200)


def test_every_route_needs_its_scope(hub, operations, document):
    checker = RefusalChecker(hub, document)
    tokens = {}
    for scope in ("jobs:read", "metrics:read"):
        issued = hub.http.post("/api/v1/tokens", {"name": f"every {scope}", "scopes": [scope]})
        tokens[scope] = {"Authorization": f"Bearer {issued.body['secret']}"}
    for method, path, operation in operations:
        scopes = freeze.SCOPE.findall(operation.get("description", ""))
        other = "metrics:read" if "jobs:read" in scopes else "jobs:read"
        if scopes and {} not in operation["security"]:
            checker.expect({403}, other, method, filled(path), headers=tokens[other])
    checker.end(at_least=60)


@pytest.mark.parametrize("route", sorted(ENDLESS))
def test_head_of_an_endless_stream_returns_without_one(hub, route):
    path = route.removeprefix("GET ").replace("{run_id}", "run_none")
    answer = hub.http("HEAD", path)
    assert answer.raw == b""
    assert answer.status in (200, 400, 404, 405)
