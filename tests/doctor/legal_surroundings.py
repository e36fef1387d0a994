"""Legal configurations that lie in the environment and the users of a machine; see `legal`."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from appliance.backup.backup_directory import BackupDirectory
from appliance.backup.settings import BackupSettings
from appliance.cli import main
from appliance.kernel.clock import SystemClock
from tests.doctor.legal import Legal, Setup, serving, talk
from tests.support.scheduled_backup import make_backup, verified


@contextmanager
def environment_of(**variables: str) -> Iterator[None]:
    """Backups variables for this process and those that it starts."""
    before = dict(os.environ)
    os.environ.update(variables)
    time.tzset()
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        time.tzset()


def with_settings_in_the_environment(setup: Setup) -> Legal:
    setup.used()
    with environment_of(AGENTLIP_HTTP__PORT="0", AGENTLIP_ROLES__COURIER="false"):
        yield setup.workspace


def in_another_time_zone(setup: Setup) -> Legal:
    setup.used()
    with environment_of(TZ="Pacific/Kiritimati"), serving(setup.workspace) as hub:
        talk(hub)
        yield setup.workspace


def open_to_a_group_of_the_owner_alone(setup: Setup) -> Legal:
    """As `umask 007` leaves copied files on systems where each user has a group."""
    used = setup.used()
    for path in (used.data.dir, *used.data.dir.glob("*.sqlite3"), used.data.logs):
        path.chmod(0o770 if path.is_dir() else 0o660)
    yield setup.workspace


def token_in_the_environment(setup: Setup) -> Legal:
    """A token of a person who may only read: the doctor has the one of the workspace."""
    setup.used()
    with serving(setup.workspace) as hub:
        command = {"name": "person", "scopes": ["hub:read"]}
        token = hub.made(hub.http.post("/api/v1/tokens", command))["secret"]
        with environment_of(AGENTLIP_TOKEN=token):
            yield setup.workspace


def backed_up(setup: Setup) -> Legal:
    """A verified backup, one that nobody verified yet, and a safety copy of a restore."""
    used = setup.used()
    now_ms = SystemClock().now_ms()
    backups = BackupDirectory(used.data, BackupSettings())
    for hours, reason in ((30, "schedule"), (2, "manual"), (1, "before-restore")):
        made = make_backup(backups, now_ms - hours * 3_600_000, reason)
        if reason == "schedule":
            verified(backups, made.name, "good", now_ms - hours * 3_600_000)
    yield setup.workspace


def restored_and_used(setup: Setup) -> Legal:
    """A real backup, put back after more was written: event ids have a gap, the epoch is new."""
    setup.used()
    workspace = ["--workspace", str(setup.workspace)]
    agentlip("backup", "create", *workspace)
    with serving(setup.workspace) as hub:
        talk(hub)
        assert hub.stop() == 0
    agentlip("backup", "restore", "--latest", "--yes", *workspace)
    with serving(setup.workspace) as hub:
        talk(hub)
        yield setup.workspace


def agentlip(*arguments: str) -> None:
    assert main([*arguments, "--json"]) == 0


def backups_are_kept_elsewhere(setup: Setup) -> Legal:
    used = setup.used()
    (setup.folder / "backups").mkdir()
    with used.data.settings_file.open("a") as file:
        file.write(f'\n[backup]\ndirectory = "{setup.folder}/backups"\nverify = false\n')
    backups = BackupDirectory(used.data, BackupSettings(directory=f"{setup.folder}/backups"))
    make_backup(backups, SystemClock().now_ms() - 30 * 3_600_000, "schedule")
    yield setup.workspace


SURROUNDINGS_NEED_ROOT = {open_to_a_group_of_the_owner_alone}
SURROUNDINGS = (
    with_settings_in_the_environment, in_another_time_zone, open_to_a_group_of_the_owner_alone,
    token_in_the_environment, backed_up, restored_and_used, backups_are_kept_elsewhere,
)  # fmt: skip
