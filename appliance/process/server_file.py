"""Writes `server.json` (hub spec §0.9) at the start, restores a lost file, and removes the file at
the end. The lock file is restored too.

The file is advisory: clients check `/health` first. Another instance's file is never replaced or
removed.
"""

from contextlib import suppress

import msgspec

from appliance.kernel.errors import ApplianceError
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.sdk.discovery import local
from appliance.workspace.datadir import DataDir, HubRunning, ServerFile, WriterLock


def refuse_second_hub(datadir: DataDir) -> None:
    """Raise HubRunning while another implementation's hub serves this database.

    Such a hub doesn't hold the writer lock. `server.json` has the address, and the hub's `/health`
    response shows whether this workspace's database is served.
    """
    server = datadir.read_server()
    try:
        endpoint, health = local(datadir, {})
    except ApplianceError:  # none answers, or the migration reports that the database is unusable
        return
    if server is None or not health.db_id or not datadir.database("hub").is_file():
        return
    details = {"pid": health.pid or server.pid, "port": endpoint.port}
    raise HubRunning(
        f"a hub already runs in this workspace (pid {details['pid']}, port {endpoint.port})",
        details=details,
        hint=(
            "stop that hub first; if this workspace is a copy, remove .agentlip/server.json "
            "from the copy"
        ),
    )


class ServerFileKeeper(Loop):
    """Keeps `server.json`: writes a removed or emptied file again."""

    name = "server_file"
    interval_seconds = 1.0

    def __init__(self, lock: WriterLock, server: ServerFile, log: Log) -> None:
        """Keep the content, `server`, without the token."""
        super().__init__(lock.clock, log)
        self._datadir = lock.datadir
        self._lock = lock
        self._server = server
        self._owner = server.instance_id  # by the last look at the file

    def publish(self) -> None:
        """Write the file. The caller made sure that no other hub runs."""
        token = self._datadir.read_token() or ""
        facts = msgspec.json.encode(msgspec.structs.replace(self._server, auth_token=token))
        text = msgspec.json.format(facts, indent=2).decode() + "\n"
        self._datadir.write_private(self._datadir.server_file, text)

    def run_once(self, now_ms: int) -> dict[str, int]:
        if self._lock.restore():
            self.log.warning("the lock file was removed while the hub runs; taken again")
        before, self._owner = self._owner, self._read_owner()
        if self._owner == self._server.instance_id:
            self._datadir.tighten()
        elif self._owner:
            if self._owner != before:
                self.log.warning(
                    "server.json belongs to another instance; it was not changed",
                    instance_id=self._owner,
                )
        elif not before:  # in the first round another program may still be writing
            self.publish()
            self.log.warning("server.json was removed or damaged while the hub runs; written again")
            return {"written": 1}
        return {"written": 0}

    def remove(self) -> None:
        """Remove the file, unless it belongs to another instance."""
        if self._read_owner() == self._server.instance_id:
            with suppress(OSError):  # the file is only advisory
                self._datadir.server_file.unlink(missing_ok=True)

    def _read_owner(self) -> str:
        """Return the instance that wrote the file; "" if it is missing or not readable."""
        server = self._datadir.read_server()
        return server.instance_id if server else ""
