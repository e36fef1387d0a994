"""The chain of the audit log: the first record that was changed or removed is named."""

import multiprocessing

import pytest

from appliance.audit.log import file
from appliance.audit.log.file import ChainHead
from appliance.audit.log.record import DETAIL_BYTES_MAX, AuditRecord, detail_of
from appliance.kernel.errors import StorageFull
from tests.support.database_files import change
from tests.support.smalldisk import small_disk

ROWS = 10
PROCESSES, OF_EACH = 4, 25


def record(act="POST /x", phase="began", began=None, detail="{}"):
    return AuditRecord(0, 1_700_000_000_000, act, phase, began, "alice", "http", detail)


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "audit.sqlite3"
    for number in range(ROWS // 2):
        began = file.append(path, record(detail=detail_of({"request": number})))
        file.append(path, record(phase="done", began=began))
    return path


def head_of(path):
    verified = file.verify(path)
    assert not verified.broken
    return ChainHead(verified.head, verified.hash, "the backup B", verified.chain)


def test_whole_chain_verifies_up_to_its_head(log):
    verified = file.verify(log, [head_of(log)])
    assert (verified.records, verified.head, verified.broken) == (ROWS, ROWS, 0)
    assert [record.seq for record in file.records(log, 7)] == [8, 9, 10]


SWAP = [
    "UPDATE log SET seq = 100 WHERE seq = 4",
    "UPDATE log SET seq = 4 WHERE seq = 5",
    "UPDATE log SET seq = 5 WHERE seq = 100",
]


REHASHED = "UPDATE log SET actor = 'eve', hash = '{}' WHERE seq = 4"


@pytest.mark.parametrize(
    ("statements", "broken", "problem"),
    [
        (["UPDATE log SET actor = 'eve' WHERE seq = 4"], 4, "its content was changed"),
        (["UPDATE log SET detail = '{}' WHERE seq = 9"], 9, "its content was changed"),
        (["UPDATE log SET at_ms = at_ms + 1 WHERE seq = 1"], 1, "its content was changed"),
        (["DELETE FROM log WHERE seq = 4"], 4, "it is missing; the next one is 5"),
        (["DELETE FROM log WHERE seq IN (4, 5)"], 4, "it is missing; the next one is 6"),
        (["DELETE FROM log WHERE seq <= 3"], 4, "the records before it are missing"),
        (["DELETE FROM log WHERE seq > 8"], 9, "missing, by the numbers that were given out"),
        (["DELETE FROM log"], 1, "missing, by the numbers that were given out"),
        (SWAP, 4, "it does not follow record 3"),
    ],
)
def test_first_broken_link_is_named(log, statements, broken, problem):
    change(log, *statements)
    verified = file.verify(log)
    assert (verified.broken, problem in verified.problem) == (broken, True), verified


def test_record_with_a_new_hash_does_not_fit_into_the_chain(log):
    changed = list(file.records(log))[3]._replace(actor="eve")
    change(log, REHASHED.format(changed.expected_hash()))
    verified = file.verify(log)
    assert (verified.broken, verified.problem) == (5, "it does not follow record 4")


def test_rewritten_chain_differs_from_backup_note(log, tmp_path):
    noted = head_of(log)
    again = tmp_path / "again.sqlite3"
    for row in file.records(log):
        file.append(again, row._replace(actor="eve" if row.seq == 3 else row.actor))
    assert not file.verify(again).broken
    assert file.verify(again, [noted]).former == ["the backup B"], "by its id"
    change(again, f"UPDATE meta SET value = '{noted.chain}' WHERE key = 'x_store_id'")
    verified = file.verify(again, [noted])
    assert (verified.broken, verified.problem) == (10, "it is another one than the backup B noted")


def test_cut_end_is_noticed_by_the_head_of_a_backup(log):
    noted = head_of(log)
    change(log, "DELETE FROM log WHERE seq > 6", "UPDATE sqlite_sequence SET seq = 6")
    assert not file.verify(log).broken
    verified = file.verify(log, [noted])
    assert (verified.broken, "by the backup B" in verified.problem) == (7, True)


def test_missing_file_is_an_empty_chain_unless_a_backup_noted_one(log, tmp_path):
    noted = head_of(log)
    missing = tmp_path / "missing.sqlite3"
    assert (file.verify(missing).records, file.acts(missing, 100, 10)) == (0, [])
    assert file.verify(missing, [noted]).former == ["the backup B"]
    assert not missing.exists()


def test_oldest_records_are_pruned_and_the_chain_says_so(log, monkeypatch):
    monkeypatch.setattr(file, "ROWS_MAX", 12)
    monkeypatch.setattr(file, "ROWS_PRUNED", 5)
    for _ in range(12):
        file.append(log, record())
    kept = list(file.records(log))
    assert len(kept) <= 13
    assert kept[0].seq > 5
    assert any(row.act == file.PRUNE for row in kept)
    assert not file.verify(log).broken
    change(log, f"DELETE FROM log WHERE seq = {kept[0].seq}")
    verified = file.verify(log)
    assert (verified.broken, "were not pruned" in verified.problem) == (kept[0].seq + 1, True)


def append_many(path):
    for _ in range(OF_EACH):
        file.append(path, record())


def test_several_processes_append_to_one_chain(tmp_path):
    path = tmp_path / "audit.sqlite3"
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        pool.map(append_many, [path] * PROCESSES)
    verified = file.verify(path)
    assert (verified.records, verified.broken) == (PROCESSES * OF_EACH, 0)


def test_damaged_file_refuses_acts_until_it_is_moved_away(log):
    log.write_bytes(b"no database" * 1000)
    with pytest.raises(file.AuditUnavailable):
        file.append(log, record())
    with pytest.raises(file.AuditUnavailable):
        file.verify(log)
    log.rename(log.with_name("damaged"))
    assert file.append(log, record()) == 1


def fill_with_records(path, disk):
    for _ in range(1000):
        disk.fill()
        file.append(path, record(detail=detail_of({"text": ["y" * 200] * 15})))


def test_full_disk_has_a_reserve_for_the_acts_that_free_space(tmp_path):
    with small_disk(tmp_path, "tmpfs", 2) as disk:
        path = disk.root / "audit.sqlite3"
        file.append(path, record())
        disk.fill()
        assert [file.append(path, record()), file.append(path, record())] == [2, 3]
        with pytest.raises(StorageFull):
            fill_with_records(path, disk)
        disk.clear()
        file.append(path, record())
        assert path.with_name(file.RESERVE).exists()
        assert not file.verify(path).broken


def test_detail_has_no_secrets_and_a_limit():
    parts = {
        "request": {"name": "n", "secret": "S3", "access_token": "S3", "token_id": "tok_1",
                    "url": "https://user:S3@host/path?key=S3", "nested": [{"password": "S3"}]},
        "path": {"link": "S3"}, "signature": "S3", "none": None,
    }  # fmt: skip
    text = detail_of(parts)
    assert "S3" not in text
    assert all(word in text for word in ('"token_id":"tok_1"', '"https://host/…"', '"name":"n"'))
    assert "none" not in text
    long = {str(number): "x" * 150 for number in range(20)}
    large = detail_of({"small": 1, "large": long, "more": ["y" * 200] * 20})
    assert len(large) <= DETAIL_BYTES_MAX
    assert '"omitted_bytes"' in large
    assert '"small":1' in large
