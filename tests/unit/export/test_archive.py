"""Archives as the appliance reads them: verification, search, and what retention may remove."""

import msgspec
import pytest

from appliance.export import archive, archive_search, compact
from appliance.export.archive import Archive
from appliance.export.archive_search import BYTES_MAX, ArchiveQuery
from appliance.export.errors import SegmentTorn
from appliance.export.manifests import SegmentDirectory
from appliance.export.settings import ExportSettings
from appliance.kernel.clock import SystemClock
from tests.spark.log import Log
from tests.support import archives


@pytest.fixture
def log():
    """Two channels over two days; `deploy` is said in both, edited and deleted."""
    log = Log()
    builds, chat = log.topic(log.channel("builds")), log.topic(log.channel("chat"))
    log.say(builds, "ann", 'the deploy failed: "x" at äöü/1')
    log.say(chat, "ben", "Deploy it again")
    log.wait(days=1)
    posted = log.say(builds, "ann", "done")
    log.edit(posted, "deploy done")
    log.delete(posted)
    for number in range(20):
        log.say(chat, "cid", f"message {number}")
    return log


@pytest.fixture
def out(log, tmp_path):
    return archives.archive(log, tmp_path / "in", tmp_path / "out")


def contents(out, **query):
    hits = archive_search.search(Archive(out), ArchiveQuery(**query)).hits
    return [hit.content for hit in hits]


FAILED = 'the deploy failed: "x" at äöü/1'


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"text": "DEPLOY"}, [FAILED, "Deploy it again", "deploy done"]),
        ({"text": "deploy", "channel": "builds"}, [FAILED, "deploy done"]),
        ({"text": "deploy", "sender": "ben"}, ["Deploy it again"]),
        ({"text": "deploy", "last": "2026-02-01"}, [FAILED, "Deploy it again"]),
        ({"text": "deploy", "first": "2026-02-02"}, ["deploy done"]),
        ({"text": "deploy", "first": "2026-02-03"}, []),
        ({"text": '"X"'}, [FAILED]),
        ({"text": "ÄÖÜ/1"}, [FAILED]),
        ({"text": "message_id"}, []),
        ({"text": "deploy", "channel": "none"}, []),
        ({"sender": "ann"}, [FAILED, "done"]),
        ({"limit": 1}, [FAILED]),
    ],
)
def test_search_returns_states_of_messages_oldest_first(out, query, expected):
    assert contents(out, **query) == expected


def test_search_ends_at_the_limits_and_says_so(tmp_path):
    log = Log()
    topic = log.topic(log.channel())
    for _ in range(4):
        log.say(topic, content="x" * (BYTES_MAX // 3))
    out = archives.archive(log, tmp_path / "in", tmp_path / "out")
    result = archive_search.search(Archive(out), ArchiveQuery())
    assert (len(result.hits), result.more) == (3, True)
    few = archive_search.search(Archive(out), ArchiveQuery(limit=4, text="y"))
    assert (few.hits, few.more) == ([], False)


def test_rows_that_a_restore_discarded_are_not_found(out, log):
    edited = next(row["event_id"] for row in log.rows if row["name"] == "message.edited")
    archives.change(out, cuts=[["epoch-1", edited - 1]])
    assert contents(out, text="deploy") == [FAILED, "Deploy it again"]


# -- verification -------------------------------------------------------------------------


def first_file(out):
    return out / Archive(out).log("events").files[0].file


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda path: path.unlink(), "SEGMENT_MISSING"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "SEGMENT_TORN"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1] + b"x"), "WRONG_HASH"),
    ],
)
def test_each_damage_is_a_problem(out, damage, code):
    damage(first_file(out))
    result = archive.verify(out)
    assert [problem.code for problem in result.problems] == [code]
    assert result.files == 1


def test_path_outside_of_the_archive_is_refused(out):
    (file,) = [msgspec.to_builtins(each) for each in Archive(out).log("events").files[:1]]
    archives.change(out, files=[{**file, "file": "events/../../secret.parquet"}])
    with pytest.raises(SegmentTorn):
        Archive(out)


# -- retention ----------------------------------------------------------------------------


def manifests_of(tmp_path):
    return SegmentDirectory(tmp_path / "in").manifests()


@pytest.mark.parametrize(
    "fields", [{"sha256": "0" * 64}, {"rows": 1}, {"epoch": "other"}, {"kind": "outbox"}]
)
def test_archive_does_not_have_a_segment_that_differs(out, tmp_path, fields):
    manifest = msgspec.structs.replace(manifests_of(tmp_path)[0], **fields)
    assert not Archive(out).has(manifest)


def compacted(tmp_path, out):
    settings = ExportSettings(retention_days=1)
    later = SystemClock()  # years after the events
    directory = SegmentDirectory(tmp_path / "in")
    with directory.only_writer():
        removed = compact.compact(directory, settings, later, archive_dir=out).removed
    return removed, [manifest.date for manifest in directory.manifests()]


def test_retention_removes_what_the_archive_has(tmp_path, log, out):
    assert compacted(tmp_path, out) == (1, ["2026-02-02"])


@pytest.mark.parametrize("damage", ["no archive", "damaged file", "other segment"])
def test_retention_keeps_what_the_archive_does_not_have(tmp_path, log, out, damage):
    if damage == "no archive":
        out = tmp_path / "none"
    elif damage == "damaged file":
        first_file(out).write_bytes(b"")
    else:
        archives.change(out, segments=[])
    assert compacted(tmp_path, out) == (0, ["2026-02-01", "2026-02-02"])
