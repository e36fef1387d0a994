"""ACTIONS: everything that a repair can do, by name.

Applying an action twice has the result of applying the action once. Every action is atomic: a
database change is one transaction, a file change is one rename, chmod or unlink. An interrupted
step has therefore either happened or not begun.

No action deletes rows, changes tokens or keys, follows a link, or leaves the workspace.
"""

import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path, PurePosixPath

import msgspec

from appliance.checks.repairs import Arguments, CannotRepair, Change
from appliance.checks.step import REBUILD
from appliance.kernel.clock import Clock
from appliance.kernel.errors import Conflict
from appliance.kernel.store_files import open_database
from appliance.kernel.whole_file import sync_directory
from appliance.workspace.datadir import DataDir
from doctor import derived, schema_model
from doctor.checks.leftovers import FREE_SHARE_MIN, free_share
from doctor.checks.store_log import log_bytes


class StepFailed(Conflict):
    code = "STEP_FAILED"
    default_message = "a repair step failed"
    default_hint = "agentlip doctor"


class Target(msgspec.Struct, frozen=True):
    """A workspace that an action may change."""

    datadir: DataDir
    clock: Clock

    def path(self, name: str) -> Path:
        """Return a workspace path by its relative name. Raise StepFailed for any path outside."""
        parts = PurePosixPath(name)
        if not name or parts.is_absolute() or ".." in parts.parts:
            raise StepFailed(f"{name}: not a path in the workspace")
        path = self.datadir.workspace / parts
        for parent in (path, *path.parents):
            if parent == self.datadir.workspace:
                break
            if parent.is_symlink() and parent != self.datadir.dir:
                raise StepFailed(f"{name}: this is a link; change its target by hand")
        return path


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """A change that a repair can make.

    apply             makes the change and returns a description; raises OSError, sqlite3.Error
                      or ApplianceError
    beside_appliance  harmless while an appliance uses the workspace
    store             the action changes the store in argument `store`, which must not be damaged
    """

    apply: Callable[[Target, Arguments], str]
    beside_appliance: bool = False
    store: bool = False


def _set_mode(target: Target, arguments: Arguments) -> str:
    path, mode = target.path(arguments["path"]), int(arguments["mode"], 8)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        return "it is gone"
    try:
        before = stat.S_IMODE(os.fstat(descriptor).st_mode)
        os.fchmod(descriptor, before & mode)
    finally:
        os.close(descriptor)
    return f"mode {before:04o} is now {before & mode:04o}"


def _remove_file(target: Target, arguments: Arguments) -> str:
    path = target.path(arguments["path"])
    try:
        path.unlink()
    except FileNotFoundError:
        return "it is gone"
    sync_directory(path.parent)
    return "removed"


def fold_log(database: Path) -> int:
    """Write the write-ahead log into the database, also beside a running appliance. Return the
    number of bytes left because a reader uses them."""
    with closing(_connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return log_bytes(database)


def _on_store(change: Change, *, atomic: bool = True) -> Callable[[Target, Arguments], str]:
    """Build an action that changes the store in the argument `store`, in one transaction if
    atomic."""

    def apply(target: Target, arguments: Arguments) -> str:
        with closing(_connect(target.datadir.database(arguments["store"]))) as connection:
            if atomic:
                done = _in_transaction(connection, change, arguments, target.clock)
            else:
                done = change(connection, arguments, target.clock)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            return done

    return apply


def _in_transaction(
    connection: sqlite3.Connection, change: Change, arguments: Arguments, clock: Clock
) -> str:
    """Make the change in a separate transaction."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        done = change(connection, arguments, clock)
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        raise
    return done


def _vacuum(connection: sqlite3.Connection, arguments: Arguments, clock: Clock) -> str:
    """Rewrite the file without unused pages, outside a transaction."""
    share = free_share(connection)
    if share < FREE_SHARE_MIN:
        return f"only {share:.0%} of the pages are unused"
    parts = [part for part in derived.DERIVED.values() if arguments["store"] in part.stores]
    forgotten = [part.name for part in parts if part.forget(connection)]
    connection.execute("VACUUM")
    for name in forgotten:
        _in_transaction(connection, derived.rebuild, {**arguments, "what": name}, clock)
    return f"{share:.0%} of the pages were unused"


def _drop_trigger(connection: sqlite3.Connection, arguments: Arguments, _clock: Clock) -> str:
    """Remove a trigger that this program did not create."""
    name = arguments["object"]
    if name in schema_model.read_expected(connection, arguments["store"]):
        raise CannotRepair(f"{name}: the object belongs to this program")
    trigger = name.replace('"', '""')
    connection.execute(f'DROP TRIGGER IF EXISTS "{trigger}"')
    return "removed the trigger"


def _connect(database: Path) -> sqlite3.Connection:
    """Open a connection that writes, and never create a file."""
    connection = open_database(database, "rw")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


ACTIONS: dict[str, Action] = {
    "set-mode": Action(apply=_set_mode, beside_appliance=True),
    "remove-file": Action(apply=_remove_file),
    "vacuum": Action(apply=_on_store(_vacuum, atomic=False), store=True),
    "drop-trigger": Action(apply=_on_store(_drop_trigger), store=True),
    REBUILD: Action(apply=_on_store(derived.rebuild), store=True),
} | {
    name: Action(apply=_on_store(change), store=True)
    for module in derived.REPAIRS
    for name, change in module.CHANGES.items()
}
