"""SegmentExporter: runs child processes that export due segments and merge small ones."""

from collections.abc import Callable
from typing import Any

import msgspec

from appliance.export import metrics
from appliance.export.segment import DAY_MS
from appliance.export.settings import ExportSettings
from appliance.kernel.clock import Clock
from appliance.kernel.command_runner import CommandRunner, error_of
from appliance.kernel.errors import Unavailable
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop


class ExportFailed(Unavailable):
    code = "EXPORT_FAILED"
    default_message = "the export of segments failed"
    default_hint = "run agentlip export segments to see the error"


class SegmentExporter(Loop):
    """Runs if `export.export` is set. A failed round is logged; the next one continues."""

    name = "jobs_segment_exporter"

    def __init__(
        self,
        child: CommandRunner,
        settings: ExportSettings,
        newest_event: Callable[[], int],
        clock: Clock,
        log: Log,
    ) -> None:
        super().__init__(clock, log)
        self._newest_event = newest_event
        self._exported: int | None = None
        self._tidied_day: int | None = None
        self._child = child
        self._settings = settings
        self.interval_seconds = settings.export_seconds

    def run_once(self, now_ms: int) -> dict[str, int]:
        # Without new events there is no need to start a process.
        segments = 0 if self._exported == self._newest_event() else self._export()
        removed, day = 0, now_ms // DAY_MS
        # Retention also runs when there are no new events.
        if segments or day != self._tidied_day:
            removed = self._ask("tidy")["removed"]
            self._tidied_day = day
        metrics.rounds.labels("ok").inc()
        return {"segments": segments, "removed": removed}

    def _export(self) -> int:
        exported = self._ask("segments", "--due")
        self._exported = exported["last_event_id"]
        metrics.rows.inc(exported["rows"])
        metrics.written.inc(exported["bytes"])
        metrics.last_event.set(exported["last_event_id"])
        metrics.waiting.set(exported["waiting"])
        segments: int = exported["segments"]
        return segments

    def _ask(self, *arguments: str) -> dict[str, Any]:
        try:
            done = self._child.run(("export", *arguments), self._settings.export_seconds_max)
            if done.code:
                error = error_of(done)
                raise ExportFailed(f"{error.code}: {error.error}", hint=error.hint)
            answer: dict[str, Any] = msgspec.json.decode(done.out)
        except Exception:
            metrics.rounds.labels("failed").inc()
            raise
        return answer
