"""Writes `server.json` (hub spec §0.9) at the start, restores it, and removes it at the end. The
lock file is restored too.

The file is advisory: clients check `/health` before they trust it. A file of another
instance is never replaced or removed.
"""

import os
from contextlib import suppress

import msgspec

from appliance import __version__
from appliance.hub.wire import PROTOCOL_VERSION
from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import ApplianceError
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.sdk.discovery import ask_health, endpoint_of
from appliance.sdk.reader import WorkspaceReader
from appliance.workspace.datadir import DataDir, HubRunning, WriterLock

Stamp = tuple[int, ...]


def refuse_second_hub(datadir: DataDir) -> None:
    """Raises HubRunning while a hub of another implementation serves this database.

    Such a hub doesn't hold the writer lock. `server.json` has its address, and its response at
    `/health` shows whether it serves this workspace's database.
    """
    server = datadir.read_server()
    if server is None or not server.port or not datadir.database("hub").is_file():
        return
    health = ask_health(endpoint_of(server))
    if health is None or not health.db_id:
        return
    try:
        with WorkspaceReader(datadir.database("hub")) as reader:
            same = reader.db_id == health.db_id
    except ApplianceError:
        return  # the migration reports it
    if same:
        details = {"pid": health.pid or server.pid, "port": server.port}
        raise HubRunning(
            f"a hub already runs in this workspace (pid {details['pid']}, port {server.port})",
            details=details,
            hint="stop that hub first; if this workspace is a copy of its workspace,"
            " remove .agentlip/server.json from the copy",
        )


class ServerFileKeeper(Loop):
    """Writes `server.json`, and writes it again if it is removed or emptied."""

    name = "server_file"
    interval_seconds = 1.0  # two stat() a round

    def __init__(
        self,
        datadir: DataDir,
        lock: WriterLock,
        *,
        instance_id: str,
        db_id: str,
        host: str,
        port: int,
        started_ms: int,
        clock: Clock,
        log: Log,
    ) -> None:
        super().__init__(clock, log)
        self._datadir = datadir
        self._lock = lock
        self._path = datadir.server_file
        self._instance_id = instance_id
        self._facts = {
            "instance_id": instance_id,
            "db_id": db_id,
            "port": port,
            "host": host,
            "auth_token": None,
            "pid": os.getpid(),
            "started_at": iso(started_ms),
            "protocol_version": PROTOCOL_VERSION,
            "app_version": __version__,
        }
        self._published: Stamp | None = None
        self._unreadable: Stamp | None = None

    def publish(self) -> None:
        """Write the file. The caller made sure that no other hub runs."""
        self._datadir.write_private(self._path, self._text())
        self._published = self._stamp()

    def run_once(self, now_ms: int) -> dict[str, int]:
        if self._lock.restore():
            self.log.warning("the lock file was removed while the hub runs; taken again")
        seen = self._stamp()
        if seen == self._published and seen is not None:
            return {"written": 0}
        if seen is None:
            return self._rewrite("server.json was removed while the hub runs; written again")
        owner = self._datadir.read_server()
        if owner is not None and owner.instance_id == self._instance_id:
            self._datadir.tighten()  # a rotation of the token rewrites the file
            self._published = self._stamp()
            return {"written": 0}
        if owner is not None and owner.instance_id:
            self.log.warning(
                "server.json belongs to another instance; it was not changed",
                instance_id=owner.instance_id,
            )
            self._published = seen
            return {"written": 0}
        if seen != self._unreadable:  # another program may still be writing it
            self._unreadable = seen
            return {"written": 0}
        return self._rewrite("server.json was unreadable while the hub runs; written again")

    def remove(self) -> None:
        """Remove the file, unless it belongs to another instance."""
        owner = self._datadir.read_server()
        if owner is not None and owner.instance_id == self._instance_id:
            with suppress(OSError):  # the file is only advisory
                self._path.unlink(missing_ok=True)

    def _rewrite(self, message: str) -> dict[str, int]:
        self.publish()
        self.log.warning(message)
        return {"written": 1}

    def _stamp(self) -> Stamp | None:
        try:
            stat = self._path.stat(follow_symlinks=False)
        except FileNotFoundError:
            return None
        return (stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size, stat.st_mode)

    def _text(self) -> str:
        facts = {**self._facts, "auth_token": self._datadir.read_token()}
        return msgspec.json.format(msgspec.json.encode(facts), indent=2).decode() + "\n"
