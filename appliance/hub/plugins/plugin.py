"""One plugin at work: its worker and its breaker, and what it says about a message."""

from pathlib import Path
from typing import Any

import msgspec

from appliance.hub import wire as hub_wire
from appliance.hub.plugins import metrics, output, source, wire, writes
from appliance.hub.plugins.breaker import Breaker
from appliance.hub.plugins.settings import PluginSettings, PluginsSettings
from appliance.hub.plugins.source import BadSource, Source
from appliance.hub.plugins.worker import Failure, Worker
from appliance.kernel.batch import Call
from appliance.kernel.clock import Clock
from appliance.kernel.lock import Turn
from appliance.kernel.log import Log

_encode = msgspec.json.Encoder().encode


class Plugin:
    """`broken` says why it can't run at all, until the appliance is started again."""

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
        self.settings = settings
        self._clock = clock
        self._log = log
        self.broken = ""
        self.trouble = ""  # the sentence of the last failure, until it succeeds
        self.done = self.failed = 0
        self.breaker = Breaker(
            settings.failures_max, settings.pause_seconds, settings.pause_seconds_max
        )
        self.source: Source | None = None
        self.worker: Worker | None = None
        self.needed = source.NEEDED.get(own.builtin or "")
        self.turn = Turn()  # the runner's, or that of a request that asks for one message
        self._used = clock.monotonic()
        try:
            self.source = source.read(own, workspace, settings.module_bytes_max)
            self.worker = Worker(own, self.source, settings, data_dir, log)
        except BadSource as error:
            self.broken = str(error)
            log.warning("plugin left out", plugin=own.name, reason=self.broken)

    @property
    def paused(self) -> bool:
        return self.breaker.state(self._clock.monotonic()) == "open"

    def prove(self) -> None:
        """Start it now; PluginUnfit if that fails."""
        reason = self.broken
        if self.worker is not None:
            try:
                self.worker.start()
            except Failure as failure:
                reason = failure.sentence
        if reason:
            raise wire.PluginUnfit(
                f"the plugin {self.name} is required and can't run: {reason}",
                details={"plugin": self.name},
            )

    def work(self, message: hub_wire.Message) -> Call:
        """What to store of what it says about `message`; Failure if it says nothing fit."""
        assert self.worker is not None
        began = self._clock.monotonic()
        try:
            call = self._ask(message)
        except Failure as failure:
            self._fell(failure, message.id)
            raise
        self._used = self._clock.monotonic()
        took = self._used - began
        metrics.seconds.labels(self.name).observe(took)
        metrics.messages.labels(self.name, "done").inc()
        metrics.paused.labels(self.name).set(0)
        self.breaker.succeeded()
        self.done += 1
        self.trouble = ""
        if took > self.settings.slow_seconds:
            self._log.warning(
                "slow plugin", plugin=self.name, message_id=message.id, seconds=round(took, 3)
            )
        self.worker.rest()
        return call

    def rest(self) -> None:
        """Ends a process that has had no work for long."""
        worker = self.worker
        if worker is None or not worker.running or self.turn.taken:
            return
        if self._clock.monotonic() - self._used > self.settings.idle_seconds:
            worker.stop()

    def stop(self) -> None:
        if self.worker is not None:
            self.worker.stop()

    def _ask(self, message: hub_wire.Message) -> Call:
        assert self.worker is not None
        raw = self.worker.ask(_encode(_shown(message)))
        seen = writes.Seen(message.id, message.version, message.content_raw)
        most = self.settings.items_max
        try:
            if self.own.type == "linkifier":
                found = output.findings(raw, message.content_raw, most)
                return writes.keep_enrichments, (self.name, seen, found)
            added = output.extracts(raw, message.id, most)
            return writes.keep_attachments, (self.name, seen, added)
        except output.BadOutput as error:
            raise Failure("invalid", str(error)) from None

    def _fell(self, failure: Failure, message_id: str) -> None:
        now = self._used = self._clock.monotonic()
        self.trouble = failure.sentence
        self.failed += not failure.passing
        metrics.messages.labels(self.name, failure.outcome).inc()
        self._log.warning(
            "plugin failed", plugin=self.name, outcome=failure.outcome, reason=failure.sentence,
            message_id=message_id, **failure.where,
        )  # fmt: skip
        if self.breaker.failed(now, at_once=failure.passing):
            metrics.paused.labels(self.name).set(1)
            self._log.warning(
                "plugin paused", plugin=self.name, seconds=self.breaker.seconds_left(now)
            )


def _shown(message: hub_wire.Message) -> dict[str, Any]:
    """What a plugin gets to see (hub spec §0.9, plugin contract), and the version."""
    names = ("id", "content_raw", "sender", "topic_id", "channel_id", "created_at", "version")
    return {name: getattr(message, name) for name in names}
