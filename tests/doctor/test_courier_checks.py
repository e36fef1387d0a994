"""The courier's rows of the table of checks."""

from pathlib import Path

import pytest

from tests.doctor.house import House


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


@pytest.mark.parametrize(
    ("facts", "check", "severity", "says"),
    [
        ({"full": 2.0, "streams": 9.0}, "courier.room", "warning", "2 of 9 streams"),
        ({"oldest_ready_seconds": 3601.0}, "courier.waiting", "warning", "3601 s"),
        ({"dead": 3.0}, "courier.waiting", "info", "3 dead letters"),
        ({"paused": 1.0}, "courier.waiting", "info", "1 streams are paused"),
        ({"memory_envelopes": 5.0}, "courier.memory", "info", "5 envelopes are in memory only"),
        (
            {"memory_envelopes": 5.0, "memory_parked": 2.0},
            "courier.memory", "info", "nobody receives from 2 of their streams",
        ),
    ],
)  # fmt: skip
def test_what_the_courier_says_of_itself_is_judged(
    house: House, facts: dict[str, float], check: str, severity: str, says: str
) -> None:
    with house.running(courier=facts):
        (finding,) = house.find(check)
        assert finding.severity.value == severity
        assert says in finding.sentence
        assert finding.hint


def test_a_durable_envelope_that_cannot_be_read_is_found_by_the_long_look(house: House) -> None:
    insert = (
        "INSERT INTO journal (stream, id, body, priority, accepted_ms)"
        " VALUES ('s', 'a', CAST(? AS BLOB), 4, 1)"
    )
    house.execute(insert, '{"id": "a", "payload": 1}', store="courier")
    assert house.find("courier.journal") == []
    house.execute(insert, '{"id": "b"}', store="courier")
    house.execute(insert, '{"id": "a', store="courier")
    assert [one.severity.value for one in house.find("courier.journal")] == ["error"] * 2
