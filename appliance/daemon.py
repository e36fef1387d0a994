"""Starts the server as a process of its own, waits for it, stops it. Imports none of it.

Who runs is decided by the writer lock, never by a file's word: a process is only
signalled if it has the locked file open.
"""

import fcntl
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import msgspec

import appliance
from appliance.kernel.clock import Clock, SystemClock
from appliance.kernel.datadir import (
    DataDir,
    HubRunning,
    WorkspaceNotFound,
    WriterLock,
    look_at_lock,
    not_writable,
)
from appliance.kernel.errors import ApplianceError, Conflict, Unavailable
from appliance.kernel.ids import random_id
from appliance.kernel.log import Log
from appliance.logfile import former_log_file, log_file
from appliance.sdk.discovery import Endpoint, connect, find_workspace
from appliance.status import State, look_at

READY_SECONDS_MAX = 120.0  # a migration of a large database comes first
LOOK_EVERY_SECONDS = 0.03
EXIT_TAKEN = 2  # of a server that found its place taken: the lock, or the port
STOP_SECONDS_MAX = 10.0
KILL_SECONDS_MAX = 5.0
LOG_BYTES_MAX = 10 * 1024 * 1024
LOG_TAIL_BYTES = 4096
LOG_START_BYTES = 65_536
PORT_CHANGED = "PORT_CHANGED"  # as the server marks the line of its log
SERVER_PARTS = ("falcon", "gevent", "gunicorn", "peewee", "prometheus_client")


class ServerNotInstalled(ApplianceError):
    kind = "invalid"
    code = "SERVER_NOT_INSTALLED"
    sentence = "the server's part of agentlip is not installed here"
    advice = "pip install 'agentlip[appliance]'"


class StartFailed(ApplianceError):
    kind = "invalid"
    code = "START_FAILED"
    sentence = "the appliance did not start"
    advice = "agentlip doctor"


class StopFailed(Unavailable):
    code = "STOP_FAILED"
    sentence = "the appliance did not stop"
    advice = "agentlip doctor"


class HolderElsewhere(Unavailable):
    code = "LOCK_HELD_ELSEWHERE"
    sentence = "the writer lock is held by a process that can't be signalled from here"
    advice = "stop it where it runs: in its container, or as its user"


class ForeignHub(Conflict):
    code = "FOREIGN_HUB"
    sentence = "a hub of another implementation runs in this workspace"
    advice = "stop it with its own command"


class RunsElsewhere(Conflict):
    code = "RUNS_ELSEWHERE"
    sentence = "the appliance already runs at another address"
    advice = "agentlipd restart --help"


class StartBusy(Unavailable):
    code = "START_BUSY"
    sentence = "another start of this appliance has not finished"
    advice = "agentlipd status"


class ServerOptions(msgspec.Struct, frozen=True):
    """Flags handed on to the server."""

    host: str | None = None
    port: int | None = None
    config: Path | None = None
    no_limits: bool = False
    unsafe_network: bool = False
    accept_loss: tuple[str, ...] = ()

    def arguments(self) -> list[str]:
        pairs = (("--host", self.host), ("--port", self.port))
        given = [text for flag, value in pairs if value is not None for text in (flag, str(value))]
        if self.config is not None:
            given += ["--config", str(self.config.expanduser().resolve())]
        given += ["--no-limits"] if self.no_limits else []
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
    """The workspace meant; made where it was named, or here, when there is none."""
    try:
        return find_workspace(explicit)
    except WorkspaceNotFound:
        datadir = DataDir((explicit or Path()).expanduser().resolve())
        if not make:
            return datadir
        with one_start(datadir, SystemClock()):
            return init_workspace(datadir.workspace, accepted)[0]


def init_workspace(directory: Path, accepted: tuple[str, ...] = ()) -> tuple[DataDir, bool]:
    """The workspace in `directory`, and whether it had to be made."""
    from appliance.kernel.schema import create_workspace

    datadir = DataDir(directory.expanduser().resolve())
    log = Log(sys.stderr.buffer, level="warning")
    made = create_workspace(datadir, clock=SystemClock(), log=log, accepted=accepted)
    return datadir, bool(made.made)


def become_server(datadir: DataDir, options: ServerOptions) -> NoReturn:
    """Replaces this process, so that a supervisor's signals reach the server itself."""
    _require_server()
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, _command(datadir, options), _environment())


def start(datadir: DataDir, options: ServerOptions, clock: Clock | None = None) -> State:
    """Starts a server in the background and waits until it is ready; its state.

    Of several starts at once the first starts it, and the others wait and find it running.
    """
    state = look_at(datadir)
    if state["status"] == "running":
        return _already(state, options)
    _require_server()
    clock = clock or SystemClock()
    with one_start(datadir, clock):
        state = look_at(datadir)
        if state["status"] == "running":
            return _already(state, options)
        return _start(datadir, options, clock)


def _already(state: State, options: ServerOptions) -> State:
    """The state of a hub that runs; an error if it isn't where the caller wants it."""
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
def one_start(datadir: DataDir, clock: Clock) -> Iterator[None]:
    """Only one process at a time makes this workspace or starts its server.

    The lock ends with the process. Nobody unlinks its file, so all lock the same one.
    """
    from appliance.kernel.schema import make_folders

    path = datadir.lock_file.with_name("start.lock")
    deadline = clock.monotonic() + READY_SECONDS_MAX
    make_folders(datadir, [], [])
    try:
        # Closed in the server that is started here: it must not keep the lock.
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
                select.select([], [], [], LOOK_EVERY_SECONDS)
        yield
    finally:
        os.close(descriptor)


def check_settings(datadir: DataDir, options: ServerOptions) -> None:
    """Raises StartFailed when a server could not read its settings: before another is stopped."""
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
            f"the appliance could not start again, so it was not stopped: {words}", hint=hint
        )


def _await_ready(
    datadir: DataDir, child: "subprocess.Popen[bytes]", began_at: int, clock: Clock
) -> State:
    deadline = clock.monotonic() + READY_SECONDS_MAX
    while clock.monotonic() < deadline:
        try:
            child.wait(LOOK_EVERY_SECONDS)
        except subprocess.TimeoutExpired:
            if _ready(datadir, child.pid):
                return {**look_at(datadir), "already_running": False, **_notice(datadir, began_at)}
            continue
        state = look_at(datadir)
        if child.returncode == EXIT_TAKEN:  # maybe somebody else's start was quicker
            while state["status"] == "unresponsive" and clock.monotonic() < deadline:
                select.select([], [], [], LOOK_EVERY_SECONDS)
                state = look_at(datadir)
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
    """Stops the hub of this workspace; None if none was running. Clears what it left."""
    view = look_at_lock(datadir)
    if not view.held:
        state = look_at(datadir)
        if state["status"] == "running":
            raise ForeignHub(
                f"a hub of another implementation runs here: pid {state['pid']}, {state['url']}",
                details={"pid": state["pid"], "port": state["port"]},
            )
        _clear_stale(datadir)
        return None
    pid = view.written.pid if view.written else 0
    if not _has_open(pid, datadir.lock_file):
        raise HolderElsewhere(details={"pid": pid})
    gracefully = _end(pid, signal.SIGTERM, STOP_SECONDS_MAX)
    if not gracefully:
        say(f"pid {pid} did not stop within {STOP_SECONDS_MAX:.0f} s: killing it")
        if not _end(pid, signal.SIGKILL, KILL_SECONDS_MAX):
            raise StopFailed(f"pid {pid} did not end, not even killed", details={"pid": pid})
    _clear_stale(datadir)
    return Stopped(pid, gracefully)


def _end(pid: int, number: int, seconds_max: float) -> bool:
    """Signals `pid` and waits for its end; False if it still lives after `seconds_max`."""
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
        raise HolderElsewhere(details={"pid": pid}) from None
    finally:
        os.close(handle)


def _has_open(pid: int, path: Path) -> bool:
    """Whether process `pid` has `path` open: then the lock's file tells the truth."""
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
    """Takes away server.json and the lock's file, holding the lock so as to disturb nobody."""
    if not datadir.server_file.exists() and not datadir.lock_file.exists():
        return
    lock = WriterLock(datadir, random_id())
    try:
        lock.acquire()
    except HubRunning:
        return
    try:
        datadir.server_file.unlink(missing_ok=True)
    finally:
        lock.release()


def _require_server() -> None:
    missing = [name for name in SERVER_PARTS if find_spec(name) is None]
    if missing:
        raise ServerNotInstalled(details={"missing": missing})


def _command(datadir: DataDir, options: ServerOptions) -> list[str]:
    # -P: a folder that happens to be called like one of our modules must not be run.
    server = [sys.executable, "-P", "-m", "appliance.server"]
    return [*server, "--workspace", str(datadir.workspace), *options.arguments()]


def _environment() -> dict[str, str]:
    """The caller's, so that a checkout's modules are found by the child as well."""
    environment = dict(os.environ)
    root = checkout()
    if root is not None:
        given = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{root}{os.pathsep}{given}" if given else str(root)
    return environment


def checkout() -> Path | None:
    """Where our modules lie if they were not installed."""
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
    """`why`, and what the server itself said before it ended."""
    path = log_file(datadir)
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(began_at, end - LOG_TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        text = ""
    words, hint = _last_words(text)
    return StartFailed(
        f"{why}: {words}",
        details={"log": str(path)},
        hint=f"{hint} (log: {path})" if hint else f"the whole log is {path}",
    )


def _notice(datadir: DataDir, began_at: int) -> State:
    """What the server logged about its port when it could not have the one it wanted."""
    try:
        with log_file(datadir).open("rb") as file:
            file.seek(began_at)
            lines = file.read(LOG_START_BYTES).splitlines()
    except OSError:
        return {}
    marked = [line for line in lines if PORT_CHANGED.encode() in line]
    return {"notice": _sentence(marked[-1].decode("utf-8", "replace"))} if marked else {}


def _last_words(text: str) -> tuple[str, str | None]:
    """The last error that a server's output tells of, or its last line; and the last hint."""
    said = [_sentence(line) for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("Error: ") for line in said if line.startswith("Error: ")]
    hints = [line.removeprefix("Hint: ") for line in said if line.startswith("Hint: ")]
    return (errors or said or ["it said nothing"])[-1], hints[-1] if hints else None


def _sentence(line: str) -> str:
    """The message of a JSON log line, or the line."""
    try:
        value: Any = msgspec.json.decode(line)
        return str(value.get("message") or value.get("msg") or line)
    except (msgspec.DecodeError, AttributeError):
        return line.strip()
