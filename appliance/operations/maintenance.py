"""Maintenance mode: closes the gate for writes, and keeps the mode across restarts."""

from datetime import UTC
from pathlib import Path

import msgspec

from appliance.host import Host
from appliance.kernel.clock import Clock, iso
from appliance.kernel.json_file import read_json
from appliance.kernel.log import Log
from appliance.kernel.route import Operation, Route
from appliance.kernel.subsystem import Subsystem
from appliance.kernel.whole_file import write_whole
from appliance.operations import wire
from appliance.operations.wire import (
    BadEndOfMaintenance,
    BeginMaintenance,
    MaintenanceRecord,
    MaintenanceState,
)
from appliance.web.responders import Responders, reply_with
from appliance.web.write_gate import WriteGate

SECONDS_MAX = 7 * 86_400


class Maintenance:
    def __init__(self, file: Path, clock: Clock, log: Log) -> None:
        self.gate = WriteGate(clock)
        self._file = file
        self._clock = clock
        self._log = log
        self._record = read_json(file, MaintenanceRecord) or MaintenanceRecord()
        self.gate.close_until(self._record.until_ms)

    def state(self) -> MaintenanceState:
        if not self.gate.seconds_left:
            return MaintenanceState(False)
        return MaintenanceState(True, iso(self._record.until_ms), self._record.reason)

    def begin(self, command: BeginMaintenance) -> MaintenanceState:
        """Begin maintenance. Raise BadEndOfMaintenance, or OSError if recording failed."""
        now_ms = self._clock.now_ms()
        end_ms = _end_ms(command, now_ms)
        if not 0 < end_ms - now_ms <= SECONDS_MAX * 1000:
            raise BadEndOfMaintenance(details={"field": "until"})
        return self._set(MaintenanceRecord(end_ms, command.reason))

    def end(self) -> MaintenanceState:
        return self._set(MaintenanceRecord())

    def _set(self, record: MaintenanceRecord) -> MaintenanceState:
        write_whole(self._file, msgspec.json.encode(record))
        self._record = record
        self.gate.close_until(record.until_ms)
        self._log.warning("maintenance mode", **msgspec.structs.asdict(record))
        return self.state()


def _end_ms(command: BeginMaintenance, now_ms: int) -> int:
    """Return the end, or 0 unless the command has either `until` or `seconds`."""
    until, seconds = command.until, command.seconds
    if until is not None and seconds is None:
        return int(until.replace(tzinfo=until.tzinfo or UTC).timestamp() * 1000)
    if seconds is not None and until is None:
        return now_ms + round(seconds * 1000)
    return 0


def routes(maintenance: Maintenance) -> list[Route]:
    shown = wire.MaintenanceState
    return [
        Route("/api/v1/maintenance", Responders(
            get=reply_with(maintenance.state), post=reply_with(maintenance.begin),
            delete=reply_with(maintenance.end),
        ), {
            "GET": Operation(wire.READ, reply=shown, summary="Whether writes are refused"),
            "POST": Operation(wire.MAINTENANCE, body=wire.BeginMaintenance, reply=shown,
                             errors=(wire.BadEndOfMaintenance,),
                             example={"until": "2026-12-24T18:00:00Z", "reason": "new disk"},
                             summary="Refuse client writes until a time",
                             audited=True, in_maintenance=True),
            "DELETE": Operation(wire.MAINTENANCE, reply=shown, summary="Accept writes again",
                                audited=True, in_maintenance=True),
        }),
    ]  # fmt: skip


FILE = "maintenance.json"


class MaintenanceSubsystem(Subsystem):
    name = "maintenance"
    scopes = wire.SCOPES
    facts_help = {"maintenance.left_seconds": "Time until maintenance mode ends; 0: it is off"}

    def __init__(self, host: Host) -> None:
        self._maintenance = Maintenance(host.datadir.dir / FILE, host.clock, host.log)
        self.gate = self._maintenance.gate

    def routes(self) -> list[Route]:
        return routes(self._maintenance)

    def facts(self) -> dict[str, float]:
        return {"maintenance.left_seconds": self.gate.seconds_left}
