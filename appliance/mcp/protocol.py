"""MCP over JSON-RPC in single POSTs, both eras. Pure: bytes and header values in, bytes out.

    modern  2026-07-28: every request carries its version and capabilities in `params._meta`,
            and headers that repeat them
    legacy  2025-11-25, 2025-06-18: `initialize` first; the server keeps no state of it

Source: modelcontextprotocol.io, specification of these dates, "Streamable HTTP".
"""

import base64
import binascii
from typing import Any

import msgspec

MODERN = ("2026-07-28",)
LEGACY = ("2025-11-25", "2025-06-18")
WITH_TASKS = "2025-11-25"  # the legacy version in which a client may ask for a task
SUPPORTED = (*MODERN, *LEGACY)

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
SERVER_KEY = "io.modelcontextprotocol/serverInfo"
NAMED_BY = {
    "tools/call": "name", "prompts/get": "name", "resources/read": "uri",
    "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId",
}  # fmt: skip

# Modern clients use the HTTP status; legacy clients only the body.
STATUS = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}

Fields = dict[str, msgspec.Raw]
RequestId = str | int

_encode = msgspec.json.Encoder().encode
_fields = msgspec.json.Decoder(Fields).decode
_anything = msgspec.json.Decoder().decode


class Headers(msgspec.Struct, frozen=True):
    """The three headers that repeat values of the body."""

    version: str | None = None
    method: str | None = None
    name: str | None = None


class RpcRequest(msgspec.Struct, frozen=True):
    """A valid request."""

    id: RequestId
    method: str
    params: Fields
    version: str

    @property
    def modern(self) -> bool:
        return self.version in MODERN


class Refusal(Exception):
    """A JSON-RPC error and its HTTP status."""

    def __init__(
        self,
        code: int,
        message: str,
        data: Any = None,
        *,
        request_id: RequestId | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.request_id = request_id
        self.status = status or STATUS.get(code, 200)


def read(raw: bytes, headers: Headers) -> RpcRequest | None:
    """The request in a POST; None for a notification. Raises Refusal."""
    fields = _object(raw)
    method = _text(fields.get("method"))
    if _text(fields.get("jsonrpc")) != "2.0" or not method:
        raise Refusal(INVALID_REQUEST, "the body must be one JSON-RPC request or notification")
    if "id" not in fields:
        if headers.version is not None and headers.version not in SUPPORTED:
            raise _unsupported(headers.version)
        return None
    request_id = _value(fields["id"])
    if not isinstance(request_id, str | int) or isinstance(request_id, bool):
        raise Refusal(INVALID_REQUEST, "id must be a string or an integer")
    try:
        params = _params(fields)
        version = _version(method, params, headers)
    except Refusal as refusal:
        refusal.request_id = request_id
        raise
    return RpcRequest(request_id, method, params, version)


def text_of(request: RpcRequest, name: str) -> str:
    """A parameter that must be a string."""
    value = _text(request.params.get(name))
    if value is None:
        raise Refusal(INVALID_PARAMS, f"params.{name} must be a string")
    return value


def value_of(request: RpcRequest, name: str) -> Any:
    """A parameter; None if it is missing or malformed."""
    return _value(request.params[name]) if name in request.params else None


def object_of(request: RpcRequest, name: str) -> msgspec.Raw:
    """An object parameter, undecoded; empty if it is missing or null."""
    given = request.params.get(name, msgspec.Raw(b"{}"))
    kind = bytes(given)[:1]
    if kind == b"n":
        return msgspec.Raw(b"{}")
    if kind != b"{":
        raise Refusal(INVALID_PARAMS, f"params.{name} must be an object")
    return given


def has_extension(request: RpcRequest, name: str) -> bool:
    """Whether the client of a modern request supports the extension."""
    capabilities = _value(request.params["_meta"])[CAPABILITIES_KEY] if request.modern else {}
    extensions = capabilities.get("extensions")
    return isinstance(extensions, dict) and name in extensions


def answer(request: RpcRequest, result: dict[str, Any], server: dict[str, Any]) -> bytes:
    """The bytes of a successful response. In the modern era each result names the server."""
    if request.modern:
        result = {"resultType": "complete", **result, "_meta": {SERVER_KEY: server}}
    return _encode({"jsonrpc": "2.0", "id": request.id, "result": result})


def refuse(refusal: Refusal) -> bytes:
    error: dict[str, Any] = {"code": refusal.code, "message": refusal.message}
    if refusal.data is not None:
        error["data"] = refusal.data
    return _encode({"jsonrpc": "2.0", "id": refusal.request_id, "error": error})


def negotiate(request: RpcRequest) -> str:
    """The version in the response to `initialize`: the requested one, or else the newest."""
    requested = _text(request.params.get("protocolVersion"))
    return requested if requested in LEGACY else LEGACY[0]


# -- steps of reading a request ----------------------------------------------------------------


def _object(raw: bytes) -> Fields:
    try:
        return _fields(raw)
    except msgspec.ValidationError:
        raise Refusal(
            INVALID_REQUEST, "the body must be one JSON object: batches are not part of MCP"
        ) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise Refusal(PARSE_ERROR, "the body is not valid JSON") from None


def _params(fields: Fields) -> Fields:
    if "params" not in fields:
        return {}
    try:
        return _fields(fields["params"])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise Refusal(INVALID_PARAMS, "params must be an object") from None


def _version(method: str, params: Fields, headers: Headers) -> str:
    """The protocol version. Errors are checked in the order of the specification."""
    meta = _value(params["_meta"]) if "_meta" in params else None
    if not isinstance(meta, dict) or VERSION_KEY not in meta:
        return _legacy_version(method, headers.version)
    version = meta[VERSION_KEY]
    if not isinstance(version, str) or not isinstance(meta.get(CAPABILITIES_KEY), dict):
        raise Refusal(
            INVALID_PARAMS, f"params._meta must carry {VERSION_KEY} and {CAPABILITIES_KEY}"
        )
    _compare("MCP-Protocol-Version", headers.version, version)
    _compare("Mcp-Method", headers.method, method)
    named_by = NAMED_BY.get(method)
    name = None if named_by is None else _text(params.get(named_by))
    if name is not None:
        _compare("Mcp-Name", _decode(headers.name), name)
    if version not in MODERN:
        raise _unsupported(version)
    return version


def _legacy_version(method: str, version: str | None) -> str:
    if version in MODERN:
        raise Refusal(
            INVALID_PARAMS, f"params._meta must carry {VERSION_KEY} and {CAPABILITIES_KEY}"
        )
    if version is None:  # before the handshake, or from clients that never send it
        return LEGACY[0]
    if version not in LEGACY and method != "initialize":
        raise _unsupported(version)
    return version if version in LEGACY else LEGACY[0]


def _compare(header: str, given: str | None, body: str) -> None:
    if given != body:
        raise Refusal(HEADER_MISMATCH, f"the {header} header doesn't match the body")


def _unsupported(version: str) -> Refusal:
    data = {"supported": list(SUPPORTED), "requested": version[:100]}
    return Refusal(UNSUPPORTED_VERSION, "Unsupported protocol version", data)


def _decode(header: str | None) -> str | None:
    """A header's value; values that headers can't carry arrive as `=?base64?…?=`."""
    if header is None or not (header.startswith("=?base64?") and header.endswith("?=")):
        return header
    try:
        return base64.b64decode(header[9:-2], validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def _text(raw: msgspec.Raw | None) -> str | None:
    value = None if raw is None else _value(raw)
    return value if isinstance(value, str) else None


def _value(raw: msgspec.Raw) -> Any:
    try:
        return _anything(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
