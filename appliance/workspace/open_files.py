"""Finds which files a process has open, as Linux lists them in `/proc`, and locks SQLite files."""

import fcntl
import os
import select
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from appliance.kernel.errors import Conflict
from appliance.workspace.datadir import BESIDE

COMMAND_CHARACTERS_MAX = 80
LOCK_BYTES, LOCK_START = 512, 0x4000_0000  # where SQLite has its locks in a file
WAITS_MAX, WAIT_SECONDS = 100, 0.1  # longer than programs usually wait for a lock


def open_files(process: Path) -> Iterator[tuple[Path, str]]:
    """Yield the open files in `/proc/PID`, each with its name; none for another user's process."""
    with suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                yield descriptor, str(descriptor.readlink())


def program_with(names: Iterable[str], except_pid: int = 0) -> str:
    """Return a process with one of the files open, such as `pid 71 (python3 -m http.server)`, or
    ""."""
    wanted = frozenset(names)
    for process in Path("/proc").glob("[0-9]*"):
        if process.name != str(except_pid) and any(
            name in wanted for _, name in open_files(process)
        ):
            with suppress(OSError):
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").strip()
                shown = command[:COMMAND_CHARACTERS_MAX].decode("utf-8", "replace")
                return f"pid {process.name} ({shown})"
    return ""


class StoreInUse(Conflict):
    code = "STORE_IN_USE"
    default_message = "another program has the store's file open"
    default_hint = "end that program"


@contextmanager
def kept_unused(database: Path) -> Iterator[None]:
    """Keep other programs from using an SQLite file that is about to be replaced, until the
    block ends or for ten seconds. Raises StoreInUse if a program has the file open, which would
    go on with the former file. Another user's program can't be named."""
    path = database.resolve()
    with _sqlite_locked(path) as is_free:
        program = program_with([f"{path}{end}" for end in ("", *BESIDE)], os.getpid())
        if program or not is_free:
            program = program or "another user's process"
            raise StoreInUse(
                f"{path.name} is open in another program: {program}",
                details={"file": path.name, "program": program},
                hint=f"end that program; `fuser -v {shlex.quote(str(path))}` lists all of them",
            )
        yield


@contextmanager
def _sqlite_locked(database: Path) -> Iterator[bool]:
    """Keep other programs from using an SQLite file, even under another name, by SQLITE_BUSY. Yield
    False if a program has a lock, which begins with its first statement.

    The lock ends when no program has the file open any more, or after ten seconds.
    """
    try:
        file = database.open("rb+")
    except OSError:  # nothing to lock
        yield True
        return
    with file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, LOCK_BYTES, LOCK_START)
        except OSError:
            yield False
            return
        yield True
        with suppress(OSError):
            name = Path(f"/proc/self/fd/{file.fileno()}").readlink()
            for _ in range(WAITS_MAX):
                if not program_with([str(name)], os.getpid()):
                    break
                select.select([], [], [], WAIT_SECONDS)
