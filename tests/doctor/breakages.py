"""What can be wrong with a workspace, one row each: how it is broken, and what must follow.

Every row is applied to a copy of a workspace that the product itself made and used.
"""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import msgspec

from appliance.audit.log import file as audit_file
from appliance.audit.log.record import AuditRecord
from appliance.checks.context import Context
from appliance.kernel import commit_count, event_ids
from appliance.kernel.clock import HOUR_MS, SystemClock, iso
from appliance.kernel.steady_clock import CLOCK_KEY, ClockNote, ClockReading, encode
from appliance.workspace.datadir import DataDir
from doctor.cli_options import settings_of
from tests.doctor.workspace import WorkspaceFixture
from tests.support.damage import leaf_of
from tests.support.database_files import damage_table, overwrite

Break = Callable[[WorkspaceFixture], None]
PAGE_BYTES = 4096
LOST = "the data is lost, so only a copy helps"
START = "the next start does it"
PEOPLE = "people decide what it should be"
DIFFERS = ("events.rows:differs", "events.rows-all:differs")


class Breakage(msgspec.Struct, frozen=True):
    """A row of the table.

    damage     breaks one thing
    finds      every finding above info that `check --all` has then, as `check:problem`; for a
               breakage that does no harm, its finding of severity info
    unrepaired why no repair can undo it; empty: `doctor repair --yes` does
    explained  findings with the cause that is reported for them
    flags      what `doctor repair --yes` needs in addition
    """

    name: str
    damage: Break
    finds: tuple[str, ...]
    unrepaired: str = ""
    explained: Mapping[str, str] = {}
    flags: tuple[str, ...] = ("--all",)


class UsedWorkspace(WorkspaceFixture):
    """A workspace as it was copied, with its own settings; nothing is started in it."""

    def start(self) -> None:
        pass

    def context(self, **more: object) -> Context:
        self.settings, off = settings_of(self.data)
        return super().context(**{"off": off, **more})


# -- ways to break -----------------------------------------------------------------------------


def mode(name: str, bits: int) -> Break:
    return lambda workspace: (workspace.data.workspace / name).chmod(bits)


def write(name: str, text: str, bits: int = 0o600) -> Break:
    def damage(workspace: WorkspaceFixture) -> None:
        path = workspace.data.workspace / name
        path.write_text(text.replace("HERE", str(workspace.data.workspace)))
        path.chmod(bits)

    return damage


def put(name: str, make: Callable[[Path], None]) -> Break:
    """Something else in place of a file, such as a folder or a FIFO."""

    def damage(workspace: WorkspaceFixture) -> None:
        path = workspace.data.workspace / name
        path.unlink(missing_ok=True)
        make(path)

    return damage


def remove(name: str) -> Break:
    def damage(workspace: WorkspaceFixture) -> None:
        path = workspace.data.workspace / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()

    return damage


def audited(path: Path) -> None:
    """Two records of the audit log."""
    for act in ("POST /a", "POST /b"):
        record = AuditRecord(0, workspace_now_ms(), act, "done", None, "server", "http", "{}")
        audit_file.append(path, record)


def changed_record(workspace: WorkspaceFixture) -> None:
    audited(workspace.data.database("audit"))
    sql("audit", "UPDATE log SET actor = 'nobody' WHERE seq = 2")(workspace)


def damaged_audit_log(workspace: WorkspaceFixture) -> None:
    path = workspace.data.database("audit")
    path.write_bytes(b"no database" * 1000)
    path.chmod(0o600)


def sql(store: str, *statements: str) -> Break:
    """As another program would do it: without foreign keys. `NOW` stands for the time in ms, and
    `PENDING` for the columns of a send that was not delivered."""

    def damage(workspace: WorkspaceFixture) -> None:
        words = {
            "NOW": str(workspace_now_ms()),
            "PENDING": "status = 'pending', delivered_at = NULL",
        }
        path = workspace.data.database(store)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            for statement in statements:
                for word, text in words.items():
                    statement = statement.replace(word, text)
                connection.execute(statement)

    return damage


def workspace_now_ms() -> int:
    return SystemClock().now_ms()


def all_of(*damages: Break) -> Break:
    def damage(workspace: WorkspaceFixture) -> None:
        for each in damages:
            each(workspace)

    return damage


def without_trigger(name: str, *statements: str) -> Break:
    """Changes rows that a trigger protects, and leaves the trigger as it was."""

    def damage(workspace: WorkspaceFixture) -> None:
        ((text,),) = workspace.execute("SELECT sql FROM sqlite_schema WHERE name = ?", name)
        sql("hub", f"DROP TRIGGER {name}", *statements, str(text))(workspace)

    return damage


def server_file(**more: object) -> Break:
    return lambda workspace: workspace.announce(**more)


# -- files -------------------------------------------------------------------------------------


def open_to_all(workspace: WorkspaceFixture) -> None:
    """`chmod -R`, except the exports, which may be open."""
    for path in (workspace.data.dir, *workspace.data.dir.rglob("*")):
        if "export" not in path.parts:
            path.chmod(path.stat().st_mode | 0o044)


def large_log_file(workspace: WorkspaceFixture) -> None:
    path = workspace.data.logs / "agentlipd.log"
    path.touch(0o600)
    os.truncate(path, 200 * 1024 * 1024)


def other_machine(workspace: WorkspaceFixture) -> None:
    path = workspace.data.dir / "identity" / "host_fingerprint.json"
    stored = json.loads(path.read_text())
    changed = {name: _other(value) for name, value in stored.items()}
    path.write_text(json.dumps(changed))


def _other(value: object) -> object:
    return value[::-1] + "0" if isinstance(value, str) else value


# -- stores ------------------------------------------------------------------------------------


def empty_file(store: str) -> Break:
    return lambda workspace: os.truncate(workspace.data.database(store), 0)


def no_header(store: str) -> Break:
    def damage(workspace: WorkspaceFixture) -> None:
        with workspace.data.database(store).open("r+b") as file:
            file.write(b"\xff" * 100)

    return damage


def broken_page(workspace: WorkspaceFixture) -> None:
    """The first page of the messages' table has no valid cells."""
    damage_table(workspace.data.database("hub"))


def of_another_workspace(store: str) -> Break:
    def damage(workspace: WorkspaceFixture) -> None:
        other = WorkspaceFixture(workspace.data.workspace.with_name("other"))
        shutil.copy(other.data.database(store), workspace.data.database(store))

    return damage


def of_another_program(store: str) -> Break:
    def damage(workspace: WorkspaceFixture) -> None:
        workspace.data.database(store).unlink()
        sql(store, "CREATE TABLE photos (id TEXT)")(workspace)
        workspace.data.database(store).chmod(0o600)

    return damage


def log_of_a_killed_process(workspace: WorkspaceFixture) -> None:
    """A write-ahead log that nobody wrote back."""
    workspace.data.settings_file.write_text(
        workspace.data.settings_file.read_text() + "\n[doctor]\nwal_warning_bytes = 1\n"
    )
    program = (
        "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1]);"
        "c.execute('PRAGMA wal_autocheckpoint = 0').fetchall();"
        "c.execute('INSERT INTO meta VALUES (1, 1)'); c.commit();"
        "c.execute('DELETE FROM meta WHERE key = 1'); c.commit(); os._exit(9)"
    )
    subprocess.run(
        [sys.executable, "-c", program, str(workspace.data.database("hub"))], check=False
    )


def damaged_log(workspace: WorkspaceFixture) -> None:
    """The first of the two commits that a killed process left."""
    log_of_a_killed_process(workspace)
    workspace.data.settings_file.write_text("")
    overwrite(workspace.data.dir / "db.sqlite3-wal", 1000, b"flipped")


def older_than_its_note(workspace: WorkspaceFixture) -> None:
    note = event_ids.read(workspace.data.dir)
    assert note is not None
    event_ids.begin(workspace.data.dir, note.owner, note.number + 5)


def skipped_index(workspace: WorkspaceFixture) -> None:
    """A row that an index does not contain, as a fault of the storage leaves it."""
    path = workspace.data.database("hub")
    read = "SELECT * FROM sqlite_schema WHERE name = 'idx_messages_created'"
    touch = "UPDATE messages SET created_at = ? WHERE created_at = ?"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        row = connection.execute(read).fetchone()
        (at,) = connection.execute("SELECT max(created_at) FROM messages").fetchone()
        connection.execute(touch, ("x", at))
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("DELETE FROM sqlite_schema WHERE name = 'idx_messages_created'")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(touch, (at, "x"))
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)", row)


def clock_set(workspace: WorkspaceFixture) -> None:
    """The outbox noted that the clock was set by two hours."""
    reading = ClockReading(workspace_now_ms(), 0, "an earlier boot")
    note = ClockNote(reading, 2 * HOUR_MS, iso(workspace_now_ms() - 60_000), 2 * HOUR_MS)
    workspace.execute(
        "INSERT OR REPLACE INTO meta VALUES (?, ?)", CLOCK_KEY, encode(note), store="outbox"
    )


OF_SWAPPED = dict.fromkeys(
    ("store.schema:edited", "store.migratable:half-migrated", "store.objects:missing",
     "store.schema:old"),
    "store.record:foreign",
)  # fmt: skip


def swapped(first: str, second: str) -> Break:
    def damage(workspace: WorkspaceFixture) -> None:
        left, right = workspace.data.database(first), workspace.data.database(second)
        left.rename(left.with_name("kept"))
        right.rename(left)
        left.with_name("kept").rename(right)

    return damage


def half_migrated(workspace: WorkspaceFixture) -> None:
    """The step is applied, but not recorded."""
    sql("outbox", "DELETE FROM x_migrations")(workspace)


def older_file(workspace: WorkspaceFixture) -> None:
    sql("outbox", f"UPDATE meta SET value = value - 1 WHERE key = '{commit_count.KEY}'")(workspace)


AUDIT_FILES = tuple(f".agentlip/audit.sqlite3{end}" for end in ("", "-wal", "-shm"))


def remove_if_there(name: str) -> Break:
    return lambda workspace: (workspace.data.workspace / name).unlink(missing_ok=True)


def without_bus(workspace: WorkspaceFixture) -> None:
    for end in ("", "-wal", "-shm"):
        remove_if_there(f".worker-state/bus.db{end}")(workspace)


def broken_leaf(store: str, table: str) -> Break:
    """A page with rows of the table is garbage."""

    def damage(workspace: WorkspaceFixture) -> None:
        database = workspace.data.database(store)
        sql(store, "PRAGMA wal_checkpoint(TRUNCATE)")(workspace)
        leaf_of(table)(database)

    return damage


def garbage(name: str) -> Break:
    """A file whose pages are not those of a database, except the first."""

    def damage(workspace: WorkspaceFixture) -> None:
        path = workspace.data.workspace / name
        for page in range(2, path.stat().st_size // PAGE_BYTES + 1):
            overwrite(path, (page - 1) * PAGE_BYTES, b"\xa5" * PAGE_BYTES)

    return damage


# -- the export --------------------------------------------------------------------------------


def segment(datadir: DataDir) -> Path:
    (path,) = (datadir.dir / "export" / "events").rglob("*.jsonl")
    return path


def short_segment(workspace: WorkspaceFixture) -> None:
    os.truncate(segment(workspace.data), 100)


def forged_segment(workspace: WorkspaceFixture) -> None:
    path = segment(workspace.data)
    path.write_text(path.read_text().replace("message", "massage"))


def export_behind(workspace: WorkspaceFixture) -> None:
    with workspace.data.settings_file.open("a") as file:
        file.write("\n[export]\nexport = true\n")
    workspace.execute(
        "INSERT INTO log (at_ms, name, stream, durability, sample_rate, message_id, accepted_ms)"
        " VALUES (1, 'envelope.acked', 's', 'durable', 1, 'm', 1)",
        store="courier",
    )
