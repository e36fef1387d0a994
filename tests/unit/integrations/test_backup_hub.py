"""The log of a server and the rows of its file are compared event by event."""

import sqlite3
from types import SimpleNamespace

import msgspec
import pytest

from appliance.backup import scratch_served
from appliance.workspace.datadir import DataDir

TS = "2026-01-01T00:00:00.000Z"
NUMBERS = (1, 2, 3, 4, 2**32 + 5, 2**32 + 6, 2**32 + 7)


class PagedLog:
    """Answers like `GET /api/v1/events`, a few events at a time."""

    db_id = "db"

    def __init__(self, events):
        self.events = events

    def get(self, target):
        after = int(target.partition("after=")[2].partition("&")[0])
        left = [event for event in self.events if event["event_id"] > after]
        return msgspec.json.encode({"events": left[:3], "has_more": len(left) > 3})


def event(number, text="hello"):
    return {
        "event_id": number,
        "ts": TS,
        "name": "message.created",
        "entity": {"type": "message", "id": f"m{number}"},
        "data_json": {"text": text},
    }


@pytest.fixture
def scratch(tmp_path):
    datadir = DataDir(tmp_path)
    datadir.dir.mkdir()
    with sqlite3.connect(datadir.database("hub")) as connection:
        connection.execute(
            "CREATE TABLE events (event_id, ts, name, entity_type, entity_id, data_json)"
        )
        connection.executemany(
            f"INSERT INTO events VALUES (?, '{TS}', 'message.created', 'message', ?, ?)",
            [(number, f"m{number}", ' {"text":"hello"}\n') for number in NUMBERS],
        )
    connection.close()
    return datadir


def problems(scratch, events, *, db_id="db"):
    manifest = SimpleNamespace(db_id=db_id, stores=["hub"])
    return scratch_served.problems(PagedLog(events), scratch, manifest)


@pytest.mark.parametrize("number", NUMBERS)
def test_any_event_that_is_missing_or_differs_is_named(scratch, number):
    assert problems(scratch, [event(each) for each in NUMBERS if each != number])
    changed = [event(each, "other" if each == number else "hello") for each in NUMBERS]
    assert problems(scratch, changed) == [f"event {number}: the server and the file differ"]


def test_same_log_has_no_problems_but_additional_events_and_another_database_are(scratch):
    events = [event(number) for number in NUMBERS]
    assert problems(scratch, events) == []
    assert problems(scratch, [*events, event(2**33)])
    assert "the manifest says other" in problems(scratch, events, db_id="other")[0]
