"""`POST /mcp` byte by byte: eras, versions, headers, statuses, and refused requests."""

from typing import Any

import pytest

from tests.support.servedhub import Answer, ServedHub

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
MODERN = "2026-07-28"
LEGACY = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]
SUPPORTED = [MODERN, *LEGACY]


class Wire:
    def __init__(self, hub: ServedHub) -> None:
        self.http = hub.connect()

    def post(self, message: Any = None, **more: Any) -> Answer:
        return self.http.post("/mcp", message, **more)

    def legacy(
        self, method: str, params: Any = None, version: str | None = "2025-11-25", **headers: str
    ) -> Answer:
        message = {"jsonrpc": "2.0", "id": 1, "method": method}
        if params is not None:
            message["params"] = params
        sent = {"MCP-Protocol-Version": version} if version else {}
        return self.post(message, headers={**sent, **headers})

    def modern(
        self, method: str, params: Any = None, meta: Any = None, **headers: str | None
    ) -> Answer:
        meta = {VERSION: MODERN, CAPABILITIES: {}} if meta is None else meta
        params = {**(params or {}), "_meta": meta}
        sent: dict[str, str | None] = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
        name = params.get("name", params.get("uri"))
        if isinstance(name, str):
            sent["Mcp-Name"] = name
        sent |= {key.replace("_", "-"): value for key, value in headers.items()}
        kept = {key: value for key, value in sent.items() if value is not None}
        message = {"jsonrpc": "2.0", "id": "a", "method": method, "params": params}
        return self.post(message, headers=kept)


@pytest.fixture
def wire(hub: ServedHub) -> Wire:
    return Wire(hub)


def code_of(answer: Answer) -> int:
    assert answer.headers["content-type"] == "application/json"
    assert answer.body["jsonrpc"] == "2.0"
    return int(answer.body["error"]["code"])


# -- the modern era ------------------------------------------------------------------------


def test_discovery_returns_versions_capabilities_and_server_info(wire: Wire) -> None:
    answer = wire.modern("server/discover")
    assert answer.status == 200
    result = answer.body["result"]
    assert answer.body["id"] == "a"
    assert result["resultType"] == "complete"
    assert result["supportedVersions"] == SUPPORTED
    extensions = {"io.modelcontextprotocol/tasks": {}}
    assert result["capabilities"] == {"tools": {}, "extensions": extensions}
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "agentlip"
    assert isinstance(result["ttlMs"], int)
    assert result["cacheScope"] == "public"
    assert "mcp-session-id" not in answer.headers


@pytest.mark.parametrize(
    "meta",
    [{}, {VERSION: MODERN}, {CAPABILITIES: {}}, {VERSION: 1, CAPABILITIES: {}},
     {VERSION: MODERN, CAPABILITIES: None}, "text", None],
)  # fmt: skip
def test_request_without_required_meta_is_refused(wire: Wire, meta: Any) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/list"}
    answer = wire.post(message, headers=headers)
    assert (answer.status, code_of(answer), answer.body["id"]) == (400, -32602, 1)


@pytest.mark.parametrize(
    "headers",
    [
        {"MCP-Protocol-Version": None},
        {"MCP-Protocol-Version": "2025-11-25"},
        {"Mcp-Method": None},
        {"Mcp-Method": "tools/list"},
        {"Mcp-Method": "TOOLS/CALL"},
        {"Mcp-Name": None},
        {"Mcp-Name": "list_channels"},
        {"Mcp-Name": "=?base64?!!!?="},
    ],
)
def test_headers_that_contradict_the_body_are_refused(
    wire: Wire, headers: dict[str, str | None]
) -> None:
    answer = wire.modern("tools/call", {"name": "status"}, **headers)
    assert (answer.status, code_of(answer)) == (400, -32020)


def test_unsupported_version_is_refused(wire: Wire) -> None:
    meta = {VERSION: "1900-01-01", CAPABILITIES: {}}
    answer = wire.modern("tools/list", meta=meta, MCP_Protocol_Version="1900-01-01")
    assert (answer.status, code_of(answer)) == (400, -32022)
    assert answer.body["error"]["data"] == {"supported": SUPPORTED, "requested": "1900-01-01"}


@pytest.mark.parametrize("method", ["no/such", "initialize", "ping", "subscriptions/listen"])
def test_unknown_method_is_refused(wire: Wire, method: str) -> None:
    answer = wire.modern(method)
    assert (answer.status, code_of(answer)) == (404, -32601)


@pytest.mark.parametrize(
    "params",
    [{}, {"name": 1}, {"name": "status", "arguments": []}, {"name": "status", "arguments": "x"},
     {"name": "no_such_tool"}],
)  # fmt: skip
def test_invalid_tool_call_is_refused(wire: Wire, params: Any) -> None:
    answer = wire.modern("tools/call", params)
    assert (answer.status, code_of(answer)) == (400, -32602)


# -- the legacy era ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requested", "agreed"),
    [*zip(LEGACY, LEGACY, strict=True), ("2099-01-01", "2025-11-25"), (None, "2025-11-25")],
)
def test_handshake_agrees_on_a_version(wire: Wire, requested: str | None, agreed: str) -> None:
    params = {"protocolVersion": requested, "capabilities": {}, "clientInfo": {"name": "t"}}
    answer = wire.legacy("initialize", params, version=None)
    result = answer.body["result"]
    assert result["protocolVersion"] == agreed
    assert result["serverInfo"]["name"] == "agentlip"
    assert {"tools": {}}.items() <= result["capabilities"].items()
    assert "resultType" not in result
    assert "mcp-session-id" not in answer.headers


@pytest.mark.parametrize("version", [*LEGACY, None])
def test_requests_need_no_session(wire: Wire, version: str | None) -> None:
    result = wire.legacy("tools/list", version=version, **{"Mcp-Session-Id": "x"}).body["result"]
    assert set(result) == {"tools"}
    assert wire.legacy("ping", version=version).body["result"] == {}


@pytest.mark.parametrize("version", ["2024-10-07", "nonsense"])
def test_unsupported_legacy_version_is_refused(wire: Wire, version: str) -> None:
    answer = wire.legacy("tools/list", version=version)
    assert (answer.status, code_of(answer)) == (400, -32022)
    assert answer.body["error"]["data"]["supported"] == SUPPORTED


def test_errors_of_legacy_requests_have_status_200(wire: Wire) -> None:
    for method, params, code in (
        ("no/such", None, -32601),
        ("server/discover", None, -32601),
        ("tools/call", {"name": "no_such_tool"}, -32602),
        ("resources/read", {"uri": "file:///etc/passwd"}, -32601),
    ):
        answer = wire.legacy(method, params)
        assert (answer.status, code_of(answer)) == (200, code)


# -- both ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"{", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"} x', -32700),
        (b'{"a":' + b"[" * 5000, -32700),
        (b"[]", -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
        (b"{}", -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', -32602),
    ],
)
def test_body_must_be_a_single_message(wire: Wire, raw: bytes, code: int) -> None:
    answer = wire.post(raw=raw)
    assert (answer.status, code_of(answer)) == (400, code)


def test_notification_is_accepted_without_a_response(wire: Wire) -> None:
    for version in (*SUPPORTED, ""):
        message = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        answer = wire.post(message, headers={"MCP-Protocol-Version": version})
        assert (answer.status, answer.raw) == (202, b"")
    answer = wire.post(message, headers={"MCP-Protocol-Version": "1900-01-01"})
    assert (answer.status, code_of(answer)) == (400, -32022)


def test_host_and_token_checks_apply(hub: ServedHub, wire: Wire) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    foreign = {"Origin": "https://evil.example"}
    assert wire.post(message, headers=foreign).body["code"] == "ORIGIN_REFUSED"
    assert wire.post(message, headers={"Host": "evil.example"}).status == 421
    assert wire.post(message, headers={"Authorization": "Bearer wrong"}).status == 401
    assert wire.post(message, headers={"Content-Type": "text/plain"}).status == 415
    assert wire.post(raw=b"x" * (512 * 1024 + 1)).body["code"] == "PAYLOAD_TOO_LARGE"
    assert (
        hub.connect(None).post("/mcp", message, headers={"X-Forwarded-For": "1.2.3.4"}).status
        == 401
    )
