"""`server.json` (hub spec §0.9): written at the start, kept while the hub runs, removed at its end.

The file is advisory: clients ask `/health` before they trust it. Only the file of this
instance is ever replaced or removed. A file of another instance is left alone.
"""

import os
from contextlib import suppress

import msgspec

from appliance.hub.wire import PROTOCOL_VERSION
from appliance.kernel.clock import Clock, iso
from appliance.kernel.datadir import DataDir, HubRunning
from appliance.kernel.errors import ApplianceError
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.sdk.discovery import ANY_ADDRESS, Endpoint, ask_health
from appliance.sdk.reader import Reader

Stamp = tuple[int, ...]


def refuse_second_hub(datadir: DataDir) -> None:
    """Raises HubRunning while a hub of another implementation serves this database.

    Such a hub doesn't hold our writer lock. `server.json` says where it is, and its answer at
    `/health` shows that it runs and that it has this workspace's database.
    """
    server = datadir.read_server()
    if server is None or not server.port or not datadir.database("hub").is_file():
        return
    health = ask_health(Endpoint(ANY_ADDRESS.get(server.host, server.host), server.port))
    if health is None or not health.db_id:
        return
    try:
        with Reader(datadir.database("hub")) as reader:
            same = reader.db_id == health.db_id
    except ApplianceError:
        return  # the migration that follows reports what is wrong with the file
    if same:
        details = {"pid": health.pid or server.pid, "port": server.port}
        raise HubRunning(
            f"a hub already runs in this workspace (pid {details['pid']}, port {server.port})",
            details=details,
            hint="stop that hub first; if this workspace is a copy of its workspace,"
            " remove .agentlip/server.json from the copy",
        )


class ServerFileKeeper(Loop):
    """Writes `server.json`, and writes it again when somebody removes or empties it."""

    name = "server_file"
    interval_seconds = 1.0  # one stat() a round

    def __init__(
        self,
        datadir: DataDir,
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
        }
        self._known: Stamp | None = None
        self._unreadable: Stamp | None = None

    def publish(self) -> None:
        """Write the file, whatever is there: the caller made sure that no other hub runs."""
        self._datadir.write_private(self._path, self._text())
        self._known = self._stamp()

    def run_once(self, now_ms: int) -> dict[str, int]:
        seen = self._stamp()
        if seen == self._known and seen is not None:
            return {"written": 0}
        if seen is None:
            return self._again("server.json was removed while the hub runs; written again")
        owner = self._datadir.read_server()
        if owner is not None and owner.instance_id == self._instance_id:
            self._datadir.tighten()  # rotating the token rewrites it; nobody else should
            self._known = self._stamp()
            return {"written": 0}
        if owner is not None and owner.instance_id:
            self.log.warning(
                "server.json belongs to another instance; left alone", instance_id=owner.instance_id
            )
            self._known = seen
            return {"written": 0}
        if seen != self._unreadable:  # another program may be in the middle of writing it
            self._unreadable = seen
            return {"written": 0}
        return self._again("server.json was unreadable while the hub runs; written again")

    def remove(self) -> None:
        """At the end: the file of this instance, not that of another."""
        owner = self._datadir.read_server()
        if owner is not None and owner.instance_id == self._instance_id:
            with suppress(OSError):  # what ended the hub is the news, not that the file stays
                self._path.unlink(missing_ok=True)

    def _again(self, message: str) -> dict[str, int]:
        self.publish()
        self.log.warning(message)
        return {"written": 1}

    def _stamp(self) -> Stamp | None:
        try:
            found = self._path.stat(follow_symlinks=False)
        except FileNotFoundError:
            return None
        return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode)

    def _text(self) -> str:
        facts = {**self._facts, "auth_token": self._datadir.read_token()}
        return msgspec.json.format(msgspec.json.encode(facts), indent=2).decode() + "\n"
