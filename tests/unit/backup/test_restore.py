"""A restore replaces the whole workspace, says what is lost, and can be undone."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from appliance.backup.errors import (
    BackupNotWritable,
    RestoreRefused,
    VerificationFailed,
    VersionRefused,
)
from appliance.backup.manifest import BackupManifest
from appliance.kernel import event_ids
from appliance.kernel.errors import ApplianceError, Invalid
from appliance.workspace import epochs
from appliance.workspace.datadir import DataDir, HubRunning, WriterLock
from tests.support.commands import run
from tests.support.restored_workspace import (
    SETTINGS,
    BackedUp,
    content_of,
    epoch_of,
    rows_of,
    tree_of,
)

pytestmark = pytest.mark.slow
FULL = replace(SETTINGS, free_bytes_min=2**60)
COUNT = "SELECT count(*) FROM messages"
SEQUENCE = "SELECT seq FROM sqlite_sequence WHERE name = 'events'"


def test_restored_workspace_has_the_rows_of_the_backup_and_a_new_epoch(workspace: BackedUp) -> None:
    made, before = workspace.back_up(), epoch_of(workspace.datadir)
    workspace.add(3)
    done = workspace.restore(made)
    assert workspace.rows(COUNT) == [(5,)]
    assert epoch_of(workspace.datadir) == done.plan.epoch != before
    assert done.rows["hub"]["messages"] == 5
    assert not (workspace.datadir.dir / "restore").exists()
    assert not (workspace.datadir.dir / "restore.json").exists()


def test_event_ids_continue_above_the_highest_that_was_ever_given_out(workspace: BackedUp) -> None:
    made = workspace.back_up()
    workspace.add(3)
    done = workspace.restore(made)
    assert workspace.rows(SEQUENCE) == [(8 + 2**32,)]
    assert done.plan.first_event_id == 8 + 2**32 + 1
    workspace.add(1)
    assert workspace.rows("SELECT max(event_id) FROM events") == [(9 + 2**32,)]
    again = workspace.restore(made)
    assert workspace.rows(SEQUENCE) == [(9 + 2 * 2**32,)]
    listed = epochs.read(workspace.datadir)
    assert [each.first_event_id for each in listed] == [1, 9 + 2**32, 10 + 2 * 2**32]
    assert [each.epoch for each in listed[1:]] == [done.plan.epoch, again.plan.epoch]
    assert [each.highest_before for each in listed] == [0, 8, 9 + 2**32]


def test_plan_says_what_is_lost_and_changes_no_byte(workspace: BackedUp) -> None:
    made = workspace.back_up()
    workspace.add(3)
    before = tree_of(workspace.datadir)
    plan = workspace.plan(made)
    after = tree_of(workspace.datadir)
    assert sorted(after) == sorted(before)
    assert [name for name in before if before[name] != after[name]] == []
    lost = {(each.noun, each.count) for each in plan.notices if each.kind == "lost"}
    assert lost == {("message", 3), ("event", 3)}
    assert ".agentlip/db.sqlite3" in plan.replaced
    assert plan.epoch == ""
    assert plan.first_event_id == 8 + 2**32 + 1


def test_plan_lists_settings_that_the_restore_changes(workspace: BackedUp) -> None:
    file = workspace.datadir.settings_file
    file.write_text('[hooks]\ncommands = ["evil"]\n"\\u001b" = 1\n[log]\nlevel = "info"\n')
    made = workspace.back_up()
    file.write_text('[log]\nlevel = "info"\n')
    plan = workspace.plan(made)
    assert [(each.name, each.before, each.after) for each in plan.settings] == [
        ("hooks.\x1b", "not set", "1"),
        ("hooks.commands", "not set", '["evil"]'),
    ]
    shown = run("agentlip", "backup", "restore", made.name, "--plan", cwd=file.parent).out
    assert 'would change the setting hooks.commands: not set → ["evil"]' in shown
    assert "\x1b" not in shown
    assert workspace.restore(made).plan.settings == plan.settings


def test_undo_brings_the_state_before_back(workspace: BackedUp) -> None:
    made = workspace.back_up()
    workspace.add(3)
    done = workspace.restore(made)
    safety = workspace.backups.read(done.safety)
    assert safety.reason == "before-restore"
    workspace.restore(safety)
    assert workspace.rows(COUNT) == [(8,)]


def test_damaged_present_state_is_kept_as_files(workspace: BackedUp) -> None:
    made = workspace.back_up()
    damaged = b"SQLite format 3\0" + b"x" * 5000
    workspace.datadir.database("hub").write_bytes(damaged)
    done = workspace.restore(made)
    assert done.safety == ""
    assert done.plan.uncompared == ("hub",)
    kept = workspace.datadir.workspace / done.kept_as / ".agentlip" / "db.sqlite3"
    assert kept.read_bytes() == damaged
    assert workspace.rows(COUNT) == [(5,)]


def test_running_appliance_is_refused(workspace: BackedUp) -> None:
    made = workspace.back_up()
    with WriterLock(workspace.datadir, "other"), pytest.raises(HubRunning):
        workspace.restore(made)
    assert workspace.plan(made).running is False


def test_backup_of_another_workspace_is_refused(workspace: BackedUp, tmp_path: Path) -> None:
    other = BackedUp(tmp_path / "other")
    before = content_of(other.datadir)
    with pytest.raises(RestoreRefused, match="another workspace"):
        workspace.restore(workspace.back_up(), target=other.datadir)
    assert content_of(other.datadir) == before


def of_another_epoch(made: BackupManifest) -> BackupManifest:
    return replace(made, epoch="of-a-copy")


def of_a_newer_schema(made: BackupManifest) -> BackupManifest:
    return replace(made, stores=made.stores | {"hub": replace(made.stores["hub"], schema=999)})


def with_other_rows(made: BackupManifest) -> BackupManifest:
    hub = made.stores["hub"]
    rows = hub.rows | {"messages": 6}
    return replace(made, stores=made.stores | {"hub": replace(hub, rows=rows)})


@pytest.mark.parametrize(
    ("change", "options", "error", "text"),
    [
        (of_another_epoch, {}, RestoreRefused, "never had"),
        (of_a_newer_schema, {}, VersionRefused, "hub has schema 999"),
        (with_other_rows, {}, VerificationFailed, "hub: messages has 5 rows"),
        (None, {"stores": ("nothing",)}, Invalid, "no store nothing"),
        (None, {"settings": FULL}, BackupNotWritable, "are free"),
    ],
)
def test_refused_restore_changes_nothing(
    workspace: BackedUp, change: Any, options: Any, error: type[ApplianceError], text: str
) -> None:
    made = workspace.back_up()
    before = content_of(workspace.datadir)
    with pytest.raises(error, match=text):
        workspace.restore(change(made) if change else made, **options)
    assert content_of(workspace.datadir) == before


def test_new_directory_gets_everything_with_a_new_epoch(
    workspace: BackedUp, tmp_path: Path
) -> None:
    made, before = workspace.back_up(), content_of(workspace.datadir)
    target = DataDir(tmp_path / "copy")
    done = workspace.restore(made, target=target, new=True)
    assert content_of(workspace.datadir) == before
    assert rows_of(target, COUNT) == [(5,)]
    assert target.read_token() == workspace.datadir.read_token()
    assert epoch_of(target) == done.plan.epoch != epoch_of(workspace.datadir)
    assert done.safety == ""
    assert done.undo == ""
    for path in (target.dir, *target.dir.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path


def test_directory_with_files_is_refused(workspace: BackedUp, tmp_path: Path) -> None:
    target = tmp_path / "full"
    target.mkdir()
    (target / "file").write_text("mine")
    with pytest.raises(RestoreRefused, match="not an empty"):
        workspace.restore(workspace.back_up(), target=DataDir(target), new=True)
    assert [path.name for path in target.iterdir()] == ["file"]


def test_one_store_is_restored_and_the_others_stay(workspace: BackedUp) -> None:
    made, epoch = workspace.back_up(), epoch_of(workspace.datadir)
    workspace.add(1)
    before = content_of(workspace.datadir)
    done = workspace.restore(made, stores=("hub",))
    after = content_of(workspace.datadir)
    changed = {name for name in after if before.get(name) != after[name]}
    assert changed == {"hub", "auth", ".agentlip/epochs.json"}
    assert workspace.rows(COUNT) == [(5,)]
    assert workspace.rows(SEQUENCE) == [(6 + 2**32,)]
    assert epoch_of(workspace.datadir) == done.plan.epoch != epoch
    assert done.undo == f"agentlip backup restore {done.safety} --store hub --yes"


@pytest.mark.parametrize("damaged", [False, True])
def test_store_of_the_epoch_is_restored_with_the_epoch_of_the_events(
    workspace: BackedUp, damaged: bool
) -> None:
    made = workspace.back_up()
    epoch = workspace.restore(made).plan.epoch
    event_ids.begin(workspace.datadir.dir, epoch, 5)
    before = content_of(workspace.datadir)["hub"]
    if damaged:
        workspace.datadir.database("auth").write_bytes(b"damaged")
        with pytest.raises(RestoreRefused, match="auth can't be read"):
            workspace.restore(made, stores=("hub",))
    done = workspace.restore(made, stores=("auth",))
    assert (done.plan.epoch, done.plan.first_event_id) == ("", 0)
    assert epoch_of(workspace.datadir) == epoch != made.epoch
    assert content_of(workspace.datadir)["hub"] == before
