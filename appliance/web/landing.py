"""The start page `/`, and `/docs`, a page with all routes.

Both need no script and load no other resources. `/` shows the address of the request.
"""

import base64
import hashlib
import html
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import falcon

import appliance
from appliance.kernel.route import READ_DOCS, Operation, Route
from appliance.web.guard import Guard
from appliance.web.media import reply, reply_bytes
from appliance.web.responders import Responders

HTML = "text/html; charset=utf-8"
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)

LINKS = {
    "health": "/health",
    "healthy": "/-/healthy",
    "ready": "/-/ready",
    "metrics": "/metrics",
    "openapi": "/api/v1/openapi.json",
    "docs": "/docs",
}


WELCOME = {
    "name": "agentlip",
    "version": appliance.__version__,
    "links": LINKS,
    "token": "send 'Authorization: Bearer TOKEN'; the token is in .agentlip/token",
}
"""The start page for programs, without the address."""
# A host and port. Anything else is not shown.
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:[0-9]{1,5})?")


class Page:
    """An HTML page whose policy allows only its own style."""

    def __init__(self, text: str) -> None:
        self.data = text.encode()
        style = _STYLE.search(text)
        digest = hashlib.sha256((style[1] if style else "").encode()).digest()
        self.policy = (
            f"default-src 'none'; style-src 'sha256-{base64.b64encode(digest).decode()}'; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )

    def answer(self, resp: falcon.Response, words: Mapping[str, str] | None = None) -> None:
        """Send the page. Each name in `words` is replaced by its text, escaped."""
        data = self.data
        for name, text in (words or {}).items():
            data = data.replace(name.encode(), html.escape(text).encode())
        reply_bytes(resp, data, media=HTML)
        resp.set_header("Content-Security-Policy", self.policy)


class Landing:
    """HTML for people, and JSON for programs that accept JSON."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._page = Page(_template().replace("{{version}}", appliance.__version__))

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        resp.set_header("Vary", "Accept")
        origin = self._origin(req.env)
        if req.client_prefers(("text/html", "application/json")) == "application/json":
            reply(resp, {**WELCOME, "address": origin})
        else:
            socket = "ws" + origin.removeprefix("http")
            self._page.answer(resp, {"{{origin}}": origin, "{{socket}}": socket})

    def _origin(self, environ: dict[str, Any]) -> str:
        """The address of this appliance as the client wrote it."""
        host = environ.get("HTTP_HOST", "")
        if not _HOST.fullmatch(host):
            port = environ.get("SERVER_PORT", "")
            host = f"localhost:{port}" if port.isdecimal() else "localhost"
        return f"{self._guard.scheme(environ)}://{host}"


def _reference(routes: Sequence[Route]) -> Page:
    """All routes with their scopes, as a table."""
    rows = "".join(
        _row(route.path, method, operation)
        for route in routes
        for method, operation in sorted(route.operations.items())
    )
    text = _template().replace("{{version}}", appliance.__version__)
    start, end = text.index("<main>"), text.index("</main>")
    table = (
        "<main><p><a href='/'>Agentlip</a></p><h1>Routes</h1>"
        "<p>The same table as <a href='/api/v1/openapi.json'>OpenAPI</a>, "
        "with all requests and replies.</p>"
        "<table><thead><tr><th>Route<th>Description<th>Scope</tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )
    return Page(text[:start] + table + text[end:])


def routes(described: Sequence[Route], guard: Guard) -> list[Route]:
    """The routes `/` and `/docs`. `described`: the routes that `/docs` lists."""
    reference = _reference(described)
    return [
        Route("/", Landing(guard), {
            "GET": Operation(READ_DOCS, "Start page with links", media="text/html"),
        }),
        Route("/docs", Responders(get=lambda _req, resp: reference.answer(resp)), {
            "GET": Operation(READ_DOCS, "Page with all routes", media="text/html"),
        }),
    ]  # fmt: skip


def _template() -> str:
    return files(__package__).joinpath("landing.html").read_text(encoding="utf-8")


def _row(path: str, method: str, operation: Operation) -> str:
    route = f"<code>{method} {html.escape(path)}</code>"
    needs = html.escape(" or ".join(operation.scopes) or "none")
    return f"<tr><td>{route}<td>{html.escape(operation.summary)}<td>{needs}</tr>"
