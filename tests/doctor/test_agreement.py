"""`/-/ready`, `GET /api/v1/doctor`, `agentlip doctor` and the metrics never disagree."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.checks.check import Finding, Severity
from appliance.kernel.clock import SystemClock
from appliance.kernel.log import Log
from appliance.kernel.metrics import REGISTRY
from appliance.monitoring.loops import Checkup
from doctor import declared_checks, run
from doctor.all_checks import CHECKS
from tests.doctor.workspace import HEALTHY_COURIER, HEALTHY_STORE, WorkspaceFixture
from tests.support.commands import agentlip
from tests.support.database_files import execute
from tests.support.servedhub import ServedHub, serve

READY = set(declared_checks.READY)
SETTINGS = "[doctor]\ndisk_warning_percent = 100.0\n"
CONSTANTS = {"doctor.verdict.CACHE_SECONDS": 0.0}
NO_THRESHOLDS = (
    "[doctor]\ndisk_warning_percent = 0.0\ndisk_warning_bytes = 0\ndisk_error_percent = 0.0\n"
    "disk_error_bytes = 0\n"
)
Undo = Callable[[], object]


# -- a running appliance -------------------------------------------------------------------


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHub]:
    with serve(tmp_path_factory.mktemp("hub"), settings=SETTINGS, constants=CONSTANTS) as hub:
        _, topic = hub.channel_with_topic("general")
        hub.send(topic, "as it was written")
        yield hub


def changed(path: Path, text: str) -> Undo:
    before = path.read_text()
    path.write_text(text)
    return lambda: path.write_text(before)


def suspect(hub: ServedHub) -> Undo:
    hub.datadir.suspect_file("hub").touch()
    return hub.datadir.suspect_file("hub").unlink


def forged_text(hub: ServedHub) -> Undo:
    def write(text: str) -> None:
        execute(hub.datadir.database("hub"), "UPDATE messages SET content_raw = ?", text)

    write("never written")
    return lambda: write("as it was written")


BREAKAGES: dict[str, tuple[str, Callable[[ServedHub], Undo]]] = {
    "damaged store": ("store.suspect", suspect),
    "forged text": ("events.rows", forged_text),
}


def seen(findings: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    fields = ("check", "problem", "severity", "subject", "explained_by")
    return sorted(tuple(finding[field] for field in fields) for finding in findings)


def of_report(body: Any) -> list[tuple[str, ...]]:
    return seen([finding for outcome in body["checks"] for finding in outcome["findings"]])


@pytest.mark.slow
@pytest.mark.parametrize("name", BREAKAGES)
def test_running_appliance_says_the_same_everywhere(hub: ServedHub, name: str) -> None:
    found_by, damage = BREAKAGES[name]
    token = hub.token
    client = hub.connect(token)
    undo = damage(hub)
    try:
        served = client.get("/api/v1/doctor").body
        printed = agentlip(
            "doctor", "--json", "--workspace", str(hub.workspace), cwd=hub.workspace
        ).json
        ready = client.get("/-/ready").body["findings"]
    finally:
        undo()
    assert found_by in {check for check, *_ in of_report(served)}, served
    assert of_report(served) == of_report(printed)
    for field in ("verdict", "warnings", "errors"):
        assert served[field] == printed[field]
    assert seen(ready) == [row for row in of_report(served) if row[0] in READY]


@pytest.mark.slow
def test_changed_thresholds_take_effect_without_a_restart(hub: ServedHub) -> None:
    def checks() -> set[str]:
        return {finding["check"] for finding in hub.http.get("/-/ready").body["findings"]}

    assert "host.disk" in checks()
    undo = changed(hub.datadir.settings_file, NO_THRESHOLDS)
    try:
        assert "host.disk" not in checks()
        undo_again = changed(hub.datadir.settings_file, "[doctor\n")
        assert "host.disk" not in checks(), "the last settings stay while the file is not valid"
        undo_again()
    finally:
        undo()
    assert "host.disk" in checks()


# -- facts of a process --------------------------------------------------------------------

FACTS: dict[str, tuple[dict[str, object], dict[str, float], dict[str, float]]] = {
    "healthy": ({}, {}, {}),
    "stopping": ({"stopping": True}, {}, {}),
    "lost lock": ({"lock_intact": False}, {}, {}),
    "late loop": ({"loop_delay_seconds": 1.0}, {}, {}),
    "very late loop": ({"loop_delay_seconds": 9.0}, {}, {}),
    "ended writer": ({}, {"writer_alive": 0.0}, {}),
    "stalled writer": ({}, {"stalled_seconds": 30.0}, {}),
    "suspect store": ({}, {"suspect": 1.0}, {}),
    "suspect store and ended writer": ({}, {"suspect": 1.0, "writer_alive": 0.0}, {}),
    "paused writing": ({}, {"writing_paused": 1.0}, {}),
    "full stream": ({}, {}, {"full": 2.0}),
    "late envelopes": ({}, {}, {"oldest_ready_seconds": 9000.0}),
}


def counts(findings: list[Finding]) -> dict[tuple[str, str], int]:
    rows = [(finding.check, finding.severity.value) for finding in findings]
    return {row: rows.count(row) for row in rows}


@pytest.mark.parametrize("name", FACTS)
def test_probe_doctor_and_metrics_agree_on_facts(tmp_path: Path, name: str) -> None:
    process, store, courier = FACTS[name]
    workspace = WorkspaceFixture(tmp_path)
    with (
        workspace.running({**HEALTHY_STORE, **store}, {**HEALTHY_COURIER, **courier}, **process),
        workspace.context() as context,
    ):
        probe = run.readiness(context)
        outcomes = run.examine(context, CHECKS)
        Checkup(
            workspace.context, run.ready_checks(()), {}, SystemClock(), Log(io.BytesIO())
        ).run_once(0)
    reported = [
        finding for outcome in outcomes for finding in outcome.findings if outcome.check in READY
    ]
    assert counts(probe) == counts(reported)
    assert bool(probe) is (name != "healthy")
    assert metrics_now() == counts(reported)


def metrics_now() -> dict[tuple[str, str], int]:
    numbers = {}
    for check in READY:
        for severity in Severity:
            labels = {"check": check, "severity": severity.value}
            number = REGISTRY.get_sample_value("agentlip_doctor_findings", labels)
            if number:
                numbers[check, severity.value] = int(number)
    return numbers
