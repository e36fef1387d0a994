"""Legal configurations, one function each: it yields the workspace to be checked.

A function gets a folder of its own and a way to copy the workspace that the product made and used.
"""

import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from appliance.kernel.clock import SystemClock
from appliance.kernel.log import Log
from appliance.process.daemon import init_workspace
from appliance.workspace.datadir import DataDir, WriterLock
from appliance.workspace.schema import create_workspace
from tests.doctor.breakages import UsedWorkspace
from tests.support.commands import environment, succeed
from tests.support.foreignhub import foreign_hub
from tests.support.servedhub import ServedHub
from tests.support.smalldisk import small_disk
from tests.support.until import until
from tests.support.workspaces import Filled

MESSAGE_EVENTS = (
    "INSERT INTO events (ts, name, scope_channel_id, scope_topic_id, entity_type, entity_id,"
    " data_json) SELECT created_at, 'message.created', channel_id, topic_id, 'message', id,"
    " json_object('message', json_object('id', id, 'topic_id', topic_id, 'channel_id', channel_id,"
    " 'sender', sender, 'content_raw', content_raw, 'version', version, 'created_at', created_at,"
    " 'edited_at', NULL, 'deleted_at', NULL, 'deleted_by', NULL)) FROM messages"
    " WHERE id NOT IN (SELECT entity_id FROM events WHERE name = 'message.created') ORDER BY id"
)
"""The events of messages without one."""


class Setup(NamedTuple):
    """`copy(path)` copies the used workspace to a path that does not exist."""

    folder: Path
    copy: Callable[[Path], UsedWorkspace]

    def used(self, name: str = "workspace") -> UsedWorkspace:
        return self.copy(self.folder / name)

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"


Legal = Iterator[Path]


@contextmanager
def serving(workspace: Path, settings: str = "", **more: str) -> Iterator[ServedHub]:
    """A hub that is killed at the end, if it still runs. `settings` are added to the file's."""
    path = DataDir(workspace).settings_file
    workspace.mkdir(exist_ok=True)
    path.write_text((path.read_text() if path.exists() else "") + settings)
    hub = ServedHub(workspace, "--no-limits")
    with hub.running(ending=signal.SIGKILL):
        yield hub


def talk(hub: ServedHub, count: int = 10) -> None:
    _, topic = hub.channel_with_topic(f"channel-{hub.head}")
    hub.send_many(topic, [f"message {number}" for number in range(count)])


def serve_once(workspace: Path) -> None:
    with serving(workspace) as hub:
        talk(hub)
        assert hub.stop() == 0


# -- files and places --------------------------------------------------------------------------


def made_by_the_command(setup: Setup) -> Legal:
    setup.workspace.mkdir()
    succeed("init", cwd=setup.workspace)
    yield setup.workspace


def used_and_stopped(setup: Setup) -> Legal:
    yield setup.used().data.workspace


def odd_path(setup: Setup) -> Legal:
    yield setup.used("ein Ördner %20 #1?x='y' 東京").data.workspace


def on_tmpfs(setup: Setup) -> Legal:
    with small_disk(setup.folder, "tmpfs", 256) as disk:
        yield setup.copy(disk.root / "w").data.workspace


def data_directory_is_a_mount(setup: Setup) -> Legal:
    used = setup.used()
    volume = setup.folder / "volume"
    shutil.copytree(used.data.dir, volume)
    volume.chmod(0o755)
    subprocess.run(["mount", "--bind", str(volume), str(used.data.dir)], check=True)
    try:
        yield setup.workspace
    finally:
        subprocess.run(["umount", "-l", str(used.data.dir)], check=True)


def token_is_a_secret_that_is_mounted(setup: Setup) -> Legal:
    used = setup.used()
    secret = setup.folder / "secret"
    shutil.copy(used.data.token_file, secret)
    secret.chmod(0o400)
    subprocess.run(["mount", "--bind", str(secret), str(used.data.token_file)], check=True)
    command = ["mount", "-o", "remount,bind,ro", str(used.data.token_file)]
    try:
        subprocess.run(command, check=True)
        yield setup.workspace
    finally:
        subprocess.run(["umount", "-l", str(used.data.token_file)], check=True)


def token_is_a_link_to_a_secret(setup: Setup) -> Legal:
    used = setup.used()
    secret = setup.folder / "secret"
    used.data.token_file.rename(secret)
    used.data.token_file.symlink_to(secret)
    yield setup.workspace


def made_with_a_shared_umask(setup: Setup) -> Legal:
    before = os.umask(0o002)
    try:
        with serving(setup.workspace) as hub:
            talk(hub)
            hub.stop()
    finally:
        os.umask(before)
    hub.log.unlink()
    yield setup.workspace


def of_another_user(setup: Setup) -> Legal:
    """As root checks the workspace of a service's user."""
    used = setup.used()
    for path in (used.data.workspace, *used.data.workspace.rglob("*")):
        os.chown(path, 12_345, 12_345)
    yield setup.workspace


def tables_of_others(setup: Setup) -> Legal:
    used = setup.used()
    used.execute("CREATE TABLE theirs (id TEXT)")
    used.execute("CREATE INDEX theirs_by_sender ON messages(sender)")
    used.execute("CREATE VIEW theirs_new AS SELECT * FROM messages")
    yield setup.workspace


# -- settings and roles ------------------------------------------------------------------------


def without(role: str) -> Callable[[Setup], Legal]:
    """The role was on before, so its store exists."""

    def legal(setup: Setup) -> Legal:
        used = setup.used()
        with used.data.settings_file.open("a") as file:
            file.write(f"\n[roles]\n{role} = false\n")
        yield setup.workspace

    legal.__name__ = f"without_{role}"
    return legal


def only_the_hub_ever(setup: Setup) -> Legal:
    off = ("courier", "outbox", "inbox", "broker", "jobs")
    data = DataDir(setup.workspace)
    log = Log(io.BytesIO())
    create_workspace(data, clock=SystemClock(), log=log, locked=True, stores=("auth", "hub"))
    assert not data.database("broker").exists()
    data.settings_file.write_text("[roles]\n" + "".join(f"{role} = false\n" for role in off))
    yield setup.workspace


def no_role_but_the_courier_running(setup: Setup) -> Legal:
    off = ("hub", "outbox", "inbox", "broker")
    settings = "[roles]\n" + "".join(f"{role} = false\n" for role in off)
    with serving(setup.workspace, settings):
        yield setup.workspace


def with_an_agent_of_the_network(setup: Setup) -> Legal:
    setup.used()
    relay, endpoint = "https://relay.example.org", "https://cleo.example.org/network/inbox"
    command = ("network", "init", "cleo", "--relay", relay, "--endpoint", endpoint)
    succeed(*command, cwd=setup.workspace)
    yield setup.workspace


def with_an_export_that_others_may_read(setup: Setup) -> Legal:
    used = setup.used()
    for path in (used.data.dir / "export").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    yield setup.workspace


# -- other programs, other versions ------------------------------------------------------------


def foreign(workspace: Path) -> None:
    """Messages with their events, and without what only this program adds."""
    filled = Filled(workspace, foreign=True)
    with closing(filled.connect()) as connection, connection:
        connection.execute(MESSAGE_EVENTS)


def made_by_another_program(setup: Setup) -> Legal:
    foreign(setup.workspace)
    yield setup.workspace


def served_by_another_program(setup: Setup) -> Legal:
    used = setup.used()
    with foreign_hub(used.data):
        used.data.server_file.chmod(0o600)
        yield setup.workspace


def adopted_and_used(setup: Setup) -> Legal:
    foreign(setup.workspace)
    serve_once(setup.workspace)
    yield setup.workspace


def without_fts5(setup: Setup) -> Legal:
    os.environ["TESTS_WITHOUT_FTS5"] = "1"
    try:
        program = (
            "import sys; from pathlib import Path;"
            "from tests.doctor.workspace import WorkspaceFixture as W; W(Path(sys.argv[1])).talk(3)"
        )
        command = [sys.executable, "-c", program, str(setup.workspace)]
        subprocess.run(command, check=True, env=environment())
    finally:
        del os.environ["TESTS_WITHOUT_FTS5"]
    yield setup.workspace


def after_a_snapshot_was_put_back(setup: Setup) -> Legal:
    """The hub's file alone, as the documentation says: every other store stays."""
    used = setup.used()
    database = used.data.database("hub")
    used.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy2(database, setup.folder / "snapshot")
    serve_once(setup.workspace)
    for suffix in ("", "-wal", "-shm"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)
    shutil.copy2(setup.folder / "snapshot", database)
    init_workspace(setup.workspace, ("hub",))
    serve_once(setup.workspace)
    yield setup.workspace


# -- processes ---------------------------------------------------------------------------------


def running(setup: Setup) -> Legal:
    setup.used()
    with serving(setup.workspace) as hub:
        talk(hub)
        until(lambda: hub.http.get("/-/ready").status == 200)
        yield setup.workspace


def held_by_a_starting_process(setup: Setup) -> Legal:
    """It took the lock just now and has written nothing else yet."""
    lock = WriterLock(setup.used().data, "starting", SystemClock())
    lock.acquire()
    try:
        yield setup.workspace
    finally:
        lock.release()


ROLES = ("hub", "outbox", "broker", "mcp")
NEED_ROOT = {
    on_tmpfs, data_directory_is_a_mount, token_is_a_secret_that_is_mounted, of_another_user,
}  # fmt: skip
LEGAL = (
    made_by_the_command, used_and_stopped, odd_path, on_tmpfs, data_directory_is_a_mount,
    token_is_a_secret_that_is_mounted, token_is_a_link_to_a_secret, made_with_a_shared_umask,
    of_another_user, tables_of_others, *(without(role) for role in ROLES), only_the_hub_ever,
    no_role_but_the_courier_running, with_an_agent_of_the_network, served_by_another_program,
    with_an_export_that_others_may_read, made_by_another_program,
    adopted_and_used, without_fts5, after_a_snapshot_was_put_back, running,
    held_by_a_starting_process,
)  # fmt: skip
