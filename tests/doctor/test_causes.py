"""Which findings explain which."""

import pytest

from appliance.checks.check import Finding, Severity
from doctor.causes import explain


def finding(
    name: str, subject: str = "hub", severity: Severity = Severity.ERROR, hint: str = "a command"
) -> Finding:
    check, _, problem = name.partition(":")
    return Finding(severity, subject, "something", hint, check=check, problem=problem)


@pytest.mark.parametrize(
    ("cause", "symptom", "explained"),
    [
        (("host.disk:full", "disk"), ("store.writer:paused", "hub"), True),
        (("host.disk:read-only", "disk"), ("host.logs:not-writable", "logs"), True),
        (("host.disk:read-only", "disk"), ("backup.space:no-space", "backup"), True),
        (("host.disk:read-only", "disk"), ("backup.content:damaged", "backup"), False),
        (("host.disk:full", "disk"), ("backup.space:no-space", "backup"), False),
        (("host.disk:low", "disk"), ("store.writer:paused", "hub"), False),
        (("host.disk:full", "disk"), ("store.whole:damaged", "hub"), False),
        (("store.suspect:damaged", "hub"), ("store.writer:ended", "hub"), True),
        (("store.suspect:damaged", "hub"), ("store.writer:ended", "broker"), False),
        (("store.schema:newer", "hub"), ("store.objects:missing", "hub.messages"), True),
        (("store.schema:newer", "hub"), ("store.objects:missing", "broker.mesh"), False),
        (("host.token:empty", "token"), ("store.record:missing", "token"), True),
        (("host.token:empty", "token"), ("store.record:missing", "identity"), False),
        (("store.opens:damaged", "hub"), ("hub.search:damaged-store", "hub"), True),
        (("store.whole:damaged", "hub"), ("hub.search:damaged-store", "hub"), True),
        (("store.whole:damaged", "hub"), ("hub.search:damaged-store", "inbox"), False),
        (("store.whole:damaged", "hub"), ("hub.search:failed", "check"), False),
        (("store.whole:damaged", "hub"), ("store.integrity:damaged", "hub"), False),
        (("store.integrity:damaged", "hub"), ("events.rows:damaged-store", "hub"), True),
        (("events.rows:damaged-store", "hub"), ("hub.search:damaged-store", "hub"), True),
        (("events.rows:damaged-store", "hub"), ("inbox.rows:damaged-store", "inbox"), False),
    ],
)
def test_cause_explains_only_what_follows_from_it(
    cause: tuple[str, str], symptom: tuple[str, str], explained: bool
) -> None:
    first, second = explain([finding(*cause), finding(*symptom)])
    assert (first.explained_by, first.hint) == ("", "a command")
    assert second.explained_by == (cause[0] if explained else "")
    assert second.hint == ("" if explained else "a command")


def test_check_that_looks_for_damage_explains_those_that_read_it_before() -> None:
    findings = [
        finding("host.files:damaged-store"),
        finding("store.whole:damaged"),
        finding("hub.search:damaged-store"),
    ]
    whole = "store.whole:damaged"
    assert [each.explained_by for each in explain(findings)] == [whole, "", whole]
