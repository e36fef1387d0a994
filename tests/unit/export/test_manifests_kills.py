"""Killed with signal 9 before every single step that changes the directory, one after the other."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from appliance.export import compact, manifests, segment
from appliance.export.exporter import Exporter
from appliance.export.manifests import SegmentDirectory, check
from appliance.export.segment import SegmentLimits
from appliance.export.settings import ExportSettings
from appliance.export.source import open_log
from tests.support.clock import SteppingClock
from tests.support.exports import Logged, ids_in
from tests.support.forks import killed_at

pytestmark = pytest.mark.slow

LIMITS = SegmentLimits(rows_max=20, bytes_max=1 << 20, open_ms=1000)
SETTINGS = ExportSettings()
STEPS_MAX = 200
# Compaction and removal in the same millisecond would take fewer steps to count.
CLOCK = SteppingClock()


def export(logged: Logged, out: Path) -> None:
    directory = SegmentDirectory(out)
    with open_log(logged.datadir) as reader, directory.only_writer():
        Exporter(reader, directory, "jsonl", LIMITS, CLOCK).run()


def clean(out: Path, replaced_ms: int = compact.REPLACED_MS) -> None:
    """Compact from two segments on, and keep replaced ones for this time."""
    directory = SegmentDirectory(out)
    with pytest.MonkeyPatch.context() as patch, directory.only_writer():
        patch.setattr(compact, "COUNT_MIN", 2)
        patch.setattr(compact, "REPLACED_MS", replaced_ms)
        compact.compact(directory, SETTINGS, CLOCK)


def in_steps(work: Callable[[], None], reach: Callable[[], None]) -> None:
    """Does `work`, and calls `reach` before every change of a file."""

    def counted(function):
        def counting(*args, **kwargs):
            reach()
            return function(*args, **kwargs)

        return counting

    os.fsync = counted(os.fsync)
    manifests.sync_directory = counted(manifests.sync_directory)
    for name in ("rename", "unlink", "mkdir", "rmdir"):
        setattr(Path, name, counted(getattr(Path, name)))
    work()


def whole(out: Path, logged: Logged) -> None:
    """The export that readers see is intact and has each event once, from the first on."""
    directory = SegmentDirectory(out)
    for manifest in directory.manifests():
        check(directory.data(manifest), manifest.bytes, manifest.sha256)
    ids = ids_in(out)
    assert ids == logged.ids()[: len(ids)]


def test_export_killed_at_any_step_is_continued_by_the_next(tmp_path):
    logged = Logged(tmp_path / "house", 70)
    kills = 0
    for step in range(1, STEPS_MAX):
        out = tmp_path / f"out{step}"
        if not killed_at(step, partial(in_steps, partial(export, logged, out))):
            break
        kills += 1
        whole(out, logged)
        export(logged, out)
        assert ids_in(out) == logged.ids()
        assert list(out.rglob(".tmp-*")) == []
        assert len(list(out.rglob("*.jsonl"))) == len(SegmentDirectory(out).manifests())
    assert kills > 20


def test_compaction_killed_at_any_step_keeps_each_event_once(tmp_path):
    kills = 0
    for step in range(1, STEPS_MAX):
        out = tmp_path / f"out{step}"
        logged = Logged(tmp_path / f"house{step}")
        for _ in range(3):  # several levels: compacted segments are compacted again
            for _ in range(2):
                logged.add(2)
                export(logged, out)
            clean(out)
        logged.add(4)
        export(logged, out)
        if not killed_at(step, partial(in_steps, partial(clean, out, replaced_ms=0))):
            break
        kills += 1
        whole(out, logged)
        assert ids_in(out) == logged.ids()
        clean(out, replaced_ms=0)
        assert ids_in(out) == logged.ids()
        assert segment.problems_of_chain(segment.live(SegmentDirectory(out).manifests())) == []
    assert kills > 30
