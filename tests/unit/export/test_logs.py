"""Every log is exported by the same rules: whole, once, and what is lost is seen."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import get_args

import pyarrow.parquet as parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from appliance.export import segment, verify
from appliance.export.arrow_log_reader import ArrowLog, open_fast
from appliance.export.compact import compact
from appliance.export.errors import OtherHistory, SegmentTorn
from appliance.export.exporter import Exporter
from appliance.export.logs import LOGS, _time
from appliance.export.manifests import RETENTION, SegmentDirectory
from appliance.export.rounds import Exports
from appliance.export.segment import SegmentLimits
from appliance.export.settings import ExportSettings
from appliance.export.source import open_log
from appliance.kernel.clock import SystemClock
from appliance.shared import exported_logs
from appliance.shared.exported_logs import LogKind
from appliance.shared.segment_chain import JUMP, SPARSE
from tests.support.clock import FakeClock
from tests.support.exports import Logged, StoreLog, ids_in, manifests

LIMITS = SegmentLimits(20, 1 << 20, 1000)
OTHERS = [kind for kind in LOGS if kind != "events"]


@pytest.fixture
def logged(tmp_path):
    return Logged(tmp_path / "house")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def export(logged: Logged, out, kind: str, opener=open_log):
    directory = SegmentDirectory(out, kind)
    with opener(logged.datadir, log=LOGS[kind]) as reader, directory.only_writer():
        return Exporter(reader, directory, "parquet", LIMITS, FakeClock()).run()


def rows(out, kind: str):
    directory = SegmentDirectory(out, kind)
    tables = [parquet.read_table(directory.data(each), partitioning=None)
              for each in segment.live(directory.manifests())]  # fmt: skip
    return [row for table in tables for row in table.to_pylist()]


def test_wire_and_doctor_know_every_log():
    assert tuple(LOGS) == get_args(LogKind) == exported_logs.LOGS


@pytest.mark.parametrize("kind", OTHERS)
def test_both_readers_export_the_rows_of_the_store(logged, tmp_path, kind):
    store = StoreLog(logged, kind, 50)
    with open_fast(logged.datadir, "parquet", LOGS[kind]) as reader:
        assert isinstance(reader, ArrowLog)

    def fast(datadir, log):
        return open_fast(datadir, "parquet", log)

    export(logged, tmp_path / "fast", kind, fast)
    export(logged, tmp_path / "plain", kind)
    exported = rows(tmp_path / "plain", kind)
    assert exported == rows(tmp_path / "fast", kind)
    assert [row["event_id"] for row in exported] == store.ids()
    assert {row["epoch"] for row in exported} == {"epoch-a"}
    columns = [column[1] for column in store.sql(f"PRAGMA table_info({store.log.table})")]
    stored = [dict(zip(columns, row, strict=True))
              for row in store.sql(f"SELECT * FROM {store.log.table} ORDER BY 1")]  # fmt: skip
    times = {"ts": "at_ms", "accepted_at": "accepted_ms", "delivered_at": "delivered_ms"}
    if kind == "bus":
        times = {"ts": "ts_ms"}
        assert {row["payload"] for row in exported} == {'{"note":"Größe"}', "null"}
    if kind == "inbox":
        times = {"ts": "received_at"}
        assert [row["sent_at"] is None for row in exported] == [
            row["created_at"] == "yesterday" for row in stored
        ]
    if kind == "runs":
        times = {}
        assert [row["ts"] for row in exported] == [
            datetime.fromisoformat(row["ts"]) for row in stored
        ]
    for row, there in zip(exported, stored, strict=True):
        for name, value in row.items():
            if name in times:
                ms = there[times[name]]
                expected = None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)
                assert value == expected, name
            elif name in there and kind != "inbox" and not isinstance(value, datetime):
                assert value == there[name] or (value, there[name]) == ("null", None), name


@given(some.integers(-62_135_596_800_000, 253_402_300_799_999))
@settings(max_examples=300)
def test_milliseconds_become_the_same_time_as_text(at_ms):
    with closing(sqlite3.connect(":memory:")) as connection:
        (text,) = connection.execute(f"SELECT {_time('?')}", (at_ms,)).fetchone()
    since = datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC)
    assert (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000 == at_ms


@pytest.mark.parametrize("kind", [kind for kind in LOGS if kind not in SPARSE])
def test_rows_removed_before_their_export_are_reported_and_seen_by_verify(logged, out, kind):
    store = logged if kind == "events" else StoreLog(logged, kind)
    store.add(30)
    if kind == "events":
        logged.sql("DROP TRIGGER prevent_event_delete")
    key, table = LOGS[kind].key, LOGS[kind].table
    export(logged, out, kind)
    store.add(30)
    for lost in (31, 32, 45):  # before the first new segment, and inside it
        store.sql(f"DELETE FROM {table} WHERE {key} = {lost}")
    done = export(logged, out, kind)
    assert done.missing == 3
    assert [(gap.first, gap.last) for gap in done.gaps] == [(31, 32), (45, 45)]
    (between, inside) = verify.verify(out).problems
    assert (between.code, between.exit_code) == ("SEGMENT_MISSING", 10)
    assert "31 to 32 are in no segment" in between.message
    assert "1 of the" in inside.message


@pytest.mark.parametrize("kind", [kind for kind in OTHERS if not LOGS[kind].kept])
def test_rows_that_the_store_removes_after_their_export_leave_no_gap(logged, out, kind):
    store, key, table = StoreLog(logged, kind, 30), LOGS[kind].key, LOGS[kind].table
    store.sql(f"DELETE FROM {table} WHERE {key} <= 10")  # before the first export, by its age
    assert export(logged, out, kind).missing == 0
    store.sql(f"DELETE FROM {table}")
    assert export(logged, out, kind).last_event_id == 30
    store.add(5)
    assert export(logged, out, kind).missing == 0
    assert ids_in(out, kind) == list(range(11, 36))
    assert manifests(out, kind)[-1].previous_event_id == 30
    assert verify.verify(out).problems == []


@pytest.mark.parametrize("kind", OTHERS)
def test_export_continues_in_the_new_epoch_after_a_restore(logged, out, kind):
    store, key, table = StoreLog(logged, kind, 30), LOGS[kind].key, LOGS[kind].table
    export(logged, out, kind)
    store.sql(f"DELETE FROM {table} WHERE {key} > 25")
    store.sql("UPDATE sqlite_sequence SET seq = seq + ? WHERE name = ?", JUMP, table)
    logged.set_epoch("epoch-b")
    assert export(logged, out, kind).segments == 0
    store.add(3)
    assert export(logged, out, kind).missing == 0
    last = manifests(out, kind)[-1]
    assert (last.epoch, last.previous_event_id, last.rows) == ("epoch-b", 25, 3)
    assert verify.verify(out).problems == []


@pytest.mark.parametrize("kind", OTHERS)
def test_log_whose_numbers_began_again_is_refused_and_the_others_are_exported(logged, out, kind):
    store = StoreLog(logged, kind, 30)
    logged.add(5)
    export(logged, out, kind)
    store.sql(f"DELETE FROM {LOGS[kind].table}")
    store.sql("DELETE FROM sqlite_sequence WHERE name = ?", LOGS[kind].table)
    store.add(2)
    exports = Exports(logged.datadir, ExportSettings(export_format="jsonl"), SystemClock(), out)
    with exports.only_writer(), pytest.raises(OtherHistory, match=f"the log {kind} ends with"):
        exports.export()
    assert ids_in(out) == logged.ids()
    assert ids_in(out, kind) == list(range(1, 31))


@pytest.mark.parametrize("kind", ["events", "courier"])
def test_lost_segment_is_reported_and_days_removed_by_retention_are_not(logged, out, kind):
    store = logged if kind == "events" else StoreLog(logged, kind)
    now, clock = datetime.now(UTC).replace(hour=12), SystemClock()
    store.add(25, at=now - timedelta(days=9))
    store.add(45, at=now)
    export(logged, out, kind)
    directory = SegmentDirectory(out, kind)
    with directory.only_writer():
        done = compact(directory, ExportSettings(retention_days=3), clock)
    assert (done.removed, directory.begins_after()) == (2, 25)
    assert verify.verify(out).problems == []
    first = segment.live(directory.manifests())[0]
    directory.remove(first)
    (problem,) = verify.verify(out).problems
    assert f"26 to {first.last_event_id} are in no segment" in problem.message
    (directory.folder / RETENTION).write_text('{"begins_after": -1}')
    assert {problem.code for problem in verify.verify(out).problems} == {
        "SEGMENT_TORN",
        "SEGMENT_MISSING",
    }
    with pytest.raises(SegmentTorn):
        directory.begins_after()
