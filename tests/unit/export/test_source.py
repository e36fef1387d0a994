"""Both ways of reading the log say the same, also where times and nulls are odd."""

import sqlite3
from contextlib import closing

import pyarrow.parquet as parquet
import pytest

from appliance.export import segment
from appliance.export.arrow_log_reader import ArrowLog, open_fast
from appliance.export.errors import BadEvent
from appliance.export.exporter import Exporter
from appliance.export.manifests import SegmentDirectory
from appliance.export.segment import SegmentLimits
from appliance.export.source import open_log
from tests.support.clock import FakeClock
from tests.support.exports import BEGIN, Logged, row

LIMITS = SegmentLimits(1000, 1 << 20, 1000)
TIMES = [
    "2026-11-20T23:59:59.999Z",
    "2026-11-20T23:59:59.999999Z",
    "2026-11-21T00:30:00+01:00",  # still the 20th
    "2026-11-21T00:00:00Z",
    "2026-11-21 00:00:01",
    "2026-11-20T20:00:00.000Z",  # the clock went back
    "20261120T200000Z",
]


def odd(logged: Logged) -> None:
    with closing(sqlite3.connect(logged.datadir.database("hub"))) as connection, connection:
        for number, time in enumerate(TIMES, 1):
            values = list(row(number, BEGIN))
            values[1] = time
            values[4] = None if number % 2 else "topic_1"
            values[5] = "topic_2" if number == len(TIMES) else None
            connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)


def exported(logged: Logged, out, opened):
    catalogue = SegmentDirectory(out)
    with opened as log, catalogue.only_writer():
        Exporter(log, catalogue, "parquet", LIMITS, FakeClock()).run()
    rows = []
    for manifest in segment.live(catalogue.manifests()):
        table = parquet.read_table(catalogue.data(manifest), partitioning=None)
        rows.append(
            (manifest.date, manifest.first_event_id, manifest.last_event_id, table.to_pylist())
        )
    return rows


def test_both_log_readers_export_the_same_events(tmp_path):
    logged = Logged(tmp_path / "house")
    odd(logged)
    with open_fast(logged.datadir, "parquet") as log:
        assert isinstance(log, ArrowLog)
    fast = exported(logged, tmp_path / "fast", open_fast(logged.datadir, "parquet"))
    plain = exported(logged, tmp_path / "plain", open_log(logged.datadir))
    assert fast == plain
    days = [(date, first, last) for date, first, last, _ in plain]
    assert days == [("2026-11-20", 1, 3), ("2026-11-21", 4, 5), ("2026-11-20", 6, 7)]
    assert plain[0][3][2]["ts"].isoformat() == "2026-11-20T23:30:00+00:00"
    assert [each["scope_topic_id"] for each in plain[0][3]] == [None, "topic_1", None]


@pytest.mark.parametrize("fast", [True, False])
def test_event_with_an_invalid_time_is_refused_with_its_id(tmp_path, fast):
    logged = Logged(tmp_path / "house", 5)
    with closing(sqlite3.connect(logged.datadir.database("hub"))) as connection, connection:
        values = list(row(6, BEGIN))
        values[1] = "yesterday"
        connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
    opened = open_fast(logged.datadir, "parquet") if fast else open_log(logged.datadir)
    with pytest.raises(BadEvent, match="event 6 has an invalid time: 'yesterday'"):
        exported(logged, tmp_path / "out", opened)
    assert list((tmp_path / "out").rglob("*.*")) == [tmp_path / "out" / "events" / ".lock"]
