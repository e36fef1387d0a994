"""Maintenance: closes the gate for writes, and remembers it across restarts."""

from datetime import UTC
from pathlib import Path

import msgspec

from appliance.kernel.clock import Clock, iso
from appliance.kernel.log import Log
from appliance.kernel.whole_file import write_whole
from appliance.maintenance.wire import (
    BadEndOfMaintenance,
    BeginMaintenance,
    MaintenanceRecord,
    MaintenanceState,
    read_record,
)
from appliance.web.write_gate import WriteGate

SECONDS_MAX = 7 * 86_400


class Maintenance:
    def __init__(self, file: Path, clock: Clock, log: Log) -> None:
        self.gate = WriteGate(clock)
        self._file = file
        self._clock = clock
        self._log = log
        self._record = read_record(file)
        self.gate.close_until(self._record.until_ms)

    def state(self) -> MaintenanceState:
        if not self.gate.seconds_left:
            return MaintenanceState(False)
        return MaintenanceState(True, iso(self._record.until_ms), self._record.reason)

    def begin(self, command: BeginMaintenance) -> MaintenanceState:
        """Raises BadEndOfMaintenance, and OSError if it could not be recorded."""
        until = command.until.replace(tzinfo=command.until.tzinfo or UTC).timestamp()
        if not 0 < until - self._clock.now_ms() / 1000 <= SECONDS_MAX:
            raise BadEndOfMaintenance(details={"field": "until"})
        return self._set(MaintenanceRecord(int(until * 1000), command.reason))

    def end(self) -> MaintenanceState:
        return self._set(MaintenanceRecord())

    def _set(self, record: MaintenanceRecord) -> MaintenanceState:
        write_whole(self._file, msgspec.json.encode(record))
        self._record = record
        self.gate.close_until(record.until_ms)
        self._log.warning("maintenance mode", **msgspec.structs.asdict(record))
        return self.state()
