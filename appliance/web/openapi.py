"""The OpenAPI 3.1 document, generated from the mounted routes."""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import falcon
import msgspec

import appliance
from appliance.kernel.pauses import Paused
from appliance.kernel.route import PARAMETER_PATTERN, READ_DOCS, Operation, Route
from appliance.web.guard import FREE_ON_LOOPBACK
from appliance.web.media import reply_bytes
from appliance.web.responders import Responders

PATH = "/api/v1/openapi.json"
_REF = "#/components/schemas/{name}"
_FIELD = re.compile(r"{(\w+)(?::[^}]*)?}")


class Failure(msgspec.Struct, frozen=True):
    """A failed request's body. Some errors add keys."""

    error: str
    code: str
    details: dict[str, Any]
    hint: str
    request_id: str


_FAILURES = {
    400: "The request is invalid; `details.field` names the field (INVALID_INPUT, "
    "PAYLOAD_TOO_LARGE, TOKEN_IN_QUERY)",
    401: "Missing or invalid token (UNAUTHORIZED)",
    403: "The token lacks the scope, or the origin is not allowed (FORBIDDEN, ORIGIN_REFUSED)",
    404: "The resource does not exist (NOT_FOUND)",
    405: "The route does not support the method; see Allow (METHOD_NOT_ALLOWED)",
    409: "The resource is in another state than expected (CONFLICT and others)",
    410: "The route is not served any more (V1_GONE)",
    414: "The path with its query is too long (INVALID_INPUT)",
    415: "The body is not JSON (UNSUPPORTED_MEDIA_TYPE)",
    416: "The range is outside the content; Content-Range has its size (RANGE_NOT_SATISFIABLE)",
    421: "The Host header names an unknown host (HOST_REFUSED)",
    422: "The idempotency key was used with another body",
    429: "A rate limit has been reached; see Retry-After (RATE_LIMITED)",
    500: "Internal error; quote the request_id in a report (INTERNAL_ERROR)",
    502: "Another server that is needed for the request failed (see code)",
    503: "Temporarily unavailable; see Retry-After (SERVICE_UNAVAILABLE)",
    507: "A storage limit has been reached; see Retry-After (INSUFFICIENT_STORAGE)",
}
_ALWAYS = (400, 401, 403, 404, 405, 414, 421, 429, 500, 503)
_WITH_BODY = (409, 415, 422)


def routes(described: Sequence[Route], free: frozenset[str] = FREE_ON_LOOPBACK) -> list[Route]:
    """Return the document's route, which describes itself too. `free`: scopes that need no token
    on a loopback bind."""
    operation = Operation(READ_DOCS, "This document", reply=dict[str, Any])
    own = Route(PATH, None, {"GET": operation})

    @cache  # made for the first reader, because making it takes a tenth of a start
    def text() -> bytes:
        made = document([*described, own], free)
        return msgspec.json.format(msgspec.json.encode(made), indent=1)

    def respond(req: Any, resp: falcon.Response) -> None:
        server = b'"url": "%s"' % (req.context.prefix or "/").encode()
        reply_bytes(resp, text().replace(b'"url": "/"', server, 1))

    return [Route(PATH, Responders(get=respond), own.operations)]


def document(described: Sequence[Route], free: frozenset[str] = FREE_ON_LOOPBACK) -> dict[str, Any]:
    operations = [o for route in described for o in route.operations.values()]
    queries = [operation.query for operation in operations if operation.query is not None]
    kinds = [Failure, *queries]
    for operation in operations:
        kinds += [kind for kind in (operation.body, *_replies(operation)) if kind is not None]
    types = list({_key(kind): kind for kind in kinds}.values())
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    by_type = dict(zip(map(_key, types), schemas, strict=True))
    paths: dict[str, Any] = {}
    for route in described:
        item = paths.setdefault(_FIELD.sub(r"{\1}", route.path), {})
        for method, operation in route.operations.items():
            description = _operation(route, method, operation, by_type, components)
            if operation.scope in free:
                description["security"] = [{"bearer": []}, {}]
                description["description"] = f"Scope `{operation.scope}`; free on a loopback bind."
            item[method.lower()] = description
    for kind in queries:
        components.pop(kind.__name__, None)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Agentlip Appliance",
            "version": appliance.__version__,
            "summary": "Durable coordination for AI agents",
            "description": "Timestamps are UTC in ISO 8601. Every reply carries X-Request-ID.",
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {str(status): _failure(status) for status in _FAILURES},
            "parameters": {"IdempotencyKey": _KEY_PARAMETER},
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The content of .agentlip/token",
                }
            },
        },
    }


_KEY_PARAMETER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "A request with the same key and body gets the first reply again",
    "schema": {"type": "string", "pattern": "^[\\x21\\x23-\\x7e]{1,255}$"},
}


def _operation(
    route: Route,
    method: str,
    operation: Operation,
    by_type: dict[Any, dict[str, Any]],
    components: dict[str, Any],
) -> dict[str, Any]:
    parameters = [_path_parameter(name) for name in _FIELD.findall(route.path)]
    if operation.query is not None:
        parameters += _query_parameters(components[operation.query.__name__])
    if operation.keyed:
        parameters.append({"$ref": "#/components/parameters/IdempotencyKey"})
    description: dict[str, Any] = {
        "operationId": _operation_id(route, method),
        "summary": operation.summary,
        "tags": [(operation.scope or "open").partition(":")[0]],
        "responses": _responses(operation, by_type),
    }
    if parameters:
        description["parameters"] = parameters
    if operation.scope is None:
        description["security"] = []
    else:
        description["security"] = [{"bearer": []}]
        signed = "" if operation.signer is None else ", or a signature instead of a token"
        scopes = " or ".join(f"`{scope}`" for scope in operation.scopes)
        description["description"] = f"Scope {scopes}{signed}."
    if operation.body is not None:
        media: dict[str, Any] = {"schema": by_type[_key(operation.body)]}
        if operation.example is not None:
            media["example"] = operation.example
        description["requestBody"] = {"required": True, "content": {"application/json": media}}
    if operation.upload:
        media = {"schema": {"type": "string", "format": "binary"}}
        description["requestBody"] = {"content": {"*/*": media}}
    return description


def _responses(operation: Operation, by_type: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    success: dict[str, Any] = {"description": "Success", "headers": _HEADERS}
    if operation.reply is not None:
        schemas = [by_type[_key(kind)] for kind in _replies(operation)]
        schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
        success["content"] = {operation.media: {"schema": schema}}
    elif operation.media != "application/json":
        success["content"] = {operation.media: {"schema": {"type": "string"}}}
    answers = {str(operation.status): success}
    if operation.repeat_status is not None:
        answers[str(operation.repeat_status)] = success
    statuses = set(_ALWAYS)
    if operation.body is not None:
        statuses |= set(_WITH_BODY)
    for kind in (*operation.errors, *((Paused,) if operation.bounded else ())):
        statuses.add(kind.status)
    for status in sorted(statuses):
        name = str(status)
        answers[name] = {"$ref": f"#/components/responses/{name}"}
    if operation.probe:
        answers["503"] = {"description": "Not ready", "content": success.get("content", {})}
    return answers


def _failure(status: int) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": _REF.format(name="Failure")}}}
    return {"description": _FAILURES[status], "content": content}


_HEADERS = {
    "X-Request-ID": {"schema": {"type": "string"}},
    "X-Instance-ID": {"schema": {"type": "string"}},
}


def _path_parameter(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "schema": {"type": "string", "pattern": PARAMETER_PATTERN},
    }


def _query_parameters(struct: dict[str, Any]) -> Iterable[dict[str, Any]]:
    required = set(struct.get("required", ()))
    for name, schema in struct["properties"].items():
        schema = dict(schema)
        parameter = {"name": name, "in": "query", "required": name in required, "schema": schema}
        if "description" in schema:
            parameter["description"] = schema.pop("description")
        if "anyOf" in schema:  # a query can't contain null
            kinds = [kind for kind in schema.pop("anyOf") if kind != {"type": "null"}]
            schema.update(kinds[0] if len(kinds) == 1 else {"anyOf": kinds})
            if schema.get("default", ...) is None:
                del schema["default"]
        yield parameter


def _operation_id(route: Route, method: str) -> str:
    words = re.findall(r"[A-Za-z0-9]+", route.path)
    if route.path.endswith("/"):
        words.append("index")  # /ui and /ui/ are two operations
    return "_".join([method.lower(), *words])


def _replies(operation: Operation) -> tuple[Any, ...]:
    return operation.reply if isinstance(operation.reply, tuple) else (operation.reply,)


def _key(kind: Any) -> Any:
    """Return a key for a type. Generic types are compared as text, because each `list[int]` is
    another object."""
    return kind if isinstance(kind, type) else str(kind)
