"""Findings of the scheduled run of the doctor are metrics until the next run."""

import io

from appliance.checks.check import Finding, Severity
from appliance.kernel.log import Log
from appliance.kernel.metrics import REGISTRY
from appliance.monitoring.loops import DoctorRuns
from doctor.report import WorkspaceFacts
from doctor.run import CheckOutcome
from doctor.verdict import DoctorVerdict
from tests.support.clock import FakeClock


def verdict(*findings):
    outcome = CheckOutcome("outbox.dead", "dead sends", findings)
    facts = WorkspaceFacts(workspace="w", running=True)
    return DoctorVerdict(
        version="1", verdict="bad", warnings=0, errors=len(findings), facts=facts,
        checks=[outcome], age_seconds=0.0,
    )  # fmt: skip


def test_findings_are_metrics_until_a_run_without_them():
    results = [verdict(Finding(Severity.ERROR, "outbox", "3 sends are dead")), verdict()]
    loop = DoctorRuns(lambda *_: results.pop(0), {}, FakeClock(), Log(io.BytesIO()))
    labels = {"check": "outbox.dead", "severity": "error"}
    assert loop.run_once(5_000) == {"errors": 1}
    assert REGISTRY.get_sample_value("agentlip_doctor_findings", labels) == 1
    assert REGISTRY.get_sample_value("agentlip_doctor_last_run_timestamp_seconds") == 5
    assert loop.run_once(6_000) == {"errors": 0}
    assert REGISTRY.get_sample_value("agentlip_doctor_findings", labels) is None
