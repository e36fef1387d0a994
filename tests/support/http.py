"""An app around a few routes, and a client whose requests look like they came over loopback."""

import io
import json
from collections.abc import Sequence
from typing import Any

from falcon import testing

from appliance.hub import wire
from appliance.kernel.auth import ADMIN, Principal, TokenBook, hash_token
from appliance.kernel.log import Log
from appliance.kernel.route import Route
from appliance.web.app import App, make_app
from appliance.web.guard import Guard
from appliance.web.limits import RateLimiter
from appliance.web.settings import HttpSettings, LimitSettings
from tests.support.clock import FakeClock

TOKEN = "t" * 64
NARROW_TOKEN = "n" * 64
SCRAPE_TOKEN = "s" * 64
NO_LIMITS = LimitSettings(per_connection=0, global_=0)


class Lines(io.BytesIO):
    """What was logged, line by line."""

    def entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


def token_book() -> TokenBook:
    return TokenBook(
        (hash_token(token), Principal(name, name, frozenset(scopes)))
        for token, name, scopes in (
            (TOKEN, "workspace", [ADMIN]),
            (NARROW_TOKEN, "reader", ["hub:read"]),
            (SCRAPE_TOKEN, "scraper", ["metrics:read"]),
        )
    )


def guard_of(settings: HttpSettings | None = None, clock: Any = None) -> Guard:
    return Guard(token_book(), settings or HttpSettings(), clock or FakeClock(), wire.SCOPES.free)


def app_of(
    routes: Sequence[Route],
    *,
    settings: HttpSettings | None = None,
    limits: LimitSettings = NO_LIMITS,
    clock: Any = None,
    lines: Lines | None = None,
    access: str = "errors",
) -> App:
    """An app as the appliance builds it, with a clock that stands still."""
    settings, clock = settings or HttpSettings(), clock or FakeClock()
    log = Log(lines if lines is not None else Lines(), clock=clock)
    return make_app(
        routes,
        Guard(token_book(), settings, clock, wire.SCOPES.free),
        RateLimiter(limits, clock),
        log=log,
        clock=clock,
        instance_id="instance-1",
        access=access,
    )


class Client(testing.TestClient):  # type: ignore[misc]
    """Falcon's client with a peer's address, a Host, and if wanted a token."""

    def __init__(
        self,
        app: App,
        token: str | None = None,
        *,
        host: str = "localhost:8080",
        address: str = "127.0.0.1",
        port: str = "50000",
    ) -> None:
        headers = {"Host": host}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        super().__init__(app, headers=headers)
        self._peer = {"REMOTE_ADDR": address, "REMOTE_PORT": port}

    def simulate_request(self, *args: Any, **kwargs: Any) -> testing.Result:
        kwargs["extras"] = {**self._peer, **kwargs.get("extras", {})}
        return super().simulate_request(*args, **kwargs)


def environ_of(
    *, address: str = "127.0.0.1", host: str | None = "localhost:8080", **more: str
) -> dict[str, Any]:
    """A bare environ; further keys as the WSGI server names them."""
    environ: dict[str, Any] = {
        "REQUEST_METHOD": "GET",
        "QUERY_STRING": "",
        "REMOTE_ADDR": address,
        "REMOTE_PORT": "50000",
        "wsgi.url_scheme": "http",
        **more,
    }
    if host is not None:
        environ["HTTP_HOST"] = host
    return environ
