"""Starts the server in the background, waits until it is ready, and stops it.

The writer lock shows whether a server runs. A process is signalled only if it has the locked file
open.
"""

import fcntl
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import msgspec

import appliance
from appliance.kernel.clock import Clock, SystemClock
from appliance.kernel.datadir import (
    DataDir,
    DataDirNotWritable,
    HubRunning,
    WorkspaceNotFound,
    WriterLock,
    not_writable,
    read_lock,
)
from appliance.kernel.errors import ApplianceError, Conflict, Unavailable
from appliance.kernel.ids import random_id
from appliance.kernel.log import Log
from appliance.kernel.store_errors import DISK_FULL_BYTES, free_bytes
from appliance.process.logfile import former_log_file, log_file
from appliance.process.migrating import phase_of
from appliance.process.status import State, hub_state
from appliance.sdk.discovery import Endpoint, connect, find_workspace

READY_SECONDS_MAX = 120.0
MIGRATED_SECONDS_MAX = 4 * 3600.0  # a start with the backup and migration of a large workspace
POLL_SECONDS = 0.03
EXIT_TAKEN = 2  # exit code of a server whose lock or port is in use
STOP_SECONDS_MAX = 10.0
KILL_SECONDS_MAX = 5.0
LOG_BYTES_MAX = 10 * 1024 * 1024
LOG_TAIL_BYTES = 4096
LOG_START_BYTES = 65_536
PORT_CHANGED = "PORT_CHANGED"  # code of the server's log line
SERVER_MODULES = ("falcon", "gevent", "gunicorn", "peewee", "prometheus_client")


class ServerNotInstalled(ApplianceError):
    kind = "invalid"
    code = "SERVER_NOT_INSTALLED"
    default_message = "the server part of agentlip is not installed"
    default_hint = "pip install 'agentlip[appliance]'"


class StartFailed(ApplianceError):
    kind = "invalid"
    code = "START_FAILED"
    default_message = "the appliance did not start"
    default_hint = "agentlip doctor"


class StopFailed(Unavailable):
    code = "STOP_FAILED"
    default_message = "the appliance did not stop"
    default_hint = "agentlip doctor"


class LockHeldElsewhere(Unavailable):
    code = "LOCK_HELD_ELSEWHERE"
    default_message = "the writer lock is held by a process that can't be signalled from here"
    default_hint = "stop it where it runs: in its container, or as its user"


class ForeignHub(Conflict):
    code = "FOREIGN_HUB"
    default_message = "a hub of another implementation runs in this workspace"
    default_hint = "stop it with its own command"


class RunsElsewhere(Conflict):
    code = "RUNS_ELSEWHERE"
    default_message = "the appliance already runs at another address"
    default_hint = "agentlipd restart --help"


class StartBusy(Unavailable):
    code = "START_BUSY"
    default_message = "another start of this appliance is still in progress"
    default_hint = "agentlipd status"


class ServerOptions(msgspec.Struct, frozen=True):
    """Flags for the server."""

    host: str | None = None
    port: int | None = None
    config: Path | None = None
    no_limits: bool = False
    unsafe_network: bool = False
    accept_loss: tuple[str, ...] = ()
    read_only: bool = False
    migrate_without_backup: bool = False

    def arguments(self) -> list[str]:
        pairs = (("--host", self.host), ("--port", self.port))
        given = [text for flag, value in pairs if value is not None for text in (flag, str(value))]
        if self.config is not None:
            given += ["--config", str(self.config.expanduser().resolve())]
        given += ["--no-limits"] if self.no_limits else []
        given += ["--read-only"] if self.read_only else []
        given += ["--migrate-without-backup"] if self.migrate_without_backup else []
        given += [text for store in self.accept_loss for text in ("--accept-loss", store)]
        return given + (["--unsafe-network"] if self.unsafe_network else [])


class Stopped(msgspec.Struct, frozen=True):
    pid: int
    gracefully: bool

    def facts(self) -> State:
        return {"pid": self.pid, "gracefully": self.gracefully}


def workspace(explicit: Path | None) -> DataDir:
    return find_workspace(explicit)


def workspace_for_up(
    explicit: Path | None, *, make: bool = True, accepted: tuple[str, ...] = ()
) -> DataDir:
    """The workspace. Without one it is created in `explicit` or in the current directory."""
    try:
        return find_workspace(explicit)
    except WorkspaceNotFound:
        datadir = DataDir((explicit or Path()).expanduser().resolve())
        if not make:
            return datadir
        with start_lock(datadir, SystemClock()):
            return init_workspace(datadir.workspace, accepted)[0]


def init_workspace(directory: Path, accepted: tuple[str, ...] = ()) -> tuple[DataDir, bool]:
    """The workspace in `directory`, and whether it was created."""
    from appliance.kernel.schema import create_workspace

    datadir = DataDir(directory.expanduser().resolve())
    log = Log(sys.stderr.buffer, level="warning")
    changes = create_workspace(datadir, clock=SystemClock(), log=log, accepted=accepted)
    return datadir, bool(changes.created)


def become_server(datadir: DataDir, options: ServerOptions) -> NoReturn:
    """Replaces this process by the server, so that it gets a supervisor's signals."""
    _require_server()
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, _command(datadir, options), _environment())


def start(datadir: DataDir, options: ServerOptions, clock: Clock | None = None) -> State:
    """Starts a server in the background, waits until it is ready, and returns its state.

    If several starts run at once, the first starts the server and the others wait for it.
    """
    state = hub_state(datadir)
    if state["status"] == "running":
        return _already(state, options)
    _require_server()
    clock = clock or SystemClock()
    with start_lock(datadir, clock):
        state = hub_state(datadir)
        if state["status"] == "running":
            return _already(state, options)
        return _start(datadir, options, clock)


def _already(state: State, options: ServerOptions) -> State:
    """The state of a running hub. Raises RunsElsewhere if its address is not the requested one."""
    for flag, wanted, there in (
        ("--port", options.port, state["port"]),
        ("--host", options.host, state["host"]),
    ):
        if wanted and wanted != there:
            raise RunsElsewhere(
                f"the appliance already runs at {state['url']}, without {flag} {wanted}",
                details={"url": state["url"], "pid": state["pid"]},
                hint=f"agentlipd restart {flag} {wanted}",
            )
    return {**state, "already_running": True}


def _start(datadir: DataDir, options: ServerOptions, clock: Clock) -> State:
    log = _open_log(datadir)
    began_at = os.fstat(log).st_size
    try:
        child = subprocess.Popen(
            _command(datadir, options),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=datadir.workspace,
            env=_environment(),
            start_new_session=True,
        )
    finally:
        os.close(log)
    return _await_ready(datadir, child, began_at, clock)


@contextmanager
def start_lock(datadir: DataDir, clock: Clock) -> Iterator[None]:
    """Held while a process creates this workspace or starts its server.

    The lock ends with the process. Its file is never removed, so all processes lock the same file.
    """
    from appliance.kernel.schema import make_folders

    path = datadir.lock_file.with_name("start.lock")
    deadline = clock.monotonic() + READY_SECONDS_MAX
    make_folders(datadir, [], [])
    try:
        # O_CLOEXEC: the started server must not keep the lock.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise not_writable(error) from error
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if clock.monotonic() >= deadline:
                    raise StartBusy(
                        f"another start has not finished within {READY_SECONDS_MAX:.0f} s"
                    ) from None
                select.select([], [], [], POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


def check_settings(datadir: DataDir, options: ServerOptions) -> None:
    """Raises StartFailed if the settings are invalid. Call before stopping a running server."""
    _require_server()
    done = subprocess.run(
        [*_command(datadir, options), "--check"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        cwd=datadir.workspace,
        env=_environment(),
        timeout=READY_SECONDS_MAX,
        check=False,
    )
    if done.returncode:
        words, hint = _last_words(done.stderr)
        raise StartFailed(
            f"the appliance was not stopped, because it could not start again: {words}", hint=hint
        )


def _await_ready(
    datadir: DataDir, child: "subprocess.Popen[bytes]", began_at: int, clock: Clock
) -> State:
    began = clock.monotonic()
    deadline = began + READY_SECONDS_MAX
    while clock.monotonic() < deadline:
        try:
            child.wait(POLL_SECONDS)
        except subprocess.TimeoutExpired:
            if phase_of(datadir, child.pid):  # it has its time limits from its settings
                longest = began + MIGRATED_SECONDS_MAX
                deadline = min(clock.monotonic() + READY_SECONDS_MAX, longest)
            if _ready(datadir, child.pid):
                return {
                    **hub_state(datadir),
                    "already_running": False,
                    **_notice(datadir, began_at),
                }
            continue
        state = hub_state(datadir)
        if child.returncode == EXIT_TAKEN:  # another start may have been faster
            while state["status"] == "unresponsive" and clock.monotonic() < deadline:
                select.select([], [], [], POLL_SECONDS)
                state = hub_state(datadir)
        if state["status"] == "running":
            return {**state, "already_running": True}
        why = f"the appliance did not start (exit code {child.returncode})"
        raise _start_failed(datadir, began_at, why)
    child.terminate()
    why = f"the appliance was not ready after {READY_SECONDS_MAX:.0f} s"
    raise _start_failed(datadir, began_at, why)


def _ready(datadir: DataDir, pid: int) -> bool:
    server = datadir.read_server()
    if server is None or server.pid != pid or not server.port:
        return False
    host = "127.0.0.1" if server.host in ("", "0.0.0.0", "::") else server.host
    connection = connect(Endpoint(host, server.port), timeout=2.0)
    try:
        connection.request("GET", "/-/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def stop(datadir: DataDir, say: Callable[[str], None]) -> Stopped | None:
    """Stops the hub of this workspace and removes its files. None if no hub was running."""
    view = read_lock(datadir)
    if not view.held:
        state = hub_state(datadir)
        if state["status"] == "running":
            raise ForeignHub(
                f"a hub of another implementation runs here: pid {state['pid']}, {state['url']}",
                details={"pid": state["pid"], "port": state["port"]},
            )
        _clear_stale(datadir)
        return None
    pid = view.written.pid if view.written else 0
    if not _has_open(pid, datadir.lock_file):
        raise LockHeldElsewhere(details={"pid": pid})
    gracefully = _end(pid, signal.SIGTERM, STOP_SECONDS_MAX)
    if not gracefully:
        say(f"pid {pid} did not stop within {STOP_SECONDS_MAX:.0f} s: killing it")
        if not _end(pid, signal.SIGKILL, KILL_SECONDS_MAX):
            raise StopFailed(f"pid {pid} did not end after SIGKILL", details={"pid": pid})
    _clear_stale(datadir)
    return Stopped(pid, gracefully)


def _end(pid: int, number: int, seconds_max: float) -> bool:
    """Signals `pid` and waits for its end; False if it still runs after `seconds_max`."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        signal.pidfd_send_signal(handle, number)
        waiting = select.poll()
        waiting.register(handle, select.POLLIN)
        return bool(waiting.poll(seconds_max * 1000))
    except ProcessLookupError:
        return True
    except PermissionError:
        raise LockHeldElsewhere(details={"pid": pid}) from None
    finally:
        os.close(handle)


def _has_open(pid: int, path: Path) -> bool:
    """Whether process `pid` has `path` open, so that the content of the lock file is right."""
    if pid <= 0:
        return False
    try:
        wanted = path.stat()
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            try:
                seen = descriptor.stat()
            except OSError:
                continue
            if (seen.st_dev, seen.st_ino) == (wanted.st_dev, wanted.st_ino):
                return True
    except OSError:
        return False
    return False


def _clear_stale(datadir: DataDir) -> None:
    """Removes server.json and the lock file, with the lock held. On a read-only disk they stay, and
    the next start replaces them."""
    if not datadir.server_file.exists() and not datadir.lock_file.exists():
        return
    with suppress(HubRunning, DataDirNotWritable), WriterLock(datadir, random_id()):
        datadir.server_file.unlink(missing_ok=True)


def _require_server() -> None:
    missing = [name for name in SERVER_MODULES if find_spec(name) is None]
    if missing:
        raise ServerNotInstalled(details={"missing": missing})


def _command(datadir: DataDir, options: ServerOptions) -> list[str]:
    # -P: a folder with the name of a module must not be imported.
    server = [sys.executable, "-P", "-m", "appliance.server"]
    return [*server, "--workspace", str(datadir.workspace), *options.arguments()]


def _environment() -> dict[str, str]:
    """The caller's environment, extended so that the child finds the modules of a checkout."""
    environment = dict(os.environ)
    root = checkout()
    if root is not None:
        given = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{root}{os.pathsep}{given}" if given else str(root)
    return environment


def checkout() -> Path | None:
    """The folder of the modules if they are not installed."""
    root = Path(appliance.__file__).parent.parent
    return None if "site-packages" in root.parts else root


def _open_log(datadir: DataDir) -> int:
    path = log_file(datadir)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
            path.replace(former_log_file(datadir))
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StartFailed(f"can't write the log {path}: {error.strerror}") from None


def _start_failed(datadir: DataDir, began_at: int, why: str) -> StartFailed:
    """The error with `why` and the last lines of the server's log."""
    path = log_file(datadir)
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(began_at, end - LOG_TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        text = ""
    words, hint = _last_words(text)
    if not text and free_bytes(datadir.dir) < DISK_FULL_BYTES:
        words, hint = "the disk is full", f"free space: df -h {datadir.dir}"
    return StartFailed(
        f"{why}: {words}",
        details={"log": str(path)},
        hint=f"{hint} (log: {path})" if hint else f"see the log: {path}",
    )


def _notice(datadir: DataDir, began_at: int) -> State:
    """The server's log line about its port, if it could not use the preferred one."""
    try:
        with log_file(datadir).open("rb") as file:
            file.seek(began_at)
            lines = file.read(LOG_START_BYTES).splitlines()
    except OSError:
        return {}
    marked = [line for line in lines if PORT_CHANGED.encode() in line]
    return {"notice": _sentence(marked[-1].decode("utf-8", "replace"))} if marked else {}


def _last_words(text: str) -> tuple[str, str | None]:
    """The last error in a server's output, or else its last line; and the last hint."""
    lines = [_sentence(line) for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")]
    hints = [line.removeprefix("Hint: ") for line in lines if line.startswith("Hint: ")]
    return (errors or lines or ["no output"])[-1], hints[-1] if hints else None


def _sentence(line: str) -> str:
    """The message of a JSON log line, or the line."""
    try:
        value: Any = msgspec.json.decode(line)
        return str(value.get("message") or value.get("msg") or line)
    except (msgspec.DecodeError, AttributeError):
        return line.strip()
