"""Reads and writes MCP over JSON-RPC in single POSTs, both eras. Pure: bytes and header values
in, bytes out.

    modern  2026-07-28: every request carries its version and capabilities in `params._meta`,
            and headers that repeat them
    legacy  2025-11-25 and before: `initialize` first; the server keeps no state from it

Source: modelcontextprotocol.io, specification of these dates, "Streamable HTTP".
"""

import base64
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

MODERN = ("2026-07-28",)
LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
WITH_TASKS = "2025-11-25"  # the legacy version in which a client may ask for a task
SUPPORTED = (*MODERN, *LEGACY)

PATH = "/mcp"

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

Fields = dict[str, Raw]
RequestId = str | int


class Headers(Struct, frozen=True):
    """The three headers that repeat body values."""

    version: str | None = None
    method: str | None = None
    name: str | None = None


class Capabilities(Struct, frozen=True):
    extensions: dict[str, Any] = {}


class RequestMeta(Struct, frozen=True):
    """`params._meta`, which requests of the modern era must have."""

    version: str | None = field(name=VERSION_KEY, default=None)
    capabilities: Capabilities | None = field(name=CAPABILITIES_KEY, default=None)


class RpcMessage(Struct, frozen=True):
    """The body of a POST. Without an id it is a notification."""

    jsonrpc: Literal["2.0"]
    method: Annotated[str, Meta(min_length=1)]
    id: RequestId | UnsetType = UNSET
    params: Raw = Raw(b"{}")


class RpcRequest(Struct, frozen=True):
    """A valid request."""

    id: RequestId
    method: str
    params: Fields
    meta: RequestMeta
    version: str

    @property
    def modern(self) -> bool:
        return self.version in MODERN


_encode = msgspec.json.Encoder().encode
_message = msgspec.json.Decoder(RpcMessage).decode


class Refusal(Exception):
    """A JSON-RPC error and its HTTP status, which only modern clients use."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.request_id: RequestId | None = None
        self.status = 404 if code == METHOD_NOT_FOUND else 400


def read(raw: bytes, headers: Headers) -> RpcRequest | None:
    """Return the request in a POST; None for a notification. Raises Refusal."""
    try:
        message = _message(raw)
    except msgspec.ValidationError as error:
        sentence = f"the body must be one JSON-RPC request or notification: {error}"
        raise Refusal(INVALID_REQUEST, sentence) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise Refusal(PARSE_ERROR, "the body is not valid JSON") from None
    if isinstance(message.id, UnsetType):
        if headers.version is not None and headers.version not in SUPPORTED:
            raise _version_refusal(headers.version)
        return None
    try:
        params: Fields = _decode(message.params, Fields, "params")
        meta = parameter(params, "_meta", RequestMeta | None) or RequestMeta()
        version = _version(message.method, params, meta, headers)
    except Refusal as refusal:
        refusal.request_id = message.id
        raise
    return RpcRequest(message.id, message.method, params, meta, version)


def parameter(params: Fields, name: str, kind: Any) -> Any:
    """Return the parameter with this name; None if it is missing. Raises Refusal for another
    type."""
    return _decode(params[name], kind, f"params.{name}") if name in params else None


def has_extension(request: RpcRequest, name: str) -> bool:
    """Return whether a modern request's client supports the extension."""
    capabilities = request.meta.capabilities if request.modern else None
    return capabilities is not None and name in capabilities.extensions


def answer(request: RpcRequest, result: dict[str, Any], server: dict[str, Any]) -> bytes:
    """Return a successful response's bytes. In the modern era each result names the server."""
    if request.modern:
        result = {"resultType": "complete", **result, "_meta": {SERVER_KEY: server}}
    return _encode({"jsonrpc": "2.0", "id": request.id, "result": result})


def refuse(refusal: Refusal) -> bytes:
    error: dict[str, Any] = {"code": refusal.code, "message": refusal.message}
    if refusal.data is not None:
        error["data"] = refusal.data
    return _encode({"jsonrpc": "2.0", "id": refusal.request_id, "error": error})


def negotiate(request: RpcRequest) -> str:
    """Return the version for the `initialize` response: the requested one, or else the newest."""
    requested: str | None = parameter(request.params, "protocolVersion", str | None)
    return requested if requested in LEGACY else LEGACY[0]


# -- steps to read a request -------------------------------------------------------------------


def _decode(raw: Raw, kind: Any, what: str) -> Any:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Refusal(INVALID_PARAMS, f"{what}: {error}") from None


def _version(method: str, params: Fields, meta: RequestMeta, headers: Headers) -> str:
    """Return the protocol version. Errors are checked in the specification's order."""
    if meta.version is None and headers.version not in MODERN:
        return _legacy_version(method, headers.version)
    if meta.version is None or meta.capabilities is None:
        raise Refusal(
            INVALID_PARAMS, f"params._meta must carry {VERSION_KEY} and {CAPABILITIES_KEY}"
        )
    _compare("MCP-Protocol-Version", headers.version, meta.version)
    _compare("Mcp-Method", headers.method, method)
    if method in NAMED_BY:
        _compare("Mcp-Name", _decode_name(headers.name), parameter(params, NAMED_BY[method], str))
    if meta.version not in MODERN:
        raise _version_refusal(meta.version)
    return meta.version


def _legacy_version(method: str, version: str | None) -> str:
    if version in LEGACY:
        return version
    if version is None or method == "initialize":
        return LEGACY[0]  # before the handshake, or from clients that never send one
    raise _version_refusal(version)


def _compare(header: str, given: str | None, body: str | None) -> None:
    if given != body:
        raise Refusal(HEADER_MISMATCH, f"the {header} header doesn't match the body")


def _version_refusal(version: str) -> Refusal:
    data = {"supported": list(SUPPORTED), "requested": version[:100]}
    return Refusal(UNSUPPORTED_VERSION, "Unsupported protocol version", data)


def _decode_name(header: str | None) -> str | None:
    """Return a header's value; values that headers can't carry arrive as `=?base64?…?=`."""
    if header is None or not (header.startswith("=?base64?") and header.endswith("?=")):
        return header
    try:
        return base64.b64decode(header[9:-2], validate=True).decode()
    except ValueError:
        return None
