"""A backup comes back from a target byte by byte as it was, or not at all."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from appliance.backup import fetch, manifest
from appliance.backup.errors import (
    BackupDamaged,
    BackupNotFound,
    TargetFailed,
    TargetObjectMissing,
)
from appliance.backup.settings import TargetSettings
from appliance.backup.target import BackupTarget
from tests.support.backup_targets import PassedTarget, TargetBackups

FILES = {"hub.sqlite3.zst.age": os.urandom(3500), "small": b"x", "empty": b"", "a b ü%20": b"q"}


@pytest.fixture
def name(local: TargetBackups) -> str:
    """A backup that is at the target."""
    name = local.add(FILES)
    assert local.upload().copied == (name,)
    return name


@pytest.fixture
def other(tmp_path: Path, target: TargetSettings) -> TargetBackups:
    """Another machine with the same target and no backups."""
    return TargetBackups(tmp_path / "other", target)


def bring(machine: TargetBackups, name: str, target: BackupTarget | None = None) -> bool:
    with machine.backups.only_writer():
        _, fetched = fetch.fetch(target or machine.open(), name, machine.work)
    return fetched


def assert_nothing_left(machine: TargetBackups) -> None:
    assert machine.backups.names() == []
    assert [each.name for each in os.scandir(machine.backups.root)] == []


def test_fetched_backup_is_the_one_that_was_copied(
    local: TargetBackups, other: TargetBackups, name: str
) -> None:
    assert bring(other, name)
    assert other.backups.read(name) == local.backups.read(name)
    for file, content in FILES.items():
        assert (other.backups.path(name) / file).read_bytes() == content
        assert (other.backups.path(name) / file).stat().st_mode & 0o777 == 0o600
    assert not bring(other, name)  # it is whole already


@pytest.mark.parametrize("wanted", ["../../etc", "..", "", "20990101T000000Z-abcdef", "/etc"])
def test_name_that_is_not_there_is_not_found(other: TargetBackups, name: str, wanted: str) -> None:
    with pytest.raises(BackupNotFound):
        bring(other, wanted)


def test_each_flipped_byte_at_the_target_is_refused(other: TargetBackups, name: str) -> None:
    real = other.open()
    files = sorted(real.list(name))
    assert len(files) == 5
    for file in files:
        content = b"".join(real.read(file))
        if not content:
            continue
        changed = bytearray(content)
        changed[len(content) // 2] ^= 1
        real.write(file, [bytes(changed)])
        with pytest.raises((BackupDamaged, TargetFailed, TargetObjectMissing)):
            bring(other, name)
        assert_nothing_left(other)
        real.write(file, [content])
    assert bring(other, name)


def test_manifest_that_names_files_outside_is_refused(
    local: TargetBackups, other: TargetBackups, name: str
) -> None:
    real = other.open()
    original = local.backups.read(name)
    for file in ("../escaped", "a/b", "..", "manifest.json", "verification.json", "small", ""):
        bad = msgspec.structs.replace(original.files[0], name=file)
        changed = msgspec.structs.replace(original, files=(bad, *original.files[1:]))
        real.write(f"{name}/manifest.json", [manifest.encode(changed)])
        with pytest.raises((BackupDamaged, TargetFailed)):
            bring(other, name)
        assert_nothing_left(other)


def test_endless_file_is_not_written_to_its_end(other: TargetBackups, name: str) -> None:
    class Endless(PassedTarget):
        def read(self, name: str) -> Iterator[bytes]:
            while name.endswith("small"):
                yield b" " * 65536
            yield from super().read(name)

    with pytest.raises(BackupDamaged, match="small"):
        bring(other, name, Endless(other.open()))
    assert_nothing_left(other)


def test_damaged_local_backup_is_replaced_by_the_whole_one(local: TargetBackups, name: str) -> None:
    file = local.backups.path(name) / "small"
    file.write_bytes(b"y")
    assert bring(local, name)
    assert file.read_bytes() == b"x"


def test_damaged_local_backup_is_kept_when_the_target_is_damaged_too(
    local: TargetBackups, name: str
) -> None:
    (local.backups.path(name) / "small").write_bytes(b"y")
    local.open().write(f"{name}/small", [b"z"])
    with pytest.raises(BackupDamaged):
        bring(local, name)
    assert local.backups.names() == [name]
