"""What the appliance says of itself: probes and the page, to neighbours and to strangers."""

import time
from typing import Any

import pytest

from appliance.kernel.route import Route
from appliance.web import health, landing
from appliance.web.app import App
from appliance.web.settings import HttpSettings
from tests.support.http import TOKEN, Client, app_of, guard_of

NETWORK = HttpSettings(host="0.0.0.0")
FINDING = {"check": "store.opens", "sentence": "the file is gone", "hint": "agentlip doctor"}


def verdict_of(findings: list[dict[str, Any]]) -> health.Readiness:
    failing = [finding["check"] for finding in findings]
    status = "not ready" if findings else "ready"
    return health.Readiness(status, not findings, failing, findings=findings or None)


def all_routes(findings: list[dict[str, Any]], settings: HttpSettings) -> list[Route]:
    own = health.routes(guard_of(settings), lambda: verdict_of(findings), time.monotonic)
    return [*own, *landing.routes()]


def app(findings: list[dict[str, Any]] | None = None, settings: HttpSettings | None = None) -> App:
    settings = settings or HttpSettings()
    return app_of(all_routes(findings or [], settings), settings=settings)


def far(token: str | None = None, findings: list[dict[str, Any]] | None = None) -> Client:
    return Client(app(findings, NETWORK), token, host="hub.example", address="10.0.0.9")


def test_not_ready_names_checks_and_shows_details_nearby() -> None:
    result = Client(app([FINDING])).simulate_get("/-/ready")
    assert result.status_code == 503
    assert result.json == {
        "status": "not ready",
        "ready": False,
        "failing": ["store.opens"],
        "findings": [FINDING],
    }
    assert far(TOKEN, [FINDING]).simulate_get("/-/ready").json["findings"] == [FINDING]


@pytest.mark.parametrize("proxied", [{}, {"X-Forwarded-For": "203.0.113.7"}, {"Via": "1.1 proxy"}])
def test_strangers_learn_only_whether_it_is_ready(proxied: dict[str, str]) -> None:
    """Beyond loopback, and on loopback through a proxy."""
    stranger = Client(app([FINDING])) if proxied else far(findings=[FINDING])
    result = stranger.simulate_get("/-/ready", headers=proxied)
    assert result.status_code == 503
    assert result.json == {"status": "not ready", "ready": False, "failing": []}
    known = Client(app([FINDING]), TOKEN).simulate_get("/-/ready", headers=proxied)
    assert known.json["findings"] == [FINDING]


def test_browsers_are_sent_to_the_web_ui() -> None:
    result = Client(app()).simulate_get("/", headers={"Accept": "text/html,*/*;q=0.8"})
    assert (result.status_code, result.headers["location"]) == (303, "ui/")
    assert result.headers["vary"] == "Accept"
