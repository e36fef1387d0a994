"""Records each request whose operation is `audited`.

The intent is on the disk before the operation runs, and the outcome before the response is sent.
Requests without any valid credential are only logged, even where no token is needed, such as a
purge of an open stream from this machine, so that records can't be displaced.

The state before and after the act is the reply to GET for its path, or for the nearest path above
that has GET. In a list, the state is the row that the act names.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from types import SimpleNamespace
from typing import Any

import msgspec

from appliance.audit.log.record import Phase
from appliance.audit.log.trail import AuditTrail
from appliance.kernel.auth import ADMIN, ANONYMOUS, Principal
from appliance.kernel.errors import ApplianceError
from appliance.kernel.log import Log
from appliance.kernel.route import Route, responder_name
from appliance.web.body import QueryPlan
from appliance.web.observe import Response

_READER = Principal("appliance:audit", "the audit log", frozenset({ADMIN}))
_decode = msgspec.json.Decoder().decode


class StateReader:
    """A reader for an act's subject, through the operations that serve clients."""

    def __init__(self, routes: Sequence[Route]) -> None:
        json = "application/json"
        self._routes = {
            route.path: route
            for route in routes
            if "GET" in route.operations and route.operations["GET"].media == json
        }

    def read(self, req: Any, params: Mapping[str, str], command: Mapping[str, Any]) -> Any:
        """Return the state; None without such an operation, or if there is nothing. `params`
        come from the act's path, `command` from its body."""
        path = template = req.uri_template or ""
        while path and path not in self._routes:
            path = path.rpartition("/")[0]
        given = {name: value for name, value in params.items() if f"{{{name}}}" in path}
        is_item = given == params and params and (path != template or req.method != "POST")
        named = [value for name, value in params.items() if name not in given]
        named = named or [value for value in command.values() if isinstance(value, str)]
        if not path or not (is_item or named):
            return None
        state = self._get(req, self._routes[path], given)
        return state if is_item or state is None else row_of(state, named)

    def _get(self, req: Any, route: Route, params: Mapping[str, str]) -> Any:
        inner, resp = copy(req), Response()
        query = QueryPlan(route.operations["GET"].query).parse("")
        inner.context = SimpleNamespace(principal=_READER, query=query, method="GET")
        try:
            getattr(route.resource, responder_name("GET", route.suffix))(inner, resp, **params)
        except ApplianceError:
            return None
        return _decode(resp.data) if resp.data else None


def row_of(state: Any, named: Sequence[str]) -> Any:
    """Return the row in `state`'s lists with most of these values in its fields, the newest one;
    None: no row."""
    lists = [value for value in state.values() if isinstance(value, list)]
    rows = [row for rows in lists for row in reversed(rows) if isinstance(row, dict)]
    best = max(rows, key=lambda row: _count_named(row, named), default={})
    return best if _count_named(best, named) else None


def _count_named(row: Mapping[str, Any], named: Sequence[str]) -> int:
    return sum(value in named for value in row.values())


class AuditMiddleware:
    def __init__(self, trail: AuditTrail, routes: Sequence[Route], log: Log) -> None:
        self._trail = trail
        self._log = log
        self._states = StateReader(routes)

    def process_resource(
        self, req: Any, _resp: Response, _resource: object, params: dict[str, Any]
    ) -> None:
        context = req.context
        context.trail = self._trail
        mounted = getattr(context, "mounted", None)  # None for OPTIONS
        if mounted is None or not mounted.operation.audited:
            return
        if context.principal is ANONYMOUS:
            credential = mounted.operation.credential
            if credential is None or not credential(**params):
                self._log.info(
                    "an act without a token", method=context.method, route=req.uri_template,
                    address=context.address, **context.ids,
                )  # fmt: skip
                return
        path = {name: value for name, value in params.items() if name != "command"}
        command = msgspec.to_builtins(params.get("command"), enc_hook=str)
        context.about = path, command if isinstance(command, dict) else {}
        context.act = self._trail.begin(
            f"{context.method} {req.uri_template}", context.principal.id, "http", path=path,
            request=command, before=self._states.read(req, *context.about),
            name=context.principal.name, address=context.address, request_id=context.request_id,
        )  # fmt: skip

    def process_response(
        self, req: Any, resp: Response, _resource: object, _succeeded: bool
    ) -> None:
        context = req.context
        act = getattr(context, "act", None)
        if act is None:
            return
        context.act = None
        status = int(str(resp.status)[:3])
        phase: Phase = "done" if status < 400 else "failed" if status == 500 else "refused"
        is_json = resp.data and (resp.content_type or "json").endswith("json")
        self._trail.end(
            act, phase, status=status, reply=_decode(resp.data or b"") if is_json else None,
            after=self._states.read(req, *context.about) if phase == "done" else None,
        )  # fmt: skip
