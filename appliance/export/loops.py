"""Runs child processes that export due segments and merge small ones."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from appliance.export import metrics
from appliance.export.logs import EVENTS
from appliance.export.settings import ExportSettings, round_seconds
from appliance.kernel.clock import DAY_MS, Clock
from appliance.kernel.errors import Unavailable
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.workspace.command_runner import CommandRunner, error_of

ROUND_SECONDS_MAX = 3600.0  # a longer round is stopped and started again


class ExportFailed(Unavailable):
    code = "EXPORT_FAILED"
    default_message = "the segment export failed"
    default_hint = "run agentlip export segments to see the error"


class SegmentExporter(Loop):
    """Runs if `export.export` is set. A failed round is logged; the next one continues."""

    name = "export_segments"

    def __init__(
        self,
        child: CommandRunner,
        settings: ExportSettings,
        newest: Callable[[], Mapping[str, int]],
        clock: Clock,
        log: Log,
    ) -> None:
        super().__init__(clock, log)
        self._newest = newest
        self._exported: dict[str, int] = {}
        self._tidied_day: int | None = None
        self._child = child
        self.interval_seconds = round_seconds(settings)

    def run_once(self, now_ms: int) -> dict[str, int]:
        segments = self._export() if self._is_anything_new() else 0
        removed, day = 0, now_ms // DAY_MS
        # Retention also runs when there are no new rows.
        if segments or day != self._tidied_day:
            removed = sum(log["removed"] for log in self._run_command("compact")["logs"])
            self._tidied_day = day
        metrics.rounds.labels("ok").inc()
        return {"segments": segments, "removed": removed}

    def _is_anything_new(self) -> bool:
        """Return whether new rows exist; without new rows no process is started. An empty log
        has nothing new."""
        numbers = self._newest().items()
        return not self._exported or any(
            number and number != self._exported.get(kind) for kind, number in numbers
        )

    def _export(self) -> int:
        exported = self._run_command("segments", "--due")
        logs = {log["log"]: log for log in exported["logs"]}
        self._exported = {kind: log["last_event_id"] for kind, log in logs.items()}
        events = logs[EVENTS.kind]
        metrics.rows.inc(events["rows"])
        metrics.written.inc(events["bytes"])
        metrics.waiting.set(events["waiting"])
        for kind, log in logs.items():
            metrics.log_rows.labels(kind).inc(log["rows"])
            metrics.log_last.labels(kind).set(log["last_event_id"])
            metrics.log_waiting.labels(kind).set(log["waiting"])
            metrics.log_missing.labels(kind).inc(log["missing"])
        return sum(log["segments"] for log in logs.values())

    def _run_command(self, *arguments: str) -> dict[str, Any]:
        try:
            done = self._child.run(("export", *arguments), ROUND_SECONDS_MAX)
            if done.code:
                error = error_of(done)
                raise ExportFailed(f"{error.code}: {error.error}", hint=error.hint)
            answer: dict[str, Any] = msgspec.json.decode(done.output)
        except Exception:
            metrics.rounds.labels("failed").inc()
            raise
        return answer
