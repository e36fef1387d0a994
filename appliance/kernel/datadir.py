"""Names of the files in a workspace, how one is found, and the lock on its one writer.

The lock is the operating system's (`flock`): it ends with the process that holds it,
whatever ends that process. What is written inside the file is for people only and may be
wrong; nothing is decided by it. The file is unlinked only by its holder while it
holds it; whoever locks a file that has been unlinked meanwhile notices that name and
file no longer agree, and starts again.
"""

import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Collection
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from weakref import WeakSet

import msgspec

from appliance.kernel.clock import Clock, SystemClock, iso
from appliance.kernel.errors import Conflict, Forbidden, Missing, StorageFull, Unavailable

DIRECTORY = ".agentlip"
STORES = tuple(
    sorted(
        folder.name
        for folder in files("migrations").iterdir()
        if folder.is_dir() and any(file.name.endswith(".sql") for file in folder.iterdir())
    )
)
"""Every store of the appliance: the folders of `migrations`."""

MANIFEST = "stores.json"
FOLDERS = ("locks", "logs", "backups")

_SMALL_FILE_BYTES_MAX = 65_536
# A doctor that looks whether the lock is held, holds it itself for some microseconds.
_LOCK_ATTEMPTS_MAX = 10
_LOCK_PAUSE_SECONDS = 0.005


class WorkspaceNotFound(Missing):
    code = "WORKSPACE_NOT_FOUND"
    sentence = "no workspace found"
    advice = "make one here with 'agentlip init', or name one with '--workspace DIR'"


class WorkspaceNotTrusted(Forbidden):
    code = "WORKSPACE_NOT_TRUSTED"
    sentence = "the workspace belongs to somebody else"
    advice = "if you trust it, name it with '--workspace DIR'"


class HubRunning(Conflict):
    code = "HUB_ALREADY_RUNNING"
    sentence = "a hub already runs in this workspace"
    advice = "agentlipd status"


class DataDirNotWritable(Unavailable):
    code = "DATA_DIR_NOT_WRITABLE"
    sentence = "the data directory can't be written"
    advice = "check owner, mount options and free space: 'ls -ld .agentlip', 'df -h .agentlip'"


class ServerFile(msgspec.Struct, frozen=True):
    """What `server.json` says of the hub that wrote it. Advisory: `/health` is the truth."""

    instance_id: str = ""
    db_id: str = ""
    port: int = 0
    host: str = "127.0.0.1"
    auth_token: str = ""
    pid: int = 0
    started_at: str = ""
    protocol_version: str = "v1"

    def __repr__(self) -> str:
        return f"ServerFile(instance_id={self.instance_id!r}, port={self.port}, pid={self.pid})"


class Holder(msgspec.Struct, frozen=True):
    """What the holder of the writer lock wrote of itself."""

    pid: int = 0
    instance_id: str = ""
    started_at: str = ""


class LockView(msgspec.Struct, frozen=True):
    """The lock seen from outside. `held` is the system's word, `written` only the file's."""

    exists: bool
    held: bool
    written: Holder | None


class DataDir:
    """Where everything of one workspace lies. Looks at nothing until asked."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace.absolute()
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

    def __repr__(self) -> str:
        return f"DataDir({str(self.workspace)!r})"

    def database(self, store: str) -> Path:
        return self.dir / ("db.sqlite3" if store == "hub" else f"{store}.sqlite3")

    def with_stand_ins(self, folder: Path, stores: Collection[str]) -> "DataDir":
        """The same workspace, but the files of those stores are the ones in `folder`."""
        return _StandIns(self.workspace, folder, stores)

    def suspect_file(self, store: str) -> Path:
        """Present while that store was found damaged and nobody has looked since."""
        return suspect_mark(self.database(store))

    def read_token(self) -> str | None:
        """The token of this workspace, or None if there is none to be read."""
        text = _read_small(self.token_file)
        return (text.decode("utf-8", "replace").strip() or None) if text else None

    def read_server(self) -> ServerFile | None:
        """What the last hub left; None if nothing that makes sense. Unknown keys are ignored."""
        text = _read_small(self.server_file)
        try:
            return msgspec.json.decode(text, type=ServerFile) if text else None
        except msgspec.DecodeError:
            return None

    def tighten(self) -> list[str]:
        """Take away what others may do with files that hold the token; names of those that
        were too open. A file that isn't ours to change stays as it is (a mounted secret)."""
        found = []
        for path in (self.token_file, self.server_file):
            with suppress(OSError):
                mode = path.stat().st_mode
                if mode & 0o077:
                    path.chmod(mode & 0o700)
                    found.append(path.name)
        return found

    def write_private(self, path: Path, text: str) -> None:
        """Puts `text` at `path` for the owner's eyes only, whole or not at all."""
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(temporary, flags, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(descriptor, 0o600)  # the umask may have taken more than we asked
                file.write(text)
                file.flush()
                os.fsync(descriptor)
            temporary.rename(path)
            sync_directory(path.parent)
        except OSError as error:
            raise not_writable(error, path.name) from error
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


class _StandIns(DataDir):
    def __init__(self, workspace: Path, folder: Path, stores: Collection[str]) -> None:
        super().__init__(workspace)
        self._folder = folder
        self._stores = frozenset(stores)

    def database(self, store: str) -> Path:
        own = super().database(store)
        return self._folder / own.name if store in self._stores else own


def discover(start: Path, home: Path | None = None) -> DataDir:
    """The workspace that `start` is in: the nearest directory upwards with a hub's database.

    Looks no further than `home` (which it looks at) and the edge of the file system, so a
    directory that somebody else can write is not taken for ours because it lies above.
    Directories listed in `AGENTLIP_CEILING_DIRECTORIES` and those above them are not searched.
    """
    start = start.resolve()
    last = _home() if home is None else home.resolve()
    ceilings = _ceilings()
    searched: list[str] = []
    device = _device(start)
    for directory in (start, *start.parents):
        if device is None or _device(directory) != device or directory in ceilings:
            break
        searched.append(str(directory))
        if _holds_workspace(directory):
            return DataDir(directory)
        if directory == last:
            break
    raise WorkspaceNotFound(
        f"no workspace found; looked for {DIRECTORY}/db.sqlite3 in: "
        + ", ".join(searched or [str(start)]),
        details={"searched": searched or [str(start)]},
    )


def _holds_workspace(directory: Path) -> bool:
    # Without its database it is still a workspace: one that lost something.
    return any(_holds(directory, name) for name in ("db.sqlite3", MANIFEST))


def _holds(directory: Path, name: str) -> bool:
    data = directory / DIRECTORY
    try:
        # The link and what it points to: either could be somebody else's.
        seen = [data.lstat(), data.stat(), (data / name).stat()]
    except PermissionError:
        raise _not_trusted(directory) from None
    except OSError:
        return False
    if not (stat.S_ISDIR(seen[1].st_mode) and stat.S_ISREG(seen[2].st_mode)):
        return False
    if any(each.st_uid not in (os.geteuid(), 0) for each in seen):
        raise _not_trusted(directory)
    return True


def _not_trusted(directory: Path) -> WorkspaceNotTrusted:
    return WorkspaceNotTrusted(
        f"{directory / DIRECTORY} belongs to somebody else",
        details={"workspace": str(directory)},
        hint=f"if you trust it, name it with '--workspace {directory}'",
    )


def _ceilings() -> set[Path]:
    listed = os.environ.get("AGENTLIP_CEILING_DIRECTORIES", "").split(os.pathsep)
    return {Path(directory).resolve() for directory in listed if directory}


def _home() -> Path | None:
    try:
        return Path.home().resolve()
    except RuntimeError:  # no entry for this user, as in some containers
        return None


def _device(path: Path) -> int | None:
    try:
        return path.stat().st_dev
    except OSError:
        return None


class WriterLock:
    """At most one process per workspace holds this. One object, one acquire, one release."""

    def __init__(self, datadir: DataDir, instance_id: str, clock: Clock | None = None) -> None:
        self._datadir = datadir
        self._path = datadir.lock_file
        self._instance_id = instance_id
        self._clock = clock or SystemClock()
        self._descriptor: int | None = None
        _LOCKS.add(self)

    def acquire(self) -> None:
        """Takes the lock or raises HubRunning, at the latest after a tenth of a second."""
        for attempt in range(_LOCK_ATTEMPTS_MAX):
            if attempt:
                time.sleep(_LOCK_PAUSE_SECONDS)
            descriptor = self._try()
            if descriptor is not None:
                self._descriptor = descriptor
                self._sign(descriptor)
                return
        raise self._running()

    def release(self) -> None:
        """Gives the lock back and takes the file away. Harmless when not held."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        try:
            if _same_file(descriptor, self._path):
                self._path.unlink(missing_ok=True)
        finally:
            os.close(descriptor)

    def holder(self) -> Holder | None:
        """Who holds it now; None if nobody does. Of a holder that wrote nothing, pid 0."""
        view = look_at_lock(self._datadir)
        return (view.written or Holder()) if view.held else None

    def intact(self) -> bool:
        """False when not held, or when somebody removed the file under the holder."""
        return self._descriptor is not None and _same_file(self._descriptor, self._path)

    @property
    def descriptor(self) -> int | None:
        """For a child that writes on our behalf and must keep others out as long as we do."""
        return self._descriptor

    def _try(self) -> int | None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(self._path, flags, 0o600)
        except OSError as error:
            raise not_writable(error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _same_file(descriptor, self._path):
                return descriptor
        except BlockingIOError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return None

    def _sign(self, descriptor: int) -> None:
        holder = Holder(os.getpid(), self._instance_id, iso(self._clock.now_ms()))
        text = msgspec.json.encode(holder)
        # A full disk must not keep the hub from serving reads: the lock holds unsigned too.
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, text + b"\n", 0)

    def _running(self) -> HubRunning:
        holder = self.holder()
        server = self._datadir.read_server()
        details: dict[str, object] = {}
        if holder is not None and holder.pid:
            details = {"pid": holder.pid, "instance_id": holder.instance_id}
            if server is not None and server.instance_id == holder.instance_id:
                details["port"] = server.port
        facts = ", ".join(f"{name} {value}" for name, value in details.items())
        sentence = HubRunning.sentence + (f" ({facts})" if facts else "")
        return HubRunning(sentence, details=details)

    def _forget(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def suspect_mark(database: Path) -> Path:
    return database.with_name(database.name + ".suspect")


def look_at_lock(datadir: DataDir) -> LockView:
    """The lock as others see it. Never waits, never writes, never keeps the lock."""
    try:
        descriptor = os.open(datadir.lock_file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return LockView(exists=False, held=False, written=None)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            held = False
        except BlockingIOError:
            held = True
        try:
            text = os.pread(descriptor, _SMALL_FILE_BYTES_MAX, 0)
            written = msgspec.json.decode(text, type=Holder)
        except (OSError, msgspec.DecodeError):
            written = None
        return LockView(exists=True, held=held, written=written)
    finally:
        os.close(descriptor)


def pid_alive(pid: int) -> bool:
    """Whether a process of that number exists; it need not be the one that was meant."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def sync_directory(path: Path) -> None:
    """Makes names created or renamed in `path` survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def not_writable(error: OSError, file: str | None = None) -> Unavailable:
    """The error to tell instead of `error`, with the system's reason but without a path."""
    reason = errno.errorcode.get(error.errno or 0, "error")
    named = {} if file is None else {"file": file}
    kind = StorageFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else DataDirNotWritable
    return kind(
        f"the data directory can't be written: {error.strerror or reason}",
        details={"reason": reason, **named},
    )


def _read_small(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            return file.read(_SMALL_FILE_BYTES_MAX)
    except OSError:
        return None


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        here, there = os.fstat(descriptor), path.stat(follow_symlinks=False)
    except OSError:
        return False
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


# A forked child has the parent's open files, and with them a share in the lock that
# would outlive the parent; it gives its share back at once. An exec closes it anyway.
_LOCKS: WeakSet[WriterLock] = WeakSet()


def _forget_all() -> None:
    for lock in list(_LOCKS):
        lock._forget()


os.register_at_fork(after_in_child=_forget_all)
