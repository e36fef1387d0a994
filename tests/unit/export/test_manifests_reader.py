"""A reader beside a writer that exports, compacts and removes without a pause."""

import json
import threading

import pytest

from appliance.export import compact
from appliance.export.errors import SegmentMissing, SegmentTorn
from appliance.export.exporter import Exporter, limits_of
from appliance.export.manifests import SegmentDirectory
from appliance.export.settings import ExportSettings
from appliance.export.source import open_log
from appliance.kernel.clock import SystemClock
from tests.support.clock import FakeClock
from tests.support.exports import Logged, ids_in, manifests

ROUNDS = 30
SETTINGS = ExportSettings()


def write(logged: Logged, out, done: threading.Event, failed: list[BaseException]) -> None:
    try:
        catalogue = SegmentDirectory(out)
        with open_log(logged.datadir) as log:
            for _ in range(ROUNDS):
                logged.add(5)
                with catalogue.only_writer():
                    Exporter(log, catalogue, "jsonl", limits_of(SETTINGS), SystemClock()).run()
                    compact.compact(catalogue, SETTINGS, SystemClock())
    except BaseException as error:
        failed.append(error)
    finally:
        done.set()


def test_reader_beside_a_writer_sees_each_event_once(tmp_path, monkeypatch):
    monkeypatch.setattr(compact, "COUNT_MIN", 3)
    monkeypatch.setattr(compact, "REPLACED_MS", 400)
    logged, out = Logged(tmp_path / "house", 0), tmp_path / "out"
    done, failed = threading.Event(), []
    writer = threading.Thread(target=write, args=(logged, out, done, failed))
    writer.start()
    seen = reads = repeated = 0
    while not done.is_set():
        try:
            ids = ids_in(out)
        except (FileNotFoundError, SegmentMissing):
            repeated += 1  # it took longer than former segments are kept: it lists again
            continue
        assert ids == list(range(1, len(ids) + 1))
        assert len(ids) >= seen
        seen, reads = len(ids), reads + 1
    writer.join()
    assert not failed
    assert reads > 5
    assert ids_in(out) == list(range(1, ROUNDS * 5 + 1))
    catalogue = SegmentDirectory(out)
    with catalogue.only_writer():  # segments replaced just now may go a second later
        compact.compact(catalogue, SETTINGS, FakeClock(SystemClock().now_ms() + 1000))
    assert ids_in(out) == list(range(1, ROUNDS * 5 + 1))
    assert len(manifests(out)) < ROUNDS / 3


def test_segments_with_other_rows_than_listed_are_not_merged(tmp_path, monkeypatch):
    monkeypatch.setattr(compact, "COUNT_MIN", 2)
    logged, out = Logged(tmp_path / "house", 0), tmp_path / "out"
    catalogue = SegmentDirectory(out)
    with open_log(logged.datadir) as log, catalogue.only_writer():
        for _ in range(3):
            logged.add(5)
            Exporter(log, catalogue, "jsonl", limits_of(SETTINGS), SystemClock()).run()
        path = sorted(out.rglob("*.manifest.json"))[0]
        listed = json.loads(path.read_bytes())
        path.write_text(json.dumps(listed | {"rows": 6}))
        with pytest.raises(SegmentTorn, match="other rows"):
            compact.compact(catalogue, SETTINGS, SystemClock())
    assert ids_in(out) == list(range(1, 16))
