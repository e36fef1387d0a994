"""A backup comes back from a target byte by byte as it was, or not at all."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import pytest

from appliance.backup import fetch, manifest, targets
from appliance.backup.errors import (
    BackupDamaged,
    BackupNotFound,
    BackupNotWritable,
    TargetFailed,
    TargetObjectMissing,
)
from appliance.backup.manifest import BackupManifest
from appliance.backup.settings import TargetSettings
from appliance.backup.target import BackupTarget
from tests.support.backups_for_targets import TargetBackups

FILES = {"hub.sqlite3.zst.age": os.urandom(3500), "small": b"x", "empty": b"", "a b ü%20": b"q"}


@pytest.fixture
def name(local: TargetBackups) -> str:
    """A backup that is at the target."""
    name = local.add(FILES)
    outcome = targets.upload(local.access(), local.settings.targets[0], [name])
    assert outcome[0].result == "copied"
    return name


@pytest.fixture
def other(tmp_path: Path, target: TargetSettings) -> TargetBackups:
    """Another machine with the same target and no backups."""
    return TargetBackups(tmp_path / "other", target)


def bring(machine: TargetBackups, name: str, target: BackupTarget | None = None) -> bool:
    opened = machine.access().open(machine.settings.targets[0])
    with machine.backups.only_writer():
        _, fetched = fetch.fetch(target or opened, name, machine.backups, machine.settings)
    return fetched


def real_target(machine: TargetBackups) -> BackupTarget:
    return machine.access().open(machine.settings.targets[0])


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


def test_newest_backup_is_the_newest_with_a_manifest(
    local: TargetBackups, other: TargetBackups, name: str
) -> None:
    real = local.access().open(local.settings.targets[0])
    real.write("20991231T000000Z-abcdef/db.sqlite3.zst", [b"{}"])
    assert fetch.newest_at(real) == name
    real.remove(f"{name}/manifest.json")
    with pytest.raises(BackupNotFound):
        fetch.newest_at(real)
    with pytest.raises(BackupNotFound):
        bring(other, name)


@pytest.mark.parametrize("wanted", ["../../etc", "..", "", "20990101T000000Z-abcdef", "/etc"])
def test_name_that_is_not_there_is_not_found(other: TargetBackups, name: str, wanted: str) -> None:
    with pytest.raises(BackupNotFound):
        bring(other, wanted)


def test_each_flipped_byte_at_the_target_is_refused(other: TargetBackups, name: str) -> None:
    real = real_target(other)
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
    real = real_target(other)
    original = local.backups.read(name)
    for file in ("../escaped", "a/b", "..", "manifest.json", "verification.json", "small", ""):
        bad = msgspec.structs.replace(original.files[0], name=file)
        changed = msgspec.structs.replace(original, files=(bad, *original.files[1:]))
        real.write(f"{name}/manifest.json", [manifest.encode(changed)])
        with pytest.raises((BackupDamaged, TargetFailed)):
            bring(other, name)
        assert_nothing_left(other)


def test_huge_manifest_is_not_read_to_its_end(other: TargetBackups, name: str) -> None:
    read = 0

    class Endless(Lying):
        def read(self, name: str) -> Iterator[bytes]:
            nonlocal read
            while True:
                read += 65536
                yield b" " * 65536

    with pytest.raises(BackupDamaged, match="larger than"):
        bring(other, name, Endless(real_target(other)))
    assert read < 10 * manifest.BYTES_MAX


def test_endless_file_is_not_written_to_its_end(other: TargetBackups, name: str) -> None:
    class Endless(Lying):
        def read(self, name: str) -> Iterator[bytes]:
            while name.endswith("small"):
                yield b" " * 65536
            yield from super().read(name)

    with pytest.raises(BackupDamaged, match="small"):
        bring(other, name, Endless(real_target(other)))
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
    real_target(local).write(f"{name}/small", [b"z"])
    with pytest.raises(BackupDamaged):
        bring(local, name)
    assert local.backups.names() == [name]


def test_backup_copied_by_another_program_can_be_fetched(
    tmp_path: Path, local: TargetBackups
) -> None:
    """For example by rsync or by a tool for buckets."""
    name = local.add(FILES)
    real = real_target(local)
    for file in os.scandir(local.backups.path(name)):
        real.write(f"{name}/{file.name}", [Path(file.path).read_bytes()])
    other = TargetBackups(tmp_path / "third", *local.settings.targets)
    assert bring(other, name)


def test_fetch_needs_space_before_it_begins(other: TargetBackups, name: str) -> None:
    other.with_targets(*other.settings.targets, free_bytes_min=10**18)
    with pytest.raises(BackupNotWritable, match="free"):
        bring(other, name)
    assert_nothing_left(other)


class Lying:
    """Passes everything to a real target; subclasses change answers."""

    def __init__(self, real: BackupTarget) -> None:
        self._real = real
        self.name = real.name

    def list(self, below: str = "") -> dict[str, int]:
        return self._real.list(below)

    def read(self, name: str) -> Iterator[bytes]:
        return self._real.read(name)

    def write(self, name: str, content: Iterable[bytes]) -> None:
        self._real.write(name, content)

    def remove(self, name: str) -> None:
        self._real.remove(name)


def test_listing_that_lies_can_not_name_paths(other: TargetBackups, name: str) -> None:
    class LyingList(Lying):
        def list(self, below: str = "") -> dict[str, int]:
            every = 1
            return {
                "../../etc/manifest.json": every,
                "/manifest.json": every,
                "x/manifest.json": every,
                "20990101T000000Z-abcdef/manifest.json": every,
            }

    lying = LyingList(real_target(other))
    newest = fetch.newest_at(lying)
    assert newest == "20990101T000000Z-abcdef"
    with pytest.raises(TargetObjectMissing):
        bring(other, newest, lying)


def test_manifest_of_another_backup_is_refused(
    local: TargetBackups, other: TargetBackups, name: str
) -> None:
    real = real_target(other)
    moved: BackupManifest = local.backups.read(name)
    real.write("20990101T000000Z-abcdef/manifest.json", [manifest.encode(moved)])
    with pytest.raises(BackupDamaged, match="is of"):
        bring(other, "20990101T000000Z-abcdef")
