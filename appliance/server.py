"""The process: lock, migrations, bind, serve, and the same backwards. `python -m appliance.server`.

There is no second process: gunicorn's gevent worker runs in this one, so the writer lock,
the port and every write end together with one pid, however it ends.
"""

from gevent import monkey

monkey.patch_all()

import argparse
import gc
import logging
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from appliance.app import Appliance
from appliance.hub.wire import PROTOCOL_VERSION
from appliance.kernel import config, schema
from appliance.kernel.clock import SystemClock, iso
from appliance.kernel.datadir import DataDir, WriterLock
from appliance.kernel.errors import ApplianceError, Conflict, Invalid
from appliance.kernel.ids import random_id
from appliance.kernel.log import Log, StandardLibraryHandler
from appliance.outbox.inbox.recover import recover as recover_inbox
from appliance.outbox.recover import refuse_damaged as refuse_damaged_outbox
from appliance.settings import Settings
from appliance.web.guard import is_loopback
from appliance.web.settings import LimitSettings
from appliance.web.worker import Worker

EXIT_CODES = {"conflict": 2, "unauthenticated": 4}
BACKLOG = 1024


class UnsafeBind(Invalid):
    code = "UNSAFE_BIND"
    sentence = "refusing to listen beyond loopback: tokens would cross the network in the clear"
    advice = "put a TLS proxy in front, then add --unsafe-network"


class PortTaken(Conflict):
    code = "PORT_TAKEN"
    sentence = "the port is in use"
    advice = "choose another with --port, or 0 for a free one"


def main(arguments: list[str] | None = None) -> int:
    flags = parse(arguments)
    log = Log()
    # Until the worker listens to signals itself, an end is an exit with all its clean-up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        return serve(flags, log)
    except KeyboardInterrupt:
        return 130
    except ApplianceError as error:
        log.error(error.message, code=error.code, hint=error.hint, **error.details)
        print(f"Error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"Hint: {error.hint}", file=sys.stderr)
        return EXIT_CODES.get(error.kind, 1)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="appliance.server", description=__doc__)
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument(
        "--config", type=Path, help="settings file (default: WORKSPACE/agentlip.toml)"
    )
    parser.add_argument("--host", help="address to bind")
    parser.add_argument("--port", type=int, help="0 for a free one")
    parser.add_argument("--no-limits", action="store_true", help="no rate limits, for measuring")
    parser.add_argument("--unsafe-network", action="store_true", default=None)
    parser.add_argument("--check", action="store_true", help="only read the settings")
    return parser.parse_args(arguments)


def serve(flags: argparse.Namespace, log: Log) -> int:
    """From the lock to its release; the exit code."""
    datadir = DataDir(flags.workspace)
    settings = read_settings(flags, datadir)
    if flags.check:
        return 0
    clock = SystemClock()
    log = Log(level=settings.log.level, clock=clock)
    route_library_logs(log)
    instance_id = random_id()
    schema.make_folders(datadir, [], [])
    lock = WriterLock(datadir, instance_id, clock)
    lock.acquire()
    try:
        for name in datadir.tighten():
            log.warning("a file with the token could be read by others; no more", file=name)
        recover_inbox(datadir, settings.inbox, clock, log)
        refuse_damaged_outbox(datadir, settings.outbox)
        schema.create_workspace(datadir, clock=clock, log=log, locked=True)
        listeners = [bind(settings, datadir, log)]
        if settings.http.unix_socket:
            listeners.append(listen_on_file(datadir))
        appliance = Appliance(
            settings, datadir, lock, clock, log, instance_id, lambda: read_settings(flags, datadir)
        )
        try:
            run(appliance, listeners, log)
        finally:
            appliance.stop()
            with suppress(OSError):  # what ended us is the news, not that the file stays
                datadir.server_file.unlink(missing_ok=True)
                datadir.socket_file.unlink(missing_ok=True)
    finally:
        lock.release()
    log.info("stopped", instance_id=instance_id)
    return 0


def read_settings(flags: argparse.Namespace, datadir: DataDir) -> Settings:
    given: dict[str, Any] = {
        "http.host": flags.host,
        "http.port": flags.port,
        "http.unsafe_network": flags.unsafe_network,
    }
    if flags.no_limits:
        given |= {f"limits.{name}": 0 for name in LimitSettings.__struct_encode_fields__}
    file = flags.config or datadir.settings_file
    if flags.config is not None and not file.exists():
        raise config.BadSettings(f"settings: there is no file {file}")
    settings = config.load(Settings, file, os.environ, given)
    if not is_loopback(settings.http.host) and not settings.http.unsafe_network:
        raise UnsafeBind(details={"host": settings.http.host})
    return settings


def route_library_logs(log: Log) -> None:
    root = logging.getLogger()
    root.handlers = [StandardLibraryHandler(log)]
    root.setLevel(logging.WARNING)


def bind(settings: Settings, datadir: DataDir, log: Log) -> socket.socket:
    """The listening socket: the port asked for, else that of last time, else a free one."""
    http = settings.http
    remembered = remembered_port(datadir)
    for port in dict.fromkeys((http.port or remembered, http.port)):
        try:
            listener = listen(http.host, port)
        except OSError as error:
            if http.port:
                raise PortTaken(
                    f"can't listen on {http.host}:{port}: {error.strerror}",
                    details={"host": http.host, "port": port},
                ) from error
            log.warning("the port of last time is in use; taking a free one", port=port)
        else:
            datadir.write_private(datadir.dir / "port", f"{listener.getsockname()[1]}\n")
            return listener
    raise PortTaken(details={"host": http.host, "port": http.port})


def remembered_port(datadir: DataDir) -> int:
    try:
        return int((datadir.dir / "port").read_text())
    except (OSError, ValueError):
        return 0


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def listen_on_file(datadir: DataDir) -> socket.socket:
    """`.agentlip/sock`, for this user alone. Under the writer lock: what lies there is old."""
    path = datadir.socket_file
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise PortTaken(
            f"can't listen on {path.name}: {error.strerror or error}",
            hint="a socket's path has at most 107 bytes; use a workspace with a shorter one,"
            " or leave http.unix_socket out",
        ) from error
    finally:
        os.umask(before)
    return listener


def run(appliance: Appliance, listeners: list[socket.socket], log: Log) -> None:
    """Serve until SIGTERM or SIGINT."""

    def on_signal(number: int) -> None:
        log.info("stopping", signal=number)
        worker.stop()
        appliance.end_streams()

    worker = Worker(
        listeners, appliance.entry, appliance.settings.http, appliance.clock, log, on_signal
    )
    appliance.start()
    appliance.received.start_up()
    port = listeners[0].getsockname()[1]
    announce(appliance, port)
    log.info(
        "serving",
        host=appliance.settings.http.host,
        port=port,
        instance_id=appliance.identity.instance_id,
        db_id=appliance.hub.db_id,
        epoch=appliance.identity.epoch,
    )
    tune_collector()
    worker.init_process()


def tune_collector() -> None:
    """What is loaded stays; new objects are looked through less often.

    Queues hold many small objects for a short time. With the defaults the collector walks
    through them again and again and finds nothing: a fifth of the time of a busy stream.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def announce(appliance: Appliance, port: int) -> None:
    """`server.json`, for clients on this machine (hub spec §0.9). Advisory."""
    facts = {
        "instance_id": appliance.identity.instance_id,
        "db_id": appliance.hub.db_id,
        "port": port,
        "host": appliance.settings.http.host,
        "auth_token": appliance.datadir.read_token(),
        "pid": os.getpid(),
        "started_at": iso(appliance.identity.started_ms),
        "protocol_version": PROTOCOL_VERSION,
    }
    text = msgspec.json.format(msgspec.json.encode(facts), indent=2).decode()
    appliance.datadir.write_private(appliance.datadir.server_file, text + "\n")


if __name__ == "__main__":
    sys.exit(main())
