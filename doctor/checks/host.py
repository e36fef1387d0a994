"""Checks for the machine and the process: disk, token, lock, server.json, event loop."""

import os
from collections.abc import Iterator
from datetime import datetime

from appliance.checks.check import Check, Finding, Problem, Severity
from appliance.checks.context import Context
from appliance.checks.sections import section
from appliance.checks.settings import DoctorSettings
from appliance.kernel.clock import utc
from appliance.kernel.store_errors import DISK_FULL_BYTES
from appliance.kernel.writer import StoreSettings
from appliance.workspace.datadir import pid_alive
from doctor.live import is_served_by_another
from doctor.ownership import NOT_SERVING

_GIB = 1024**3
_START_SECONDS_MAX = 60.0
LOOP_DELAY_ERROR_FACTOR = 10  # the warning is for what people notice; now clients give up
_NEW_TOKEN = "agentlipd down; agentlipd up --accept-loss token"


def _disk(context: Context) -> Iterator[Finding]:
    volume = os.statvfs(context.datadir.dir)
    if context.disk_problem == "read-only":
        yield READ_ONLY.finding(
            "disk",
            "the file system is read-only: writes are refused, the data is unchanged",
            f"findmnt -T {context.datadir.dir}; dmesg",
            severity=Severity.ERROR if context.serves_read_only else Severity.CRITICAL,
        )
        return
    total = volume.f_blocks * volume.f_frsize
    free = volume.f_bavail * volume.f_frsize
    if not total:  # some network mounts report no size
        return
    store = section(context.datadir.settings_file, "store", StoreSettings) or StoreSettings()
    limit = max(store.free_bytes_min, DISK_FULL_BYTES)
    if StoreSettings().free_bytes_min <= free < limit:
        yield PAUSED.finding(
            "disk",
            f"writing is paused: {free / _GIB:.2f} GiB are free, and the setting"
            f" store.free_bytes_min requires {limit / _GIB:.2f}",
            f"lower the setting, or free disk space: df -h {context.datadir.dir}",
        )
        return
    if free < limit:  # also while no appliance runs
        yield FULL.finding(
            "disk",
            f"the disk is full: {free / _GIB:.2f} GiB free of {total / _GIB:.2f}; writes are"
            " refused, the data is unchanged",
            f"free disk space: df -h {context.datadir.dir}",
        )
        return
    if context.disk_problem == "full":
        yield PAUSED.finding(
            "disk",
            f"writing is paused, although {free / _GIB:.2f} GiB are free: the disk has errors, a"
            " quota is used up, or a write-ahead log can't be emptied; the data is unchanged",
            f"dmesg | tail -20; fuser -v {context.datadir.dir}/*.sqlite3",
        )
        return
    error, warning = free_bytes_min(context.settings, total)
    if free < warning or free < error:
        yield LOW.finding(
            "disk",
            f"{free / _GIB:.2f} GiB free of {total / _GIB:.2f} ({100 * free / total:.1f} %)",
            f"free disk space: df -h {context.datadir.dir}",
            severity=Severity.ERROR if free < error else Severity.WARNING,
        )


def free_bytes_min(limits: DoctorSettings, total: int) -> tuple[float, float]:
    """Return the free disk bytes below which there is an error, and a warning."""
    return (
        max(min(limits.disk_error_bytes, total // 4), total * limits.disk_error_percent / 100),
        max(min(limits.disk_warning_bytes, total // 2), total * limits.disk_warning_percent / 100),
    )


def _token(context: Context) -> Iterator[Finding]:
    path = context.datadir.token_file
    if path.exists():
        if context.datadir.read_token() is None:
            yield EMPTY.finding(path.name, "the token file is empty")
    elif context.lock().held:
        yield TOKEN_MISSING.finding(path.name, "a hub runs, but its token file is missing")


def _lock(context: Context) -> Iterator[Finding]:
    if context.number("lock_intact") == 0:
        yield REMOVED.finding(
            "writer.lock",
            "the lock file was removed while the hub runs, so a second hub could start",
        )
    view = context.lock()
    if view.exists and not view.held:
        who = f" (pid {view.written.pid})" if view.written is not None else ""
        yield LOCK_LEFT_BEHIND.finding(
            "writer.lock", f"left by a hub that did not exit cleanly{who}; it does no harm"
        )


def _is_starting(context: Context) -> bool:
    """Return whether the lock holder has had little time to write server.json."""
    view = context.lock()
    if context.live is not None or context.datadir.server_file.exists():
        return False
    if not view.held or view.written is None:
        return False
    try:
        began = datetime.fromisoformat(utc(view.written.started_at)).timestamp()
    except ValueError:
        return False
    return 0 <= context.clock.now_ms() / 1000 - began < _START_SECONDS_MAX


def _server_file(context: Context) -> Iterator[Finding]:
    path = context.datadir.server_file
    view, server = context.lock(), context.server()
    if _is_starting(context):
        return
    if not path.exists():
        if view.held and view.written is not None and view.written.instance_id not in NOT_SERVING:
            yield SERVER_FILE_MISSING.finding(
                path.name, "a hub runs, but the file with its address is missing"
            )
        return
    if server is None:
        yield INVALID.finding(path.name, "the file can't be decoded")
    elif not view.held and not is_served_by_another(context.datadir):
        alive = pid_alive(server.pid)
        copied = f"; pid {server.pid} does not use this workspace, which may be a copy"
        yield SERVER_FILE_LEFT_BEHIND.finding(
            path.name,
            "left by a hub that no longer runs"
            + (copied if alive else f" (pid {server.pid} has ended)"),
        )
    elif view.held and view.written is not None and server.instance_id != view.written.instance_id:
        yield OTHER_INSTANCE.finding(
            path.name, "the file names another instance than the lock's holder"
        )


def _process(context: Context) -> Iterator[Finding]:
    if context.number("stopping"):
        yield STOPPING.finding("appliance", "the appliance is stopping")
    if context.live_error is not None:
        view = context.lock()
        here = view.written is not None and pid_alive(view.written.pid)
        if _is_starting(context):
            yield STARTING.finding("appliance", "an appliance is starting")
            return
        yield UNREACHABLE.finding(
            "appliance",
            f"a running appliance can't be reached, so its facts are missing: {context.live_error}",
            severity=Severity.ERROR if here else Severity.WARNING,
        )


def _loop_delay(context: Context) -> Iterator[Finding]:
    delay = context.number("loop_delay_seconds") or 0.0
    limit = context.settings.loop_delay_warning_seconds
    if delay >= limit:
        bad = delay >= limit * LOOP_DELAY_ERROR_FACTOR
        yield DELAYED.finding(
            "event loop",
            f"requests were delayed by up to {delay:.2f} s in the last seconds",
            severity=Severity.ERROR if bad else Severity.WARNING,
        )


READ_ONLY = Problem("read-only")
FULL = Problem("full", Severity.CRITICAL)
PAUSED = Problem("paused", Severity.CRITICAL)
LOW = Problem("low")
EMPTY = Problem("empty", Severity.ERROR, hint=_NEW_TOKEN)
TOKEN_MISSING = Problem("missing", hint=_NEW_TOKEN)
REMOVED = Problem("removed", Severity.CRITICAL, hint="agentlipd restart")
LOCK_LEFT_BEHIND = Problem("left-behind", Severity.INFO)
SERVER_FILE_MISSING = Problem("missing", hint="agentlipd restart")
INVALID = Problem("invalid", hint="agentlipd restart")
SERVER_FILE_LEFT_BEHIND = Problem("left-behind", hint="agentlipd up")
OTHER_INSTANCE = Problem("other-instance", hint="agentlipd restart")
STOPPING = Problem("stopping", Severity.CRITICAL)
STARTING = Problem("starting", Severity.INFO)
UNREACHABLE = Problem("unreachable", hint="agentlipd restart")
DELAYED = Problem("delayed", hint="check the machine's load: uptime")
CHECKS = (
    Check(
        name="host.disk", inspects="free space on the data directory's disk", ready=True,
        find=_disk, problems=(READ_ONLY, FULL, PAUSED, LOW),
    ),
    Check(
        name="host.token", inspects="the token file holds a token", find=_token,
        problems=(EMPTY, TOKEN_MISSING),
    ),
    Check(
        name="host.lock", inspects="the writer lock is held by a running hub, or free", ready=True,
        find=_lock, problems=(REMOVED, LOCK_LEFT_BEHIND),
    ),
    Check(
        name="host.server-file", inspects="server.json names the running hub", find=_server_file,
        problems=(SERVER_FILE_MISSING, INVALID, SERVER_FILE_LEFT_BEHIND, OTHER_INSTANCE),
    ),
    Check(
        name="host.process", inspects="the running appliance responds and is not stopping",
        ready=True, find=_process, problems=(STOPPING, STARTING, UNREACHABLE),
    ),
    Check(
        name="host.loop-delay", inspects="the event loop's delay", ready=True,
        find=_loop_delay, problems=(DELAYED,),
    ),
)  # fmt: skip
