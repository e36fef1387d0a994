"""Starts the server in the background and waits until it serves."""

import os
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import appliance
from appliance.kernel.clock import Clock, SystemClock
from appliance.kernel.errors import ApplianceError, Conflict, OutOfMemory, Unavailable
from appliance.kernel.file_lock import file_lock
from appliance.kernel.log import Log
from appliance.kernel.ownership import open_own, refuse_other_owner
from appliance.kernel.store_errors import DISK_FULL_BYTES, free_bytes
from appliance.operations.log_files import log_file, rotate
from appliance.process.logfile import fields_of
from appliance.process.server_options import ServerOptions
from appliance.process.starting import START_SECONDS_MAX, StartDeadline
from appliance.process.status import State, hub_state
from appliance.process.stopping import end, foreign
from appliance.sdk.discovery import endpoint_of, probe
from appliance.workspace.datadir import (
    DataDir,
    HubRunning,
    WorkspaceNotFound,
    find_workspace,
    not_writable,
    read_lock,
)
from appliance.workspace.manifest import lost_stores

POLL_SECONDS = 0.03
TERMINATE_SECONDS_MAX = 2.0  # between SIGTERM and SIGKILL for a start that takes too long
EXIT_TAKEN = 2  # exit code for a server whose lock or port is in use
LOG_BYTES_MAX = 10 * 1024 * 1024
LOG_TAIL_BYTES = 4096
SERVER_MODULES = ("falcon", "gevent", "gunicorn", "peewee", "prometheus_client")


class ServerNotInstalled(ApplianceError):
    kind = "invalid"
    code = "SERVER_NOT_INSTALLED"
    default_message = "agentlip's server part is not installed"
    default_hint = "pip install 'agentlip[appliance]'"


class StartFailed(ApplianceError):
    kind = "invalid"
    code = "START_FAILED"
    default_message = "the appliance did not start"
    default_hint = "agentlip doctor"


class RunsElsewhere(Conflict):
    code = "RUNS_ELSEWHERE"
    default_message = "the appliance already runs at another address"
    default_hint = "agentlipd restart --help"


class StartBusy(Unavailable):
    code = "START_BUSY"
    default_message = "this appliance is already being started"
    default_hint = "agentlipd status"


def workspace_for_up(
    explicit: Path | None,
    *,
    make: bool = True,
    accepted: tuple[str, ...] = (),
    as_root: bool = False,
) -> DataDir:
    """Return the workspace. Without one, create it in `explicit` or in the current directory."""
    try:
        return find_workspace(explicit)
    except WorkspaceNotFound:
        datadir = DataDir((explicit or Path()).expanduser().resolve())
        if not make:
            return datadir
        with start_lock(datadir, StartDeadline(SystemClock()), as_root=as_root):
            return init_workspace(datadir.workspace, accepted, as_root=as_root)[0]


def init_workspace(
    directory: Path, accepted: tuple[str, ...] = (), *, as_root: bool = False
) -> tuple[DataDir, bool]:
    """Return the workspace in `directory`, and whether it was created."""
    from appliance.workspace.schema import create_workspace

    datadir = DataDir(directory.expanduser().resolve())
    refuse_other_owner(datadir.workspace, datadir.dir, as_root=as_root)
    log = Log(sys.stderr.buffer, level="warning")
    return datadir, create_workspace(datadir, clock=SystemClock(), log=log, accepted=accepted)


def become_server(datadir: DataDir, options: ServerOptions) -> NoReturn:
    """Replace this process by the server, which then gets a supervisor's signals."""
    _require_server()
    sys.stdout.flush()
    sys.stderr.flush()
    command = server_command(datadir.workspace, options.arguments())
    os.execve(sys.executable, command, _environment())


def start(datadir: DataDir, options: ServerOptions, deadline: StartDeadline | None = None) -> State:
    """Start a server in the background, wait until ready, and return its state.

    If several starts run at once, the first starts the server and the rest waits. Raises
    StartFailed, also after `deadline`, and StartBusy.
    """
    refuse_other_owner(datadir.workspace, datadir.dir, as_root=options.as_root)
    state = hub_state(datadir)
    if state["status"] != "running":
        _require_server()
        deadline = deadline or StartDeadline(SystemClock())
        with start_lock(datadir, deadline, as_root=options.as_root):
            state = hub_state(datadir)
            if state["status"] != "running":
                return _start(datadir, options, deadline)
    return _already(datadir, state, options)


def _already(datadir: DataDir, state: State, options: ServerOptions) -> State:
    """Return a running hub's state. Raises RunsElsewhere for a hub at another address, and
    ForeignHub for a hub other than an appliance, which writes its version and holds the lock."""
    server = datadir.read_server()
    if server is not None and not server.app_version and not read_lock(datadir).held:
        raise foreign(state)
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
    lost = {str(error.details["store"]) for error in lost_stores(datadir)}
    if names := " --accept-loss ".join(sorted(lost & set(options.accept_loss))):
        hint = f"agentlipd down; agentlipd up --accept-loss {names}"
        raise HubRunning("the appliance runs, so no loss is accepted now", hint=hint)
    return {**state, "already_running": True}


def _start(datadir: DataDir, options: ServerOptions, deadline: StartDeadline) -> State:
    log = _open_log(datadir)
    began_at = os.fstat(log).st_size
    try:
        child = subprocess.Popen(
            server_command(datadir.workspace, options.arguments()),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=datadir.workspace,
            env=_environment(),
            start_new_session=True,
        )
    finally:
        os.close(log)
    return _await_ready(datadir, child, began_at, deadline)


@contextmanager
def start_lock(
    datadir: DataDir, deadline: StartDeadline, *, as_root: bool = False
) -> Iterator[None]:
    """Hold the lock while a process creates this workspace or starts the server.

    The started server does not keep the lock.
    """
    from appliance.workspace.schema import make_folders

    path = datadir.lock_file.with_name("start.lock")
    refuse_other_owner(datadir.workspace, datadir.dir, as_root=as_root)
    make_folders(datadir)
    busy = StartBusy(f"another start has not finished within {START_SECONDS_MAX:.0f} s")
    with ExitStack() as lock:
        try:
            lock.enter_context(file_lock(path, busy, deadline.left))
        except OSError as error:
            raise not_writable(error) from error
        yield


@contextmanager
def hold_locks(datadir: DataDir) -> Iterator[Clock]:
    """Hold both locks for a command that changes a stopped workspace: nothing runs or starts
    meanwhile. An interrupted restore is undone or completed first. Raises HubRunning."""
    from appliance.workspace import swap

    clock = SystemClock()
    with start_lock(datadir, StartDeadline(clock)), swap.hold_stopped(datadir, clock):
        yield clock


def check_settings(datadir: DataDir, options: ServerOptions, deadline: StartDeadline) -> None:
    """Raise StartFailed if the settings are invalid. Call before stopping a running server."""
    _require_server()
    try:
        done = subprocess.run(
            server_command(datadir.workspace, [*options.arguments(), "--check"]),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            cwd=datadir.workspace,
            env=_environment(),
            timeout=deadline.left(),
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise StartFailed(
            "the appliance was not stopped, because its settings could not be read within"
            f" {START_SECONDS_MAX:.0f} s",
            hint=f"ls -l {shlex.quote(str(options.config or datadir.settings_file))}",
        ) from None
    if done.returncode:
        words, hint = _last_words(done.stderr)
        raise StartFailed(
            f"the appliance was not stopped, because it could not start again: {words}", hint=hint
        )


def _await_ready(
    datadir: DataDir, child: "subprocess.Popen[bytes]", began_at: int, deadline: StartDeadline
) -> State:
    while not deadline.has_passed(datadir, child.pid):
        try:
            child.wait(POLL_SECONDS)
        except subprocess.TimeoutExpired:
            if _serves(datadir, child.pid):
                return {**hub_state(datadir), "already_running": False}
            continue
        state = hub_state(datadir)
        if child.returncode == EXIT_TAKEN:  # another start may have been faster
            while state["status"] == "unresponsive" and deadline.left():
                select.select([], [], [], POLL_SECONDS)
                state = hub_state(datadir)
        if state["status"] == "running":
            return {**state, "already_running": True}
        if child.returncode == -signal.SIGABRT:  # a library got no memory
            raise StartFailed(
                "the appliance was aborted, as for too little memory",
                details={"log": str(log_file(datadir))},
                hint=f"{OutOfMemory.default_hint} (log: {log_file(datadir)})",
            )
        why = f"the appliance did not start (exit code {child.returncode})"
        raise _start_failed(datadir, began_at, why)
    end(child.pid, signal.SIGTERM, TERMINATE_SECONDS_MAX) or end(child.pid, signal.SIGKILL, 1.0)
    why = f"the appliance was not ready after {START_SECONDS_MAX:.0f} s and was stopped"
    raise _start_failed(datadir, began_at, why)


def _serves(datadir: DataDir, pid: int) -> bool:
    """Return whether the process serves requests, even if not ready, as on a full disk, when reads
    work."""
    server = datadir.read_server()
    if server is None or server.pid != pid or not server.port:
        return False
    return probe(endpoint_of(server), "/-/healthy", timeout=2.0)[0] == 200


def _require_server() -> None:
    missing = [name for name in SERVER_MODULES if find_spec(name) is None]
    if missing:
        raise ServerNotInstalled(details={"missing": missing})


def server_command(workspace: Path, arguments: Sequence[str]) -> list[str]:
    # -P: a folder with a module's name must not be imported.
    server = [sys.executable, "-P", "-m", "appliance.server"]
    return [*server, "--workspace", str(workspace), *arguments]


def _environment() -> dict[str, str]:
    """Return the caller's environment, extended so that the child finds a checkout's modules."""
    environment = dict(os.environ)
    root = checkout()
    if root is not None:
        given = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{root}{os.pathsep}{given}" if given else str(root)
    return environment


def checkout() -> Path | None:
    """Return the modules' folder if they are not installed."""
    root = Path(appliance.__file__).parent.parent
    return None if "site-packages" in root.parts else root


def _open_log(datadir: DataDir) -> int:
    path = log_file(datadir)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
            rotate(path)
        return open_own(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    except OSError as error:
        raise StartFailed(
            f"can't write the log {path}: {error.strerror}",
            hint=f"ls -ld {shlex.quote(str(path))}; it has to be a file that you can write",
        ) from None


def _start_failed(datadir: DataDir, began_at: int, why: str) -> StartFailed:
    """Return the error with `why` and the last lines from the server's log."""
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


def _last_words(text: str) -> tuple[str, str | None]:
    """Return the last error in a server's output, or else its last line; and the last hint."""
    lines = [
        str((fields_of(line.encode()) or {}).get("msg") or line.strip())
        for line in text.splitlines()
        if line.strip()
    ]
    errors = [line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")]
    hints = [line.removeprefix("Hint: ") for line in lines if line.startswith("Hint: ")]
    return (errors or lines or ["no output"])[-1], hints[-1] if hints else None
