"""One plugin in use: worker, circuit breaker, and results for messages."""

from pathlib import Path
from typing import Any

import msgspec

from appliance.hub import wire as hub_wire
from appliance.hub.plugins import metrics, output, source, wire, writes
from appliance.hub.plugins.settings import PluginSettings, PluginsSettings
from appliance.hub.plugins.source import BadSource, PluginSource
from appliance.hub.plugins.worker import PluginFailure, PluginWorker
from appliance.kernel.batch import Call
from appliance.kernel.circuit_breaker import CircuitBreaker
from appliance.kernel.clock import Clock
from appliance.kernel.log import Log
from appliance.kernel.retry import RetrySettings, delay_seconds

FAILURES_MAX = 5  # in a row, then a plugin pauses; then a single message is tried
PAUSES = RetrySettings(30.0, 600.0)
UNUSED_SECONDS_MAX = 60.0  # then the process, which has some 20 MB, ends
SLOW_SECONDS = 1.0  # a message that takes longer is logged
_encode = msgspec.json.Encoder().encode


class Plugin:
    """`broken`: the reason if the plugin can't run until a restart; else empty."""

    def __init__(
        self,
        own: PluginSettings,
        settings: PluginsSettings,
        workspace: Path,
        data_dir: Path,
        clock: Clock,
        log: Log,
    ) -> None:
        self.own = own
        self.name = own.name
        self._clock = clock
        self._log = log
        self.broken = ""
        self.last_failure = ""  # the last failure's reason; empty after a success
        self.done = self.failed = 0
        self.breaker = CircuitBreaker(FAILURES_MAX)
        self.source: PluginSource | None = None
        self.worker: PluginWorker | None = None
        self.needed = source.NEEDED.get(own.builtin or "")
        self._used = clock.monotonic()
        try:
            self.source = source.read(own, workspace)
            self.worker = PluginWorker(own, self.source, settings, data_dir, log)
        except BadSource as error:
            self.broken = str(error)
            log.warning("plugin left out", plugin=own.name, reason=self.broken)

    @property
    def paused(self) -> bool:
        return self.breaker.state(self._clock.monotonic()) == "open"

    def prove(self) -> None:
        """Start it now. Raises PluginUnfit if that fails."""
        reason = self.broken
        if self.worker is not None:
            try:
                self.worker.start()
            except PluginFailure as failure:
                reason = failure.message
        if reason:
            raise wire.PluginUnfit(
                f"the required plugin {self.name} can't run: {reason}",
                details={"plugin": self.name},
            )

    def work(self, message: hub_wire.Message) -> Call:
        """Return the result to store for `message`. Raises PluginFailure without a valid result."""
        assert self.worker is not None
        began = self._clock.monotonic()
        try:
            call = self._request(message)
        except PluginFailure as failure:
            self._record_failure(failure, message.id)
            raise
        self._used = self._clock.monotonic()
        took = self._used - began
        metrics.seconds.labels(self.name).observe(took)
        metrics.messages.labels(self.name, "done").inc()
        self.breaker.note_success()
        self.done += 1
        self.last_failure = ""
        if took > SLOW_SECONDS:
            self._log.warning(
                "slow plugin", plugin=self.name, message_id=message.id, seconds=round(took, 3)
            )
        self.worker.rest()
        return call

    def rest(self) -> None:
        """End the process if it was idle for too long."""
        worker = self.worker
        if worker is None or not worker.running:
            return
        if self._clock.monotonic() - self._used > UNUSED_SECONDS_MAX:
            worker.stop()

    def stop(self) -> None:
        if self.worker is not None:
            self.worker.stop()

    def _request(self, message: hub_wire.Message) -> Call:
        assert self.worker is not None
        raw = self.worker.ask(_encode(_plugin_view(message)))
        try:
            if self.own.type == "linkifier":
                findings = output.findings(raw, message.content_raw)
                return writes.store_enrichments, (self.name, message, findings)
            extracts = output.extracts(raw, message.id)
            return writes.store_attachments, (self.name, message, extracts)
        except output.BadOutput as error:
            raise PluginFailure("invalid", str(error)) from None

    def _record_failure(self, failure: PluginFailure, message_id: str) -> None:
        now = self._used = self._clock.monotonic()
        self.last_failure = failure.message
        self.failed += not failure.passing
        metrics.messages.labels(self.name, failure.outcome).inc()
        self._log.warning(
            "plugin failed", plugin=self.name, outcome=failure.outcome, reason=failure.message,
            message_id=message_id, **failure.where,
        )  # fmt: skip
        if self.breaker.state(now) == "open":
            return  # failed during a pause, on request: the pause stays unchanged
        pause_seconds = delay_seconds(PAUSES, self.breaker.openings + 1)
        if self.breaker.note_failure(now, pause_seconds, at_once=failure.passing):
            self._log.warning(
                "plugin paused", plugin=self.name, seconds=self.breaker.seconds_left(now)
            )


def _plugin_view(message: hub_wire.Message) -> dict[str, Any]:
    """Return the message as plugins get it (hub spec §0.9, plugin contract), and its version."""
    names = ("id", "content_raw", "sender", "topic_id", "channel_id", "created_at", "version")
    return {name: getattr(message, name) for name in names}
