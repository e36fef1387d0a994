"""The loop that makes backups, by a clock that moves on request, with real backups on disk."""

import io
import os
from functools import partial

import pytest

from appliance.backup.backup_directory import BackupDirectory, BackupWorkspace
from appliance.backup.errors import BackupNotWritable, BackupRunning
from appliance.backup.failures import read_failures
from appliance.backup.first_data import has_data
from appliance.backup.loops import BackupScheduler
from appliance.backup.manifest import VERIFICATION
from appliance.backup.settings import BackupSettings, TargetSettings
from appliance.kernel.clock import SystemClock
from appliance.kernel.log import Log
from appliance.workspace.datadir import STORES, DataDir
from appliance.workspace.schema import create_workspace
from tests.support.clock import FakeClock
from tests.support.database_files import execute
from tests.support.scheduled_backup import CommandLine, make_backup, verified
from tests.support.workspaces import Filled

pytestmark = pytest.mark.slow

DAY = 86_400.0
ROUND = ["create", "verify", "prune"]
TARGETS = (TargetSettings(name="disk", url="file:///mnt"),)


class Scheduler:
    """One process after another in one workspace."""

    def __init__(self, path, **settings):
        Filled(path, messages=1)
        self.datadir = DataDir(path)
        self.clock = FakeClock()
        self.settings = BackupSettings(**{"every_seconds": DAY, **settings})
        self.backups = BackupDirectory(self.datadir, self.settings)
        work = BackupWorkspace(self.datadir, self.settings, self.backups, self.clock)
        self.command_line = CommandLine(work)
        self.restart()

    def restart(self):
        self.log = io.BytesIO()
        self.loop = BackupScheduler(
            self.command_line, self.backups, self.datadir.backups,
            partial(has_data, self.datadir, STORES), self.settings, self.clock, Log(self.log),
        )  # fmt: skip

    def after(self, seconds, step=60.0):
        """What it did in these seconds."""
        end = self.clock.seconds + seconds
        while self.clock.seconds < end:
            self.loop.run_once(self.clock.now_ms())
            self.clock.pass_seconds(min(step, end - self.clock.seconds))
        self.loop.run_once(self.clock.now_ms())
        return self.command_line.did()

    @property
    def logged(self):
        return [line for line in self.log.getvalue().decode().splitlines() if '"error"' in line]


@pytest.fixture
def daily(tmp_path):
    """A schedule whose first backup was made now."""
    made = Scheduler(tmp_path)
    assert made.after(0) == ROUND
    return made


def test_backup_is_made_verified_and_older_ones_pruned_once_a_day(daily):
    assert daily.after(DAY - 1) == []
    assert daily.after(60) == ROUND
    done = daily.after(3 * DAY)  # and each day a kept one is verified again
    assert [done.count(each) for each in ROUND] == [3, 6, 6]


def test_first_backup_follows_the_first_row(tmp_path):
    scheduler = Scheduler(tmp_path)
    hub = scheduler.datadir.database("hub")
    for file in (hub, hub.with_name(f"{hub.name}-wal"), hub.with_name(f"{hub.name}-shm")):
        file.unlink(missing_ok=True)
    create_workspace(
        scheduler.datadir, clock=SystemClock(), log=Log(io.BytesIO()), accepted=["hub"]
    )
    assert scheduler.after(3600, step=5.0) == []
    execute(hub, "INSERT INTO channels VALUES ('ch_1', 'a', NULL, 'now')")
    assert scheduler.after(29, step=5.0) == []
    assert scheduler.after(6, step=5.0) == ROUND


def test_restart_neither_repeats_nor_forgets(daily):
    daily.after(DAY / 2)
    daily.restart()
    assert daily.after(DAY / 2 - 60) == ["prune"]  # which an earlier process may have missed
    daily.restart()
    assert daily.after(120) == ["prune", *ROUND]


def test_bad_backup_pushes_nothing_out_and_is_not_uploaded(tmp_path):
    scheduler = Scheduler(tmp_path, targets=TARGETS)
    scheduler.command_line.result = "bad"
    assert scheduler.after(DAY / 2) == ["create", "verify"]
    assert [
        failure.code for failure in read_failures(scheduler.backups.root, scheduler.settings)
    ] == ["BACKUP_VERIFICATION_FAILED"]
    scheduler.command_line.result = "good"
    assert scheduler.after(DAY / 2) == [*ROUND, "upload"]
    assert read_failures(scheduler.backups.root, scheduler.settings) == []


def failing(count=100):
    return [BackupNotWritable("it failed", hint="df") for _ in range(count)]


def test_failures_are_tried_again_ever_later_and_logged_once(tmp_path):
    scheduler = Scheduler(tmp_path)
    scheduler.command_line.faults["create"] = failing()
    assert scheduler.after(120, step=5.0) == ["create", "create"]
    # 1, 2, 4 … 32 minutes, then every hour
    assert 25 <= len(scheduler.after(DAY)) <= 31
    assert len(scheduler.logged) == 1
    (failure,) = read_failures(scheduler.backups.root, scheduler.settings)
    assert (failure.phase, failure.hint) == ("create", "df")
    scheduler.command_line.faults.clear()
    assert scheduler.after(7200) == ROUND
    assert read_failures(scheduler.backups.root, scheduler.settings) == []
    assert "backups work again" in scheduler.log.getvalue().decode()


@pytest.mark.parametrize(
    ("phase", "first", "again"),
    [
        ("verify", ["create", "verify"], ["verify", "prune", "upload"]),
        ("prune", [*ROUND, "upload"], ["prune", "upload"]),
        ("upload", [*ROUND, "upload"], ["prune", "upload"]),
    ],
)
def test_phase_that_failed_is_tried_again_without_another_backup(tmp_path, phase, first, again):
    scheduler = Scheduler(tmp_path, targets=TARGETS)
    scheduler.command_line.faults[phase] = failing(1)
    assert scheduler.after(50, step=5.0) == first
    assert scheduler.after(60, step=5.0) == again
    assert scheduler.after(7200) == []


def test_inconclusive_backup_pushes_nothing_out_and_is_uploaded(tmp_path):
    scheduler = Scheduler(tmp_path, targets=TARGETS)
    scheduler.command_line.result = "inconclusive"
    assert scheduler.after(DAY / 2) == ["create", "verify", "upload"]


def test_backup_of_another_process_is_not_a_failure(tmp_path):
    scheduler = Scheduler(tmp_path)
    scheduler.command_line.faults["create"] = [BackupRunning()]
    assert scheduler.after(5, step=5.0) == ["create", *ROUND]
    assert scheduler.logged == []


def test_upload_of_another_process_is_not_a_failure_and_is_tried_again(tmp_path):
    scheduler = Scheduler(tmp_path, targets=TARGETS)
    scheduler.command_line.faults["upload"] = [BackupRunning(), BackupRunning()]
    assert scheduler.after(5, step=5.0) == [*ROUND, "upload", "prune", "upload"]
    assert scheduler.after(120, step=5.0) == ["prune", "upload"]
    assert scheduler.logged == []


def test_manual_backup_counts_and_a_safety_copy_does_not(tmp_path):
    scheduler = Scheduler(tmp_path)
    make_backup(scheduler.backups, scheduler.clock.now_ms(), "manual")
    assert scheduler.after(DAY - 60) == []
    make_backup(scheduler.backups, scheduler.clock.now_ms(), "before-restore")
    make_backup(scheduler.backups, scheduler.clock.now_ms(), "before-migration")
    assert scheduler.after(60) == ROUND


@pytest.mark.parametrize("days", [-400, 400])
def test_clock_change_makes_at_most_one_more_backup(daily, days):
    daily.after(DAY / 2)
    daily.clock.ms += int(days * DAY * 1000)
    assert 2 <= daily.after(2 * DAY).count("create") <= 3
    daily.clock.ms -= int(days * DAY * 1000)
    assert 1 <= daily.after(2 * DAY).count("create") <= 3


def test_clock_that_is_set_all_the_time_does_not_fill_the_disk(daily):
    made = []
    for _ in range(200):
        daily.clock.ms += int(2 * DAY * 1000)
        made += daily.after(60)
    assert made.count("create") <= 200 * 60 / 3600 + 1


def test_switched_off_makes_only_requested_backups(tmp_path):
    scheduler = Scheduler(tmp_path, enabled=False)
    assert scheduler.after(3 * DAY) == []
    scheduler.loop.request()
    assert scheduler.after(60) == ROUND
    assert scheduler.after(3 * DAY) == []


def test_one_kept_backup_is_verified_again_each_day(tmp_path):
    """The one that was not checked for the longest time, also if its check has no result."""
    scheduler = Scheduler(tmp_path, every_seconds=100 * DAY)
    now_ms, day_ms = scheduler.clock.now_ms(), int(DAY * 1000)
    first, second, third, newest = (
        make_backup(scheduler.backups, now_ms - day_ms * age).name for age in (4, 3, 2, 0)
    )
    for age, name in enumerate((second, first, newest), 1):
        verified(scheduler.backups, name, "good", now_ms - day_ms - 1)
        os.utime(scheduler.backups.path(name) / VERIFICATION, (age, age))
    assert scheduler.after(3000) == []
    checked, failures = [], []
    for result in ("inconclusive", "bad", "good", "good"):
        scheduler.command_line.result = result
        assert scheduler.after(DAY) == ["verify"]
        checked.append(scheduler.command_line.verified[-1])
        failures += read_failures(scheduler.datadir.backups, scheduler.settings)
    assert checked == [third, second, first, third]
    assert [failure.error for failure in failures] == [f"{second}: it is bad"]
