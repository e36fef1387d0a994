"""The machine and the process: disk, permissions, lock, server.json, the event loop."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from appliance.kernel.datadir import pid_alive
from doctor.check import Check, Context, Finding, Severity

_GIB = 1024**3
_NEW_TOKEN = "agentlipd down; agentlip token rotate server; agentlipd up"


def _disk(context: Context) -> Iterator[Finding]:
    volume = os.statvfs(context.datadir.dir)
    if context.disk_trouble == "read-only":
        yield Finding(
            Severity.ERROR,
            "disk",
            "the file system is read-only, so nothing can be written; the data is unchanged",
            f"findmnt -T {context.datadir.dir}; after an error of the disk: dmesg",
        )
        return
    total = volume.f_blocks * volume.f_frsize
    free = volume.f_bavail * volume.f_frsize
    if not total:  # a file system that does not count, such as some network mounts
        return
    limits = context.settings
    if context.disk_trouble == "full":
        yield Finding(
            Severity.ERROR,
            "disk",
            f"it is full: {free / _GIB:.2f} GiB free of {total / _GIB:.2f}; writing is paused,"
            " the data is unchanged",
            f"make room: df -h {context.datadir.dir}",
        )
        return
    levels = (
        (Severity.ERROR, min(limits.disk_error_bytes, total // 4), limits.disk_error_percent),
        (Severity.WARNING, min(limits.disk_warning_bytes, total // 2), limits.disk_warning_percent),
    )
    percent = 100 * free / total
    for severity, bytes_min, percent_min in levels:
        if free < bytes_min or percent < percent_min:
            yield Finding(
                severity,
                "disk",
                f"{free / _GIB:.2f} GiB free of {total / _GIB:.2f} ({percent:.1f} %)",
                f"make room: df -h {context.datadir.dir}",
            )
            return


def _data_directory(context: Context) -> Iterator[Finding]:
    path = context.datadir.dir
    if path.stat().st_mode & stat.S_IWOTH:
        yield Finding(
            Severity.WARNING,
            path.name,
            "everybody on this machine can write into the data directory",
            f"chmod o-w {path}",
        )
    if context.disk_trouble != "read-only" and not os.access(path, os.W_OK):
        yield Finding(
            Severity.ERROR,
            path.name,
            f"user {os.geteuid()} can't write into the data directory",
            f"ls -ld {path}",
        )


def _token(context: Context) -> Iterator[Finding]:
    path = context.datadir.token_file
    if path.exists():
        yield from _private(path)
        if context.datadir.read_token() is None:
            yield Finding(Severity.ERROR, path.name, "the token file is empty", _NEW_TOKEN)
    elif context.lock().held:
        yield Finding(
            Severity.WARNING,
            path.name,
            "a hub runs, but the file with its token is gone",
            _NEW_TOKEN,
        )


def _private(path: Path) -> Iterator[Finding]:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        yield Finding(
            Severity.ERROR,
            path.name,
            f"others can read or write it (mode {mode:04o}), and it holds a secret",
            f"chmod 600 {path}",
        )


def _lock(context: Context) -> Iterator[Finding]:
    if context.number("lock_intact") == 0:
        yield Finding(
            Severity.CRITICAL,
            "writer.lock",
            "somebody removed the lock's file under the running hub, so a second could start",
            "agentlipd restart",
        )
    view = context.lock()
    if view.exists and not view.held:
        who = f" (pid {view.written.pid})" if view.written is not None else ""
        yield Finding(
            Severity.INFO,
            "writer.lock",
            f"left behind by a hub that ended without tidying up{who}; it stops nobody",
        )


def _server_file(context: Context) -> Iterator[Finding]:
    path = context.datadir.server_file
    view, server = context.lock(), context.server()
    if not path.exists():
        if view.held and view.written is not None and view.written.instance_id != "init":
            yield Finding(
                Severity.WARNING,
                path.name,
                "a hub runs, but clients can't find it: the file is missing",
                "agentlipd restart",
            )
        return
    yield from _private(path)
    if server is None:
        yield Finding(Severity.WARNING, path.name, "the file makes no sense", "agentlipd restart")
    elif not view.held:
        gone = "" if pid_alive(server.pid) else f" (pid {server.pid} is gone)"
        yield Finding(
            Severity.WARNING,
            path.name,
            f"left behind by a hub that runs no more{gone}",
            "agentlipd up",
        )
    elif view.written is not None and server.instance_id != view.written.instance_id:
        yield Finding(
            Severity.WARNING,
            path.name,
            "it speaks of another instance than the one that holds the lock",
            "agentlipd restart",
        )


def _process(context: Context) -> Iterator[Finding]:
    if context.number("stopping"):
        yield Finding(Severity.CRITICAL, "appliance", "it is stopping")
    if context.live_error is not None:
        view = context.lock()
        here = view.written is not None and pid_alive(view.written.pid)
        yield Finding(
            Severity.ERROR if here else Severity.WARNING,
            "appliance",
            f"one runs, but can't be asked, so its own facts are missing here:"
            f" {context.live_error}",
            "agentlipd status",
        )


def _loop_delay(context: Context) -> Iterator[Finding]:
    delay = context.number("loop_delay_seconds") or 0.0
    limits = context.settings
    if delay >= limits.loop_delay_warning_seconds:
        bad = delay >= limits.loop_delay_error_seconds
        yield Finding(
            Severity.ERROR if bad else Severity.WARNING,
            "event loop",
            f"it came {delay:.2f} s late within the last seconds: everybody waited that long",
            "look for a busy machine or a slow disk: uptime",
        )


CHECKS = (
    Check(name="host.disk", inspects="free space where the data lies", ready=True, find=_disk),
    Check(
        name="host.data-directory",
        inspects="who may write into the data directory",
        find=_data_directory,
    ),
    Check(name="host.token", inspects="the token's file is private", find=_token),
    Check(
        name="host.lock",
        inspects="the writer lock is held by a living hub, or by nobody",
        ready=True,
        find=_lock,
    ),
    Check(
        name="host.server-file",
        inspects="server.json is private and speaks of the hub that runs",
        find=_server_file,
    ),
    Check(
        name="host.process",
        inspects="the running appliance answers and is not stopping",
        ready=True,
        find=_process,
    ),
    Check(
        name="host.loop-delay",
        inspects="the event loop comes round in time",
        ready=True,
        find=_loop_delay,
    ),
)
