"""Serves the start page: browsers go on to the web UI, and programs get the appliance's links."""

from typing import Any

import falcon

import appliance
from appliance.kernel.route import READ_DOCS, Operation, Route
from appliance.web.media import reply
from appliance.web.responders import Responders

UI = "ui/"  # relative, so that a redirect is right below any path
LINKS = {
    "health": "/health",
    "healthy": "/-/healthy",
    "ready": "/-/ready",
    "metrics": "/metrics",
    "openapi": "/api/v1/openapi.json",
    "ui": "/ui/",
}
WELCOME = {
    "name": "agentlip",
    "version": appliance.__version__,
    "token": "send 'Authorization: Bearer TOKEN'; the token is in .agentlip/token",
}


def routes() -> list[Route]:
    operation = Operation(
        READ_DOCS, "Links; browsers are redirected to the web UI", reply=dict[str, Any],
        repeat_status=303,
    )  # fmt: skip
    return [Route("/", Responders(get=_welcome), {"GET": operation})]


def _welcome(req: Any, resp: falcon.Response) -> None:
    resp.set_header("Vary", "Accept")
    if "text/html" in req.accept:
        resp.status = falcon.HTTP_303
        resp.location = UI
    else:
        links = {name: req.context.prefix + path for name, path in LINKS.items()}
        reply(resp, WELCOME | {"links": links})
