"""On a full or read-only disk the doctor names the cause first and advises nothing else."""

import subprocess

import pytest

from doctor import cli
from doctor.check import Severity
from tests.doctor.house import HEALTHY_STORE, House
from tests.support.smalldisk import small_disk


def remount(disk, *options):
    subprocess.run(["mount", "-o", ",".join(("remount", *options)), str(disk.root)], check=True)


def assert_cause_first(findings, words):
    """Notes aside: the first finding is the disk, and only the machine's rows advise anything."""
    serious = [found for found in findings if found.severity is not Severity.INFO]
    assert serious[0].check == "host.disk"
    assert words in serious[0].sentence
    assert serious[0].hint
    advised = [found for found in serious if found.hint and not found.check.startswith("host.")]
    assert not advised
    assert not [found for found in serious if "snapshot" in found.hint or "cp " in found.hint]


@pytest.mark.root
@pytest.mark.parametrize("kind", ["ext4", "tmpfs"])
@pytest.mark.parametrize("leftover", [False, True])
def test_read_only_disk_is_the_cause(tmp_path, kind, leftover):
    with small_disk(tmp_path, kind, 24) as disk:
        house = House(disk.root / "w")
        house.talk()
        if leftover:  # commits of a crash wait in a log that can't be opened for reading now
            log = house.data.database("hub").with_name("db.sqlite3-wal")
            log.write_bytes(b"\0" * 4096)
        remount(disk, "ro")
        assert_cause_first(house.find_all(), "read-only")
        if not leftover:
            assert house.find("store.opens") == []
            assert house.find("store.whole") == []
            assert not cli.clear_suspect(house.data, "hub")


@pytest.mark.root
@pytest.mark.parametrize("kind", ["ext4", "tmpfs"])
def test_full_disk_is_the_cause(tmp_path, kind):
    with small_disk(tmp_path, kind, 24) as disk:
        house = House(disk.root / "w")
        house.talk()
        disk.fill()
        assert_cause_first(house.find_all(), "full")
        assert house.find("store.opens") == []


def test_paused_writing_is_explained_by_the_disk(tmp_path):
    house = House(tmp_path)
    with house.running({**HEALTHY_STORE, "writing_paused": 1.0, "writer_alive": 0.0}):
        assert_cause_first(house.find_all(), "full")
        assert {found.subject for found in house.find("store.writer")} == {"hub"}


def test_file_that_does_not_open_is_not_called_damaged(tmp_path):
    house = House(tmp_path)
    path = house.data.database("broker")
    path.unlink()
    path.mkdir()  # cannot be opened, and no page of it is wrong
    (path / "x").write_text("")
    (found,) = house.find("store.opens")
    assert "can't be opened" in found.sentence
    assert "snapshot" not in found.hint
    with pytest.raises(cli.StoreUnreadable):
        cli.clear_suspect(house.data, "broker")
