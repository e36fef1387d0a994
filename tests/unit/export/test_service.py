"""Lists of segments: pages limited in bytes, each row once."""

import msgspec
import pytest

from appliance.export import segment
from appliance.export.manifests import SegmentDirectory
from appliance.export.service import Segments
from appliance.export.wire import (
    READ,
    SegmentManifest,
    SegmentsQuery,
)
from appliance.kernel.auth import Principal

BYTES = 1 << 20
READER = Principal("reader", "reader", frozenset({READ}))
COUNT = 40
DAY = "2026-11-21"


@pytest.fixture
def out(tmp_path):
    """Segments that each replace many, one of them more than fit on a page."""
    days = SegmentDirectory(tmp_path).folder / segment.folder(DAY)
    days.mkdir(parents=True)
    for number in range(COUNT):
        first, last = number * 10_000 + 1, (number + 1) * 10_000
        name = segment.stem(first, last)
        many = 25_000 if number == 5 else 2_000
        (days / f"{name}{segment.MANIFEST}").write_bytes(msgspec.json.encode(SegmentManifest(
            schema_version=1, kind="events", epoch="e", first_event_id=first, last_event_id=last,
            previous_event_id=first - 1, rows=10_000, file=f"{name}.jsonl", format="jsonl",
            bytes=1, sha256="0" * 64, created_at=f"{DAY}T00:00:00.000Z", date=DAY,
            replaces=tuple(segment.stem(10**9 + n, 10**9 + n) for n in range(many)),
        )))  # fmt: skip
    return tmp_path


def test_list_of_segments_that_replace_many_is_limited_in_bytes(out):
    segments = Segments(out)
    sizes, last_ids, after = [], [], 0
    while True:
        page = segments.list_after(SegmentsQuery(after=after, limit=1000), READER)
        sizes.append((len(page.segments), len(msgspec.json.encode(page)) <= BYTES))
        last_ids += [segment.last_event_id for segment in page.segments]
        assert page.next == last_ids[-1]
        if not page.has_more:
            break
        after = page.next
    assert last_ids == [(number + 1) * 10_000 for number in range(COUNT)]
    assert [count for count, fits in sizes if not fits] == [1], "one row is larger than a page"
