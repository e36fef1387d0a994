"""The courier's rows of the table of checks."""

import pytest

from tests.doctor.workspace import WorkspaceFixture


@pytest.mark.parametrize(
    ("facts", "check", "severity", "text"),
    [
        ({"full": 2.0, "streams": 9.0}, "courier.room", "warning", "2 of 9 streams"),
        ({"oldest_ready_seconds": 3601.0}, "courier.waiting", "warning", "3601 s"),
        ({"dead": 3.0}, "courier.waiting", "info", "dead letters: 3"),
        ({"memory_envelopes": 5.0}, "courier.memory", "info", "5 envelopes are in memory only"),
        (
            {"memory_envelopes": 5.0, "memory_parked": 2.0},
            "courier.memory", "info", "2 of their streams have no consumer",
        ),
    ],
)  # fmt: skip
def test_courier_facts_become_findings(
    workspace: WorkspaceFixture, facts: dict[str, float], check: str, severity: str, text: str
) -> None:
    with workspace.running(courier=facts):
        (finding,) = workspace.find(check)
        assert finding.severity.value == severity
        assert text in finding.message
        assert finding.hint


def test_unreadable_journal_row_is_an_error(
    workspace: WorkspaceFixture,
) -> None:
    insert = (
        "INSERT INTO journal (stream, id, body, priority, accepted_ms)"
        " VALUES ('s', 'a', CAST(? AS BLOB), 4, 1)"
    )
    workspace.execute(insert, '{"id": "a", "payload": 1}', store="courier")
    assert workspace.find("courier.journal") == []
    workspace.execute(insert, '{"id": "b"}', store="courier")
    workspace.execute(insert, '{"id": "a', store="courier")
    assert [finding.severity.value for finding in workspace.find("courier.journal")] == [
        "error"
    ] * 2
