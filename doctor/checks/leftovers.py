"""Checks for unused space: empty store pages, and files from interrupted programs."""

import os
import re
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

from appliance.checks.check import Check, Finding, Problem, Severity
from appliance.checks.context import Context

_MIB = 1024 * 1024
FREE_SHARE_MIN = 0.25  # a store with fewer unused pages is not vacuumed
FREE_BYTES_MIN = 64 * _MIB  # less is not worth the copy that VACUUM makes
# A program that still writes its temporary file has taken less time.
AGE_SECONDS_MIN = 3600
TEMPORARY = re.compile(
    r"\..+\.[0-9a-f]{16}|\..+\.(new|recovered)(-journal|-wal|-shm)?|.+\.partial(-journal|-wal|-shm)?"
)
"""Names for files that are renamed when complete."""
_FOLDERS = ("", "backups", "locks")


def _free_pages(context: Context) -> Iterator[Finding]:
    for store, connection in context.opened():
        try:
            share = free_share(connection)
            size = context.datadir.database(store).stat().st_size
        except (OSError, sqlite3.Error):
            continue  # reported by store.opens
        if share >= FREE_SHARE_MIN and share * size >= FREE_BYTES_MIN:
            yield UNUSED.finding(
                store, f"{share * size / _MIB:.0f} MiB in its file ({share:.0%}) are unused"
            )


def _leftovers(context: Context) -> Iterator[Finding]:
    """Find leftover files, or nothing while a process holds the lock and may be writing them."""
    if context.lock().held:
        return
    now_seconds = context.clock.now_ms() / 1000
    for folder in _FOLDERS:
        yield from _in_folder(context, context.datadir.dir / folder, now_seconds)


def _in_folder(context: Context, folder: Path, now_seconds: float) -> Iterator[Finding]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        path = Path(entry.path)
        try:
            state = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        name = str(path.relative_to(context.datadir.workspace))
        if (
            stat.S_ISREG(state.st_mode)
            and TEMPORARY.fullmatch(entry.name)
            and now_seconds - state.st_mtime > AGE_SECONDS_MIN
        ):
            yield INCOMPLETE.finding(name, "an incomplete file, left by an interrupted program")


def free_share(connection: sqlite3.Connection) -> float:
    """Return the share of a store's pages that contain nothing."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    return free / pages if pages else 0.0


_REPAIR = "agentlip doctor repair --run host.leftovers"
INCOMPLETE = Problem("incomplete", Severity.INFO, hint=_REPAIR)
UNUSED = Problem("unused", Severity.INFO, hint="agentlip doctor repair --run store.free-pages")
CHECKS = (
    Check(
        name="host.leftovers", inspects="no files from interrupted programs are left",
        problems=(INCOMPLETE,), find=_leftovers,
    ),
    Check(
        name="store.free-pages",
        inspects="unused pages fill at most a quarter of each store",
        problems=(UNUSED,),
        find=_free_pages,
    ),
)  # fmt: skip
