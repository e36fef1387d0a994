"""Runs the server process: `python -m appliance.server`.

Takes the lock, migrates, binds, serves, and stops in reverse order. The worker from `web/worker.py`
runs in this process, without an arbiter.
"""

import gc
import importlib.metadata

gc.disable()  # imports leave no garbage, and a search for garbage takes a tenth of their time

from gevent import monkey

# gevent searches all installed packages for plug-ins 25 times, 0.1 s with 110 packages.
find_plugins = importlib.metadata.entry_points
importlib.metadata.entry_points = find_plugins().select
monkey.patch_all()
importlib.metadata.entry_points = find_plugins

import logging
import os
import signal
import socket
import sys
from contextlib import ExitStack, suppress
from typing import Any

import msgspec

from appliance import __version__, syscalls
from appliance.app import Appliance
from appliance.hub.wire import PROTOCOL_VERSION
from appliance.integrations.settings_rules import check_settings
from appliance.kernel import config
from appliance.kernel.clock import Clock, SystemClock, iso
from appliance.kernel.errors import ApplianceError, Invalid, OutOfMemory
from appliance.kernel.ids import random_id
from appliance.kernel.log import Log
from appliance.kernel.ownership import refuse_other_owner
from appliance.kernel.store_errors import StoreSuspended
from appliance.monitoring import watchdog
from appliance.operations.wire import refuse_older
from appliance.process.library_logs import ErrorStream, StandardLibraryHandler
from appliance.process.listeners import bind, listen_on_file
from appliance.process.server_file import ServerFileKeeper, refuse_second_hub
from appliance.process.server_options import ServerOptions, parse
from appliance.process.starting import announce_phase
from appliance.process.watchdog import StartWatchdog
from appliance.roles import ReadOnlyRoles
from appliance.settings import Settings
from appliance.upgrade import apply as upgrade
from appliance.upgrade.plan import pending_stores
from appliance.web.guard import is_loopback
from appliance.web.settings import LimitSettings
from appliance.web.worker import Worker
from appliance.workspace import manifest, readonly, schema, swap
from appliance.workspace.datadir import DataDir, ServerFile, WriterLock

gc.enable()

EXIT_CODES = {"conflict": 2, "unauthenticated": 4, "forbidden": 4}


class UnsafeBind(Invalid):
    code = "UNSAFE_BIND"
    default_message = "refusing a network address: tokens would be sent in plain text"
    default_hint = "put a TLS proxy in front of the appliance, then add --unsafe-network"


def main(arguments: list[str] | None = None) -> int:
    workspace, options = parse(arguments)
    syscalls.use_one_arena()
    syscalls.omit_sqlite_locks()
    sys.stderr = ErrorStream(sys.stderr)
    log = Log()
    # Until the worker handles signals, SIGTERM exits with the usual cleanup.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        return serve(DataDir(workspace), options, log)
    except KeyboardInterrupt:
        return 130
    except MemoryError:
        return report_error(OutOfMemory(), log)
    except ApplianceError as error:
        return report_error(error, log)


def report_error(error: ApplianceError, log: Log) -> int:
    """Write why the server ends, and return its exit code."""
    log.error(error.message, code=error.code, hint=error.hint, **error.details)
    print(f"Error: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"Hint: {error.hint}", file=sys.stderr)
    return EXIT_CODES.get(error.kind, 1)


def serve(datadir: DataDir, options: ServerOptions, log: Log) -> int:
    """Run the server and return the exit code."""
    clock = SystemClock()
    start = StartWatchdog(datadir, clock)
    manifest.check_names(options.accept_loss)
    refuse_other_owner(datadir.workspace, datadir.dir, as_root=options.as_root)
    settled = None if options.check else swap.settle_if_stopped(datadir, clock)
    settings = read_settings(options, datadir)
    if options.check:
        return 0
    log = Log(level=settings.log.level, slow_seconds=settings.log.slow_seconds, clock=clock)
    route_library_logs(log)
    log_settled(settled, log)
    read_only = settings.store.read_only
    if read_only:
        readonly.check_stores(datadir, settings.roles.stores)
    else:
        schema.make_folders(datadir)
    with ExitStack() as unlocked, WriterLock(datadir, random_id(), clock) as lock:
        refuse_second_hub(datadir)
        if not read_only:
            log_settled(swap.settle(datadir), log)
        if datadir.unread_settings_file.exists():
            log.warning(
                "this settings file is ignored",
                file=datadir.unread_settings_file.name,
                hint=f"write settings to {datadir.settings_file}: docs/reference/settings.md",
            )
        damaged: dict[str, StoreSuspended] = {}
        served = datadir
        with announce_phase(datadir, "opening its databases"):
            if not read_only:
                start.waits_for = "its databases"
                served = prepare(options, datadir, settings, damaged, clock, log)
            start.waits_for = "its address"
            listeners = [bind(settings.http.host, settings.http.port, datadir, log)]
            if settings.http.unix_socket:
                listeners.append(listen_on_file(datadir))
            start.waits_for = "its subsystems, which read their databases"
            appliance = Appliance(
                settings,
                lock,
                log,
                read_settings=lambda: read_settings(options, datadir),
                settings_file=options.config,
                served=served,
                damaged=damaged,
            )
        if not read_only:
            manifest.remember(datadir, settings.roles.stores)  # keys may have been created
        try:
            run(appliance, listeners, log, unlocked, start)
        finally:
            appliance.stop()
            with suppress(OSError):  # replaced by the next start
                datadir.socket_file.unlink(missing_ok=True)
        if not read_only:
            manifest.remember(datadir, settings.roles.stores)  # agents may have been made
    log.info("stopped", instance_id=lock.instance_id)
    return 0


def prepare(
    options: ServerOptions,
    datadir: DataDir,
    settings: Settings,
    damaged: dict[str, StoreSuspended],
    clock: Clock,
    log: Log,
) -> DataDir:
    """Recover, create and migrate the stores, after a backup if they are older. Return the
    workspace to serve; `damaged` collects the suspended stores."""
    for name in datadir.tighten():
        log.warning("a token file was readable by other users; the mode was corrected", file=name)
    stores = settings.roles.stores
    refuse_older(settings.store.migrate_at_start, lambda: pending_stores(datadir, stores))
    upgrade.apply(
        datadir,
        settings.backup,
        stores,
        clock,
        log,
        backup=not options.migrate_without_backup,
        accepted=options.accept_loss,
        damaged=damaged,
    )
    return schema.stand_ins(datadir, damaged, clock, log)


def log_settled(settled: swap.Settled | None, log: Log) -> None:
    if settled is not None:
        log.warning("a restore was interrupted", outcome=settled)


def read_settings(options: ServerOptions, datadir: DataDir) -> Settings:
    given: dict[str, Any] = {
        "http.host": options.host,
        "http.port": options.port,
        "http.unsafe_network": options.unsafe_network or None,
        "store.read_only": options.read_only or None,
    }
    if options.no_limits:
        given |= {f"limits.{name}": 0 for name in LimitSettings.__struct_encode_fields__}
    file = options.config or datadir.settings_file
    if options.config is not None and not file.exists():
        raise config.BadSettings(f"settings: file not found: {file}")
    settings = config.load(Settings, file, os.environ, given)
    if settings.store.read_only:
        roles = ReadOnlyRoles.of(settings.roles)
        settings = msgspec.structs.replace(settings, roles=roles)
    check_settings(settings, datadir)
    if not is_loopback(settings.http.host) and not settings.http.unsafe_network:
        raise UnsafeBind(details={"host": settings.http.host})
    return settings


def route_library_logs(log: Log) -> None:
    root = logging.getLogger()
    root.handlers = [StandardLibraryHandler(log)]
    root.setLevel(logging.WARNING)


def run(
    appliance: Appliance,
    listeners: list[socket.socket],
    log: Log,
    unlocked: ExitStack,
    start: StartWatchdog,
) -> None:
    """Serve until SIGTERM or SIGINT. `unlocked` is closed after the lock was released."""

    def on_signal(number: int) -> None:
        log.info("stopping", signal=number)
        watchdog.notify(watchdog.STOPPING)
        worker.stop()
        appliance.end_streams()

    worker = Worker(
        listeners,
        appliance.entry,
        appliance.settings.http,
        appliance.host.clock,
        log,
        on_signal,
        appliance.unsent,
    )
    appliance.start()
    syscalls.return_free_memory()  # 1.5 MB, mostly from compiling the router
    port = listeners[0].getsockname()[1]
    server = ServerFile(
        instance_id=appliance.identity.instance_id,
        db_id=appliance.db_id,
        port=port,
        host=appliance.settings.http.host,
        pid=os.getpid(),
        started_at=iso(appliance.identity.started_ms),
        protocol_version=PROTOCOL_VERSION,
        app_version=__version__,
    )
    keeper = ServerFileKeeper(appliance.lock, server, log)
    supervised = watchdog.SystemdWatchdog(appliance.host.clock, log)
    keeper.publish()
    unlocked.callback(keeper.remove)  # after the lock: hub spec, shutdown sequence
    keeper.start()
    log.info(
        "serving",
        host=appliance.settings.http.host,
        port=port,
        instance_id=appliance.identity.instance_id,
        db_id=appliance.db_id,
        epoch=appliance.identity.epoch,
    )
    tune_collector()
    start.stop()
    watchdog.notify(watchdog.READY)
    supervised.start()
    try:
        worker.run()
    finally:
        supervised.stop()
        keeper.stop()


def tune_collector() -> None:
    """Exempt loaded objects from garbage collection, and collect new ones less often.

    Queues hold many small objects for a short time. With the defaults, the collector scans them
    repeatedly and finds nothing, which takes a fifth of a busy stream's time. A collection first
    would take 70 ms, and a start leaves no garbage.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


if __name__ == "__main__":
    sys.exit(main())
