"""The trend of disks and stores: from samples that are kept for two weeks at most."""

import os
from types import SimpleNamespace

import pytest

from appliance.kernel.clock import DAY_MS
from appliance.operations import forecast as service
from appliance.operations.forecast import SAMPLES_MAX, GrowthSamples

START = 1_770_000_000_000
GIB = 1024**3


class Machine:
    """A disk of 100 GiB that is used as the test says, and one store."""

    def __init__(self, folder, monkeypatch):
        self.used, self.store = 10 * GIB, 1000
        self.file = folder / "growth.json"
        self.folder = folder
        self.at_ms = START
        monkeypatch.setattr(os, "statvfs", self._statvfs)
        self.restart()

    def _statvfs(self, _folder):
        blocks = 100 * GIB // 4096
        return SimpleNamespace(f_frsize=4096, f_blocks=blocks, f_bavail=blocks - self.used // 4096)

    def restart(self):
        folders = {"workspace": self.folder, "backups": self.folder, "gone": self.folder / "no"}
        self.samples = GrowthSamples(self.file, folders, lambda: {"hub": self.store})

    def pass_hours(self, hours, disk=0, store=0, minutes=60):
        for _ in range(hours * 60 // minutes):
            self.samples.sample(self.at_ms)
            self.at_ms += minutes * 60_000
            self.used += disk
            self.store += store

    def forecast(self, span="14d", **reducible):
        return self.samples.forecast(reducible, span)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return Machine(tmp_path, monkeypatch)


def test_days_to_full_follow_from_the_growth_of_the_disk(machine):
    machine.pass_hours(48, disk=GIB)
    (disk,) = machine.forecast().disks
    assert disk.of == ["workspace", "backups"], "one disk, though two folders are on it"
    assert disk.growth_bytes_per_day == pytest.approx(24 * GIB, rel=0.01)
    assert disk.days_to_full == pytest.approx((100 - 58) / 24, abs=0.1)
    assert machine.forecast().observed_days == pytest.approx(47 / 24, abs=0.01)


def test_last_hour_has_its_own_trend(machine):
    machine.pass_hours(48, minutes=5)
    machine.pass_hours(2, disk=GIB, minutes=5)
    recent, whole = machine.forecast("1h"), machine.forecast()
    assert recent.disks[0].growth_bytes_per_day == pytest.approx(288 * GIB, rel=0.01)
    assert (len(recent.at_ms), len(whole.at_ms)) == (13, 50)
    assert recent.disks[0].days_to_full < whole.disks[0].days_to_full / 20


def test_forecast_needs_an_hour_and_growth(machine):
    machine.pass_hours(1, disk=GIB)
    assert machine.forecast().disks[0].growth_bytes_per_day is None
    machine.used = 10 * GIB
    machine.pass_hours(20)
    assert machine.forecast().disks[0].growth_bytes_per_day == 0
    machine.pass_hours(20, disk=-GIB // 100)
    assert machine.forecast().disks[0].days_to_full is None


def test_samples_survive_a_restart_and_are_two_weeks_at_most(machine):
    machine.pass_hours(SAMPLES_MAX + 50, disk=1_000_000)
    machine.restart()
    days = machine.forecast().observed_days
    assert days == pytest.approx((SAMPLES_MAX - 1) / 24, abs=0.01)
    assert machine.file.stat().st_size < 200_000
    machine.file.write_text("[{")
    machine.restart()
    assert machine.forecast().observed_days == 0


def test_samples_of_a_time_to_come_are_dropped(machine):
    machine.at_ms += 365 * DAY_MS
    machine.pass_hours(3)
    machine.at_ms = START
    machine.pass_hours(3, disk=GIB)
    assert machine.forecast().disks[0].growth_bytes_per_day == pytest.approx(24 * GIB, rel=0.01)


def test_folder_that_can_be_reduced_is_listed_with_its_size_and_command(
    machine, tmp_path, monkeypatch
):
    for name, size in (("small", 10), ("large", 1000), ("empty", 0)):
        (tmp_path / name / "below").mkdir(parents=True)
        (tmp_path / name / "below" / "file").write_bytes(b"x" * size)
    folders = {name: (tmp_path / name, f"prune {name}") for name in ("small", "large", "empty")}
    rows = machine.forecast(**folders).reducible
    assert [(row.what, row.bytes, row.command) for row in rows] == [
        ("large", 1000, "prune large"), ("small", 10, "prune small"),
    ]  # fmt: skip
    monkeypatch.setattr(service, "ENTRIES_MAX", 1)
    assert machine.forecast(**folders).reducible == []
