"""Lists of segments and snapshots: pages limited in bytes, each row once."""

import msgspec
import pytest

from appliance.export import manifests, segment
from appliance.export.manifests import SegmentDirectory
from appliance.export.service import Segments, Snapshots
from appliance.export.wire import (
    READ,
    SegmentManifest,
    SegmentsQuery,
    SnapshotFile,
    SnapshotManifest,
    SnapshotsQuery,
)
from appliance.kernel.auth import Principal
from tests.support.pages import pages_of

BYTES = 1 << 20
READER = Principal("reader", "reader", frozenset({READ}))
COUNT = 40
DAY = "2026-11-21"


def write(path, manifest):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(manifest))


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """Segments that each replace many, one of them more than fit on a page; large snapshots."""
    out = tmp_path_factory.mktemp("export")
    days = SegmentDirectory(out).folder / segment.folder(DAY)
    for number in range(COUNT):
        first, last = number * 10_000 + 1, (number + 1) * 10_000
        name = segment.stem(first, last)
        many = 25_000 if number == 5 else 2_000
        write(days / f"{name}{segment.MANIFEST}", SegmentManifest(
            schema_version=1, kind="events", epoch="e", first_event_id=first, last_event_id=last,
            previous_event_id=first - 1, rows=10_000, file=f"{name}.jsonl", format="jsonl",
            bytes=1, sha256="0" * 64, created_at=f"{DAY}T00:00:00.000Z", date=DAY,
            replaces=tuple(segment.stem(10**9 + n, 10**9 + n) for n in range(many)),
        ))  # fmt: skip
        file = SnapshotFile("messages.jsonl", 1, 1, "0" * 64)
        write(out / "snapshot" / f"s{number:02}" / manifests.SNAPSHOT_MANIFEST, SnapshotManifest(
            schema_version=1, kind="snapshot", epoch="e", as_of_event_id=number // 2,
            format="jsonl", created_at=f"{DAY}T00:00:00.000Z",
            files={f"table{n}": file for n in range(1_000)},
        ))  # fmt: skip
    return out


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


def test_snapshots_are_listed_newest_first_in_pages_limited_in_bytes(out):
    snapshots = Snapshots(out)
    pages = pages_of(
        lambda after: snapshots.newest(SnapshotsQuery(limit=1000, after=after)), bytes_max=BYTES
    )
    names = [snapshot.name for page in pages for snapshot in page.snapshots]
    assert names == [f"s{number:02}" for number in reversed(range(COUNT))]
    assert pages[-1].next is None
    assert len(pages) > 2
