"""What the appliance says of itself: probes, metrics, the document of its routes, the page."""

import json
import re
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck
from hypothesis import settings as examples
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    response_schema_conformance,
    status_code_conformance,
)

from appliance.hub.wire import SCOPES
from appliance.kernel.route import Route
from appliance.web import health, landing, openapi
from appliance.web.app import App
from appliance.web.settings import HttpSettings
from tests.support.http import TOKEN, Client, app_of, guard_of
from tests.support.notes import NoteResource, note_routes

NETWORK = HttpSettings(host="0.0.0.0")
FINDING = {"check": "store.opens", "sentence": "the file is gone", "hint": "agentlip doctor"}


def verdict_of(findings: list[dict[str, Any]]) -> health.ReadinessResult:
    failing = [finding["check"] for finding in findings]
    return health.ReadinessResult(not findings, failing, {"findings": findings} if findings else {})


def all_routes(findings: list[dict[str, Any]], settings: HttpSettings) -> list[Route]:
    own = [
        *note_routes(NoteResource()),
        *health.routes(guard_of(settings), lambda: verdict_of(findings)),
    ]
    described = [*own, *landing.routes()]
    return [*described, *openapi.routes(described, SCOPES.free)]


def app(findings: list[dict[str, Any]] | None = None, settings: HttpSettings | None = None) -> App:
    settings = settings or HttpSettings()
    return app_of(all_routes(findings or [], settings), settings=settings)


def far(token: str | None = None, findings: list[dict[str, Any]] | None = None) -> Client:
    return Client(app(findings, NETWORK), token, host="hub.example", address="10.0.0.9")


def test_healthy_says_ok_to_everybody() -> None:
    for client in (Client(app([FINDING])), far(findings=[FINDING])):
        result = client.simulate_get("/-/healthy")
        assert (result.status_code, result.json) == (200, {"status": "ok"})


def test_ready_when_nothing_was_found() -> None:
    result = Client(app()).simulate_get("/-/ready")
    assert (result.status_code, result.json) == (
        200,
        {"status": "ready", "ready": True, "failing": []},
    )


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


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_other_sites_may_link_to_the_pages_and_read_nothing(site: str) -> None:
    browser = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    fetched = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}
    framed = browser | {"Sec-Fetch-Dest": "iframe"}
    near = Client(app())
    assert near.simulate_get("/", headers=browser).status_code == 200
    assert near.simulate_get("/", headers=framed).json["code"] == "ORIGIN_REFUSED"
    for path in ("/", "/metrics"):
        result = near.simulate_get(path, headers=fetched)
        assert (result.status_code, result.json["code"]) == (403, "ORIGIN_REFUSED")
    assert near.simulate_get("/metrics", headers=browser).status_code == 403
    assert Client(app(), TOKEN).simulate_get("/metrics", headers=fetched).status_code == 200


def test_metrics_are_prometheus_text() -> None:
    result = Client(app()).simulate_get("/metrics")
    assert result.headers["content-type"].startswith("text/plain; version=")
    assert re.search(r"^agentlip_http_request_seconds_bucket\{", result.text, re.MULTILINE)


def test_metrics_are_openmetrics_when_asked_for() -> None:
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    result = Client(app()).simulate_get("/metrics", headers=accept)
    assert result.headers["content-type"].startswith("application/openmetrics-text")
    assert result.text.endswith("# EOF\n")


def test_browsers_are_sent_to_the_web_ui() -> None:
    result = Client(app()).simulate_get("/", headers={"Accept": "text/html,*/*;q=0.8"})
    assert (result.status_code, result.headers["location"]) == (303, "/ui/")
    assert result.headers["vary"] == "Accept"


@pytest.mark.parametrize("accept", ["application/json", "*/*"])
def test_programs_get_links_that_lead_somewhere(accept: str) -> None:
    client = Client(app())
    result = client.simulate_get("/", headers={"Accept": accept})
    assert result.json["name"] == "agentlip"
    assert result.json["links"]["openapi"] == openapi.PATH
    others = {"/health", "/ui/"}  # routes of subsystems
    for link in set(result.json["links"].values()) - others:
        assert client.simulate_get(link).status_code == 200, link


def document() -> dict[str, Any]:
    result = Client(app()).simulate_get(openapi.PATH)
    assert result.headers["content-type"] == "application/json"
    return dict(result.json)


def test_document_describes_every_mounted_operation() -> None:
    described = {(path, method) for path, item in document()["paths"].items() for method in item}
    mounted = {
        (route.path, method.lower())
        for route in all_routes([], HttpSettings())
        for method in route.operations
    }
    assert described == mounted


def test_document_s_references_lead_somewhere_and_ids_are_unique() -> None:
    shown = document()
    for pointer in re.findall(r'"\$ref": ?"#/([^"]+)"', json.dumps(shown)):
        position = shown
        for step in pointer.split("/"):
            position = position[step]
    ids = [o["operationId"] for item in shown["paths"].values() for o in item.values()]
    assert len(ids) == len(set(ids))


def test_document_describes_parameters_bodies_and_security() -> None:
    paths = document()["paths"]
    listing = {p["name"]: p for p in paths["/notes"]["get"]["parameters"]}
    assert listing["limit"]["schema"] == {"type": "integer", "minimum": 1, "default": 50}
    assert listing["name"]["schema"] == {"type": "string"}
    assert paths["/notes"]["get"]["security"] == [{"bearer": []}, {}]
    create = paths["/notes"]["post"]
    assert create["security"] == [{"bearer": []}]
    assert create["requestBody"]["required"] is True
    assert {"201", "400", "401", "415", "429", "500"} <= set(create["responses"])
    (note_id, _key) = paths["/notes/{note_id}"]["patch"]["parameters"]
    assert note_id["schema"]["pattern"].startswith("^")
    assert paths["/-/healthy"]["get"]["security"] == []


def nearby(environ: dict[str, Any], start_response: Any) -> Any:
    environ["REMOTE_ADDR"] = "127.0.0.1"  # schemathesis sets none
    return nearby_app(environ, start_response)


nearby_app = app()
walked = schemathesis.openapi.from_wsgi(openapi.PATH, nearby)


@walked.parametrize()
@examples(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_responses_conform_to_the_document(case: schemathesis.Case) -> None:
    response = case.call_and_validate(
        headers={"Authorization": f"Bearer {TOKEN}"},
        checks=[not_a_server_error, status_code_conformance, response_schema_conformance],
    )
    assert response.status_code != 421  # the walk is let in
