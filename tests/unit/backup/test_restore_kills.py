"""A restore that is killed, or whose disk is full, leaves the old state or the new one."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from appliance.backup.errors import BackupNotWritable
from appliance.backup.manifest import BackupManifest
from appliance.kernel.errors import StorageFull
from appliance.workspace import swap
from tests.support import forks
from tests.support.restored_workspace import CLOCK, BackedUp, content_of, epoch_of
from tests.support.smalldisk import small_disk

pytestmark = pytest.mark.slow
COMMITTED = "committed"
CHANGED = "# changed since the backup\n"
Reached = Callable[[str], None]
COUNT = "SELECT count(*) FROM messages"


def killed_at(number: int, workspace: BackedUp, work: Callable[[Reached], object]) -> str:
    """The step after which the process was killed; "" if it ended before."""
    last = workspace.datadir.workspace.with_name("last-step")

    def count(reach: Callable[[], None]) -> None:
        def reached(step: str) -> None:
            last.write_text(step)
            reach()

        work(reached)

    return last.read_text() if forks.killed_at(number, count) else ""


@pytest.fixture
def prepared(tmp_path: Path) -> tuple[BackedUp, BackupManifest]:
    workspace = BackedUp(tmp_path / "w")
    workspace.datadir.settings_file.write_text("[log]\n")
    made = workspace.back_up()
    workspace.add(3)
    workspace.datadir.settings_file.write_text(CHANGED)
    return workspace, made


def steps_of(workspace: BackedUp, made: BackupManifest) -> list[str]:
    steps: list[str] = []
    workspace.restore(made, steps.append)
    return steps


class Copies:
    """The same workspace again for every step."""

    def __init__(self, workspace: BackedUp, folder: Path) -> None:
        self.workspace = workspace
        self._copy = folder / "copy"
        shutil.copytree(workspace.datadir.workspace, self._copy)

    def reset(self) -> None:
        shutil.rmtree(self.workspace.datadir.workspace)
        shutil.copytree(self._copy, self.workspace.datadir.workspace)


def test_kill_after_any_step_leaves_the_old_state_or_the_new_one(
    prepared: tuple[BackedUp, BackupManifest], tmp_path: Path
) -> None:
    workspace, made = prepared
    copies = Copies(workspace, tmp_path)
    old, old_epoch = content_of(workspace.datadir), epoch_of(workspace.datadir)
    steps = steps_of(workspace, made)
    commit = steps.index(COMMITTED)
    assert commit > 1
    for number, step in enumerate(steps):
        copies.reset()
        assert killed_at(number + 1, workspace, partial(workspace.restore, made)) == step
        settled = swap.settle_if_stopped(workspace.datadir, CLOCK)
        if number < commit:
            assert content_of(workspace.datadir) == old, step
            assert settled == "undone"
        else:
            assert workspace.rows(COUNT) == [(5,)], step
            assert workspace.datadir.settings_file.read_text() != CHANGED
            assert epoch_of(workspace.datadir) != old_epoch
            assert settled == "completed"
        assert not swap.is_pending(workspace.datadir)
        assert workspace.restore(made).rows["hub"]["messages"] == 5


def test_kill_while_a_restore_is_completed_is_completed_by_the_next_start(
    prepared: tuple[BackedUp, BackupManifest],
) -> None:
    workspace, made = prepared
    steps = steps_of(workspace, made)
    workspace.add(1)
    killed_at(steps.index(COMMITTED) + 1, workspace, partial(workspace.restore, made))
    kills = 0
    while swap.is_pending(workspace.datadir) and kills < 100:
        kills += bool(killed_at(1, workspace, workspace.settle))
    assert kills > 5
    assert workspace.rows(COUNT) == [(5,)]


def test_log_of_a_replaced_store_is_not_applied_to_the_new_one(
    prepared: tuple[BackedUp, BackupManifest],
) -> None:
    workspace, made = prepared
    connection = workspace.filled.connect()
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("INSERT INTO meta VALUES ('x_written_to_the_log', '1')")
    connection.commit()
    log = workspace.datadir.dir / "db.sqlite3-wal"
    kept = log.read_bytes()
    connection.close()
    steps: list[str] = []

    def reached(step: str) -> None:
        if step == COMMITTED:
            log.write_bytes(kept)
        steps.append(step)

    workspace.restore(made, reached)
    assert "moved db.sqlite3-wal" in steps
    assert not log.exists()
    assert workspace.rows("SELECT 1 FROM meta WHERE key = 'x_written_to_the_log'") == []


def test_damaged_journal_is_reported_and_not_guessed(
    prepared: tuple[BackedUp, BackupManifest],
) -> None:
    workspace, _ = prepared
    (workspace.datadir.dir / swap.FILE).write_text("{")
    with pytest.raises(swap.SwapUnreadable):
        swap.settle(workspace.datadir)


def test_full_disk_at_any_step_leaves_a_whole_state(tmp_path: Path) -> None:
    with small_disk(tmp_path, "tmpfs", 64) as disk:
        workspace = BackedUp(disk.root / "w")
        made = workspace.back_up()
        workspace.add(3)
        steps = ["", *steps_of(workspace, made)]
        safety = workspace.backups.names()[-1]
        workspace.restore(workspace.backups.read(safety))
        for at, step in enumerate(steps):
            workspace.add(1)
            old_rows = workspace.rows(COUNT)

            def fill(reached: str, step: str = step) -> None:
                if reached == step:
                    disk.fill()

            if not step:
                disk.fill()
            with suppress(BackupNotWritable, StorageFull):
                workspace.restore(made, fill)
            disk.clear()
            swap.settle_if_stopped(workspace.datadir, CLOCK)
            committed = at >= steps.index(COMMITTED)
            assert workspace.rows(COUNT) == ([(5,)] if committed else old_rows), step
            assert not swap.is_pending(workspace.datadir)
            for name in workspace.backups.names():
                if name != made.name:
                    with workspace.backups.only_writer():
                        workspace.backups.remove(name)
