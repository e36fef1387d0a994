"""Knows a workspace's files, finds workspaces, and locks one for a single writer.

The operating system's lock (`flock`) ends with the holding process, even after a kill. The file's
content is for people and may be wrong; nothing depends on that content. Only the holder unlinks the
file, while holding the lock. A process that locks an unlinked file notices that name and file
differ, and tries again.
"""

import errno
import os
import re
import shlex
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

import msgspec

from appliance.kernel.clock import Clock, SystemClock, iso
from appliance.kernel.errors import Conflict, Missing, StorageFull, Unavailable
from appliance.kernel.file_lock import try_lock
from appliance.kernel.json_file import read_json
from appliance.kernel.ownership import (
    SMALL_FILE_BYTES_MAX,
    WorkspaceNotTrusted,
    open_own,
    read_small,
)
from appliance.kernel.store_declaration import (
    DATA_FOLDER,
    DECLARATIONS,
    declaration_of,
    file_of,
    path_of,
)
from appliance.kernel.store_files import suspect_marker
from appliance.kernel.whole_file import write_whole

DIRECTORY = DATA_FOLDER
STORES = tuple(store for store, declaration in DECLARATIONS.items() if not declaration.shared)
"""Every store whose file belongs to the appliance."""
SHARED_STORES = tuple(sorted(DECLARATIONS.keys() - set(STORES)))
"""Stores whose files other programs write too. All are optional, and nothing here makes them.
"""

MANIFEST = "stores.json"
FOLDERS = ("locks", "logs", "backups")
BESIDE = ("-wal", "-shm", "-journal")
"""The endings that SQLite adds to a database's name for the files beside it."""

_MARKERS = tuple(
    file_of(store) for store, declaration in DECLARATIONS.items() if declaration.marks_workspace
)
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{22,512}")  # 22: 128 bits in base64 (hub spec §0.1.1)
# A doctor's test holds the lock for some microseconds.
_LOCK_ATTEMPTS_MAX = 10
_LOCK_RETRY_SECONDS = 0.005


class WorkspaceNotFound(Missing):
    code = "WORKSPACE_NOT_FOUND"
    default_message = "no workspace found"
    default_hint = "create one here: agentlip init; or name one: --workspace DIR"


class HubRunning(Conflict):
    code = "HUB_ALREADY_RUNNING"
    default_message = "a hub is already running in this workspace"
    default_hint = "agentlipd down"


class DataDirNotWritable(Unavailable):
    code = "DATA_DIR_NOT_WRITABLE"
    default_message = "the data directory can't be written"
    default_hint = "check owner, mount and free space: ls -ld .agentlip; df -h .agentlip"


class ServerFile(msgspec.Struct, frozen=True):
    """The content of `server.json`. Clients treat it as advice and check `/health`."""

    instance_id: str = ""
    db_id: str = ""
    port: int = 0
    host: str = "127.0.0.1"
    auth_token: str = ""
    pid: int = 0
    started_at: str = ""
    protocol_version: str = "v1"
    app_version: str = ""  # "" from servers that write none

    def __repr__(self) -> str:
        return f"ServerFile(instance_id={self.instance_id!r}, port={self.port}, pid={self.pid})"


class LockHolder(msgspec.Struct, frozen=True):
    """The note that the writer lock's holder wrote into the file."""

    pid: int = 0
    instance_id: str = ""
    started_at: str = ""


class LockView(msgspec.Struct, frozen=True):
    """The lock as other processes see it. `held` is reliable; `written` is the file's content."""

    exists: bool
    held: bool
    written: LockHolder | None


class DataDir:
    """The paths of one workspace. Creating one reads nothing."""

    def __init__(self, workspace: Path, stand_ins: Mapping[str, Path] | None = None) -> None:
        """Take `stand_ins`: files that replace some stores' files."""
        self.workspace = workspace.absolute()
        self._stand_ins = stand_ins or {}
        self.dir = self.workspace / DIRECTORY
        self.token_file = self.dir / "token"
        self.server_file = self.dir / "server.json"
        self.socket_file = self.dir / "sock"
        self.lock_file = self.dir / "locks" / "writer.lock"
        self.logs = self.dir / "logs"
        self.backups = self.dir / "backups"
        self.settings_file = self.workspace / "agentlip.toml"
        # The TypeScript hub's settings (hub spec §0.4): code, which is never run here.
        self.unread_settings_file = self.workspace / "agentlip.config.ts"

    def database(self, store: str) -> Path:
        return self._stand_ins.get(store) or self.workspace / path_of(store)

    def store_bytes(self, store: str) -> int:
        """Return the size of all files in the store. Missing files count as empty."""
        total, database = 0, self.database(store)
        for suffix in ("", *BESIDE):
            with suppress(OSError):
                total += database.with_name(database.name + suffix).stat().st_size
        if (blobs := declaration_of(store).blobs) and blobs.counts:
            with suppress(OSError):
                total += sum(f.stat().st_size for f in os.scandir(self.workspace / blobs.folder))
        return total

    def suspect_file(self, store: str) -> Path:
        """Return the file that exists while the store is marked as damaged and has not been
        cleared."""
        return suspect_marker(self.database(store))

    def read_token(self) -> str | None:
        """Return this workspace's token; None if unreadable."""
        text = read_small(self.token_file)
        return (text.decode("utf-8-sig", "replace").strip() or None) if text else None

    def read_server(self) -> ServerFile | None:
        """Return the content of `server.json`; None if it can't be read. Unknown keys are
        ignored."""
        return read_json(self.server_file, ServerFile)

    def foreign_token(self) -> str | None:
        """Return the token that another implementation's hub left in `server.json`, if only this
        user could read and write the file."""
        server = self.read_server()
        with suppress(OSError):
            state = self.server_file.lstat()
            private = stat.S_ISREG(state.st_mode) and not state.st_mode & 0o077
            if server and not server.app_version and private and state.st_uid == os.geteuid():
                return server.auth_token if _TOKEN.fullmatch(server.auth_token) else None
        return None

    def tighten(self) -> list[str]:
        """Restrict the files that hold the token to their owner; return the names of files that
        were open to others. A link, and a file that can't be changed, stays: a mounted secret."""
        changed = []
        for path in (self.token_file, self.server_file):
            with suppress(OSError), os.fdopen(open_own(path, os.O_RDONLY)) as file:
                mode = os.fstat(file.fileno()).st_mode
                if mode & 0o077:
                    os.fchmod(file.fileno(), mode & 0o700)
                    changed.append(path.name)
        return changed

    def write_private(self, path: Path, text: str) -> None:
        """Write `text` to `path`, readable by the owner only, completely or not at all."""
        try:
            write_whole(path, text.encode())
        except OSError as error:
            raise not_writable(error, path.name) from error


def marks_of(datadir: DataDir) -> list[Path]:
    """Return the files that mark a directory as a workspace, even without its database."""
    marks = [datadir.dir / name for name in (*_MARKERS, MANIFEST)]
    return [mark for mark in marks if mark.is_file()]


def find_workspace(explicit: Path | None, start: Path | None = None) -> DataDir:
    """Return the given workspace, or the nearest one above `start`."""
    if explicit is None:
        return discover(start or Path.cwd())
    datadir = DataDir(explicit.expanduser().resolve())
    try:
        is_there = bool(marks_of(datadir))
    except PermissionError:
        is_there = True  # the reader reports the missing permission
    if not is_there:
        variable = "AGENTLIP_WORKSPACE"
        source = f"{variable}: " * (os.environ.get(variable) == str(explicit))
        raise WorkspaceNotFound(
            f"{source}no workspace in {datadir.workspace}",
            details={"searched": [str(datadir.workspace)]},
            hint=f"agentlip init --workspace {shlex.quote(str(datadir.workspace))}",
        )
    return datadir


def discover(start: Path, home: Path | None = None) -> DataDir:
    """Return the workspace that contains `start`: the nearest directory upwards with a database.

    The search ends at `home`, which is included, and at the file system's edge, so a directory
    above that others can write is not used by mistake. Directories listed in
    `AGENTLIP_CEILING_DIRECTORIES`, and their parents, are not searched.
    """
    searched: list[str] = []
    for directory in upwards(start, home):
        searched.append(str(directory))
        if _is_workspace(directory):
            return DataDir(directory)
    raise WorkspaceNotFound(
        f"no workspace found; looked for {DIRECTORY}/{_MARKERS[0]} in: " + ", ".join(searched),
        details={"searched": searched},
        hint="run the command on the hub's machine, where the workspace's files are"
        if os.environ.get("AGENTLIP_URL")
        else None,
    )


def upwards(start: Path, home: Path | None = None) -> Iterator[Path]:
    """Yield the directories that a search for a workspace goes through."""
    start = start.resolve()
    last = Path(home or os.environ.get("HOME", "/")).resolve()
    listed = os.environ.get("AGENTLIP_CEILING_DIRECTORIES", "").split(os.pathsep)
    ceilings = {Path(directory).resolve() for directory in listed if directory}
    with suppress(OSError):  # a folder that is gone
        device = _device(start)
        for directory in (start, *start.parents):
            if directory in ceilings or _device(directory) != device:
                return
            yield directory
            if directory == last:
                return


def _device(path: Path) -> int:
    return path.stat().st_dev


def _is_workspace(directory: Path) -> bool:
    """Return whether there is a workspace. Raises WorkspaceNotTrusted for another user's."""
    datadir = DataDir(directory)
    try:
        marks = marks_of(datadir)
        # Link and target: either could belong to another user.
        stats = [datadir.dir.lstat(), *(path.stat() for path in (datadir.dir, *marks))]
        trusted = not marks or all(status.st_uid in (os.geteuid(), 0) for status in stats)
    except PermissionError:
        trusted = False
    except OSError:
        return False
    if not trusted:
        raise WorkspaceNotTrusted(
            f"{datadir.dir} belongs to another user",
            details={"workspace": str(directory)},
            hint=f"if you trust it, add: --workspace {shlex.quote(str(directory))}",
        )
    return bool(marks)


class WriterLock:
    """A lock that at most one process per workspace holds. For one acquire and one release, or
    for one `with`."""

    def __init__(self, datadir: DataDir, instance_id: str, clock: Clock | None = None) -> None:
        self.datadir = datadir
        self._path = datadir.lock_file
        self.instance_id = instance_id
        self.clock = clock or SystemClock()
        # For the writing child process, which has to keep the lock as long as this process.
        self.descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock, or raise HubRunning after at most 50 ms."""
        for _ in range(_LOCK_ATTEMPTS_MAX):
            self.descriptor = self._try()
            if self.descriptor is not None:
                self._sign(self.descriptor)
                return
            time.sleep(_LOCK_RETRY_SECONDS)
        raise self._running()

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Release the lock and remove the file. Do nothing if the lock is not held."""
        descriptor, self.descriptor = self.descriptor, None
        if descriptor is None:
            return
        try:
            if _same_file(descriptor, self._path):
                self._path.unlink(missing_ok=True)
        finally:
            os.close(descriptor)

    def intact(self) -> bool:
        """Return whether the lock is held and its file was not removed meanwhile."""
        return self.descriptor is not None and _same_file(self.descriptor, self._path)

    def restore(self) -> bool:
        """Take the lock again if its file was removed. Return False if the file was not removed,
        or if another process has the lock."""
        if self.descriptor is None or self.intact():
            return False
        descriptor = self._try()
        if descriptor is None:
            return False
        removed, self.descriptor = self.descriptor, descriptor
        os.close(removed)
        self._sign(descriptor)
        return True

    def _try(self) -> int | None:
        try:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            descriptor = open_own(self._path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise not_writable(error) from error
        try:
            if try_lock(descriptor) and _same_file(descriptor, self._path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return None

    def _sign(self, descriptor: int) -> None:
        holder = LockHolder(os.getpid(), self.instance_id, iso(self.clock.now_ms()))
        text = msgspec.json.encode(holder)
        # The lock works without content, so a full disk does not prevent the start.
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, text + b"\n", 0)

    def _running(self) -> HubRunning:
        holder = read_lock(self.datadir).written
        if holder is None or not holder.pid:
            return HubRunning()
        details: dict[str, object] = {"pid": holder.pid, "instance_id": holder.instance_id}
        return HubRunning(f"{HubRunning.default_message} (pid {holder.pid})", details=details)


def read_lock(datadir: DataDir) -> LockView:
    """Return the lock's state. Never waits, writes or keeps the lock."""
    try:
        descriptor = open_own(datadir.lock_file, os.O_RDONLY)
    except OSError:
        return LockView(exists=False, held=False, written=None)
    try:
        held, written = not try_lock(descriptor, shared=True), None
        with suppress(OSError, msgspec.DecodeError):
            text = os.pread(descriptor, SMALL_FILE_BYTES_MAX, 0)
            written = msgspec.json.decode(text, type=LockHolder)
        return LockView(exists=True, held=held, written=written)
    finally:
        os.close(descriptor)


def pid_alive(pid: int) -> bool:
    """Return whether a process with that number exists, maybe another process than before."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return pid > 0


def not_writable(error: OSError, file: str | None = None) -> Unavailable:
    """Return the error for a client: with the system's reason, without a path."""
    reason = errno.errorcode.get(error.errno or 0, "error")
    named = {} if file is None else {"file": file}
    kind = StorageFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else DataDirNotWritable
    return kind(
        f"the data directory can't be written: {error.strerror or reason}",
        details={"reason": reason, **named},
    )


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        opened, named = os.fstat(descriptor), path.stat(follow_symlinks=False)
    except OSError:
        return False
    return (opened.st_dev, opened.st_ino) == (named.st_dev, named.st_ino)
