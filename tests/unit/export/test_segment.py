"""When a segment is closed, and which segments readers trust at every moment."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from appliance.export import segment
from appliance.export.segment import Piece, SegmentLimits
from appliance.export.wire import SegmentManifest
from appliance.kernel.clock import DAY_MS

LIMITS = SegmentLimits(rows_max=100, bytes_max=10_000, open_ms=5_000)
DAY = "2026-11-20"


def manifest(first: int, last: int, **more: Any) -> SegmentManifest:
    name = segment.stem(first, last)
    return SegmentManifest(
        **{
            "schema_version": 1,
            "kind": "events",
            "epoch": "a",
            "first_event_id": first,
            "last_event_id": last,
            "previous_event_id": first - 1,
            "rows": last - first + 1,
            "file": f"{name}.parquet",
            "format": "parquet",
            "bytes": last - first + 1,
            "sha256": "0" * 64,
            "created_at": "2026-11-20T00:00:00.000Z",
            "date": DAY,
            **more,
        }
    )


@given(
    some.lists(
        some.tuples(some.sampled_from([1, 1, 1, 2, segment.JUMP + 1]), some.sampled_from("ab")),
        min_size=1,
    )
)
def test_runs_cover_a_batch_and_each_fits_one_segment(steps):
    ids, days, last = [], [], 0
    for step, day in steps:
        last += step
        ids.append(last)
        days.append(day)
    runs = segment.runs(ids, days)
    assert [index for run in runs for index in range(run.start, run.stop)] == list(range(len(ids)))
    for run in runs:
        assert set(days[run.start : run.stop]) == {run.date}
        assert (
            max(
                b - a
                for a, b in zip(
                    [ids[run.start], *ids[run.start : run.stop]],
                    ids[run.start : run.stop],
                    strict=False,
                )
            )
            < segment.JUMP
        )


def test_piece_is_full_by_size_and_due_by_age():
    piece = Piece(DAY, 1, 50, 50, 500, 0)
    assert not segment.is_full(piece, LIMITS)
    assert segment.is_full(Piece(DAY, 1, 50, 100, 500, 0), LIMITS)
    assert segment.is_full(Piece(DAY, 1, 50, 50, 10_000, 0), LIMITS)
    assert not segment.is_due(10_000, LIMITS, 14_999)
    assert segment.is_due(10_000, LIMITS, 15_000)
    midnight = DAY_MS
    assert segment.is_due(midnight - 1, LIMITS, midnight)


def test_only_small_adjacent_segments_of_one_day_epoch_and_format_are_merged():
    small = [manifest(n, n) for n in range(1, 9)]
    assert segment.compactable(small, LIMITS, 4) == [small]
    assert segment.compactable(small[:3], LIMITS, 4) == []
    assert segment.compactable([*small[:4], *small[5:]], LIMITS, 5) == []
    for other in ({"date": "2026-11-21"}, {"epoch": "b"}, {"format": "jsonl", "file": "x"}):
        mixed = [*small[:4], *(manifest(n, n, **other) for n in range(5, 9))]
        assert [len(group) for group in segment.compactable(mixed, LIMITS, 4)] == [4, 4]
    # One large and a few tiny ones: the large one is not written again for these.
    assert (
        segment.compactable([manifest(1, 50), *(manifest(n, n) for n in range(51, 60))], LIMITS, 4)
        == []
    )


class Life(RuleBasedStateMachine):
    """Segments are written, compacted and removed; a crash may come between any two removals."""

    def __init__(self) -> None:
        super().__init__()
        self.there: dict[str, SegmentManifest] = {}
        self.last = 0
        self.gone = 0
        self.now = 0

    @rule(rows=some.integers(1, 30), count=some.integers(1, 6))
    def write(self, rows: int, count: int) -> None:
        for _ in range(count):
            first, self.last = self.last + 1, self.last + rows
            self._add(manifest(first, self.last, created_at=self._time(), date=self._date()))

    @rule()
    def next_day(self) -> None:
        self.now += 1_000_000

    @rule(count_min=some.integers(2, 5))
    def compact(self, count_min: int) -> None:
        for group in segment.compactable(segment.live(self.there.values()), LIMITS, count_min):
            self.now += 1
            replaced = [segment.name_of(manifest) for manifest in group]
            replaced += [
                name for manifest in group for name in manifest.replaces if name in self.there
            ]
            self._add(
                manifest(
                    group[0].first_event_id,
                    group[-1].last_event_id,
                    created_at=self._time(),
                    date=group[0].date,
                    replaces=tuple(replaced),
                )
            )

    @rule(data=some.data(), days=some.booleans())
    def remove(self, data: some.DataObject, days: bool) -> None:
        self.now += 1
        keep = self._date() if days else ""
        going = segment.removable(list(self.there.values()), self._time(), keep)
        crash = data.draw(some.integers(0, len(going)))
        for manifest in going[:crash]:
            alive = manifest in segment.live(self.there.values())
            del self.there[segment.name_of(manifest)]
            if alive:
                self.gone = max(self.gone, manifest.last_event_id)
            self.every_event_once()

    @invariant()
    def every_event_once(self) -> None:
        alive = segment.live(self.there.values())
        ids = [
            n
            for manifest in alive
            for n in range(manifest.first_event_id, manifest.last_event_id + 1)
        ]
        assert ids == list(range(self.gone + 1, self.last + 1))

    @invariant()
    def the_cursor_is_never_lost(self) -> None:
        newest = segment.newest(self.there.values())
        assert (newest.last_event_id if newest else 0) == self.last

    @rule(data=some.data(), limit=some.integers(1, 4))
    def a_client_pages_while_others_compact(self, data: some.DataObject, limit: int) -> None:
        cursor, taken = self.gone, []
        for _ in range(200):
            page, more = segment.page(list(self.there.values()), cursor, limit)
            for manifest in page:
                taken += range(max(cursor + 1, manifest.first_event_id), manifest.last_event_id + 1)
                cursor = manifest.last_event_id
            if not more:
                break
            if data.draw(some.booleans()):
                self.compact(2)
        assert taken == list(range(self.gone + 1, self.last + 1))

    def _add(self, manifest: SegmentManifest) -> None:
        self.there[segment.name_of(manifest)] = manifest

    def _date(self) -> str:
        return f"2026-11-{1 + self.now // 1_000_000:02d}"

    def _time(self) -> str:
        return f"{self.now:020d}"


Life.TestCase.settings = settings(max_examples=150, stateful_step_count=20, deadline=None)
TestLife = Life.TestCase
