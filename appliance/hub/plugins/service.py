"""Implements the plugin operations: status, reprocessing, and a message's enrichments."""

from collections.abc import Sequence
from typing import Protocol

from appliance.hub.access import READ
from appliance.hub.plugins import listings, wire, writes
from appliance.hub.plugins.plugin import Plugin
from appliance.hub.plugins.settings import PluginSettings
from appliance.hub.rows import PluginCursorRow
from appliance.hub.service import Hub
from appliance.hub.wire import PAGE_MAX
from appliance.kernel.auth import ANONYMOUS, Principal
from appliance.kernel.clock import Clock

LAG_WARNING_EVENTS = 10_000.0  # a plugin that is further behind does not catch up by itself


class PluginProgress(Protocol):
    """One plugin's progress (`loops.PluginRunner`)."""

    plugin: Plugin

    @property
    def cursor(self) -> int: ...
    @property
    def pending(self) -> int: ...
    @property
    def lag(self) -> int: ...
    def request_redo(self) -> None: ...


class Plugins:
    """One per process."""

    def __init__(self, hub: Hub, runners: Sequence[PluginProgress], clock: Clock) -> None:
        self._hub = hub
        self._store = hub.store
        self._runners = runners
        self._clock = clock

    def list_all(self) -> wire.PluginList:
        stored = self._store.read(listings.cursors)
        return wire.PluginList(
            [self._describe(runner, stored.get(runner.plugin.name)) for runner in self._runners]
        )

    def re_enrich(self, command: wire.ReEnrich) -> wire.ReEnrichTaken:
        names = [plugin.name for plugin in self._find_runnable(command.plugins)]
        head = self._hub.feed.head
        if not names:
            return wire.ReEnrichTaken([])
        since = min(command.since, head)
        taken = self._store.write(writes.request_redo, names, since, head)
        for runner in self._runners:
            runner.request_redo()
        return wire.ReEnrichTaken(taken)

    def enrichments(self, message_id: str, principal: Principal = ANONYMOUS) -> wire.EnrichmentList:
        self._hub.access.check_message(principal, READ, message_id)
        return self._store.read(listings.enrichments, message_id, PAGE_MAX)

    def facts(self) -> dict[str, float]:
        """Return facts about running plugins for the doctor's checks."""
        facts: dict[str, float] = {}
        for runner in self._runners:
            plugin = runner.plugin
            isolation = plugin.worker.isolation if plugin.worker is not None else None
            facts |= {
                f"plugin.{plugin.name}.broken": float(bool(plugin.broken)),
                f"plugin.{plugin.name}.paused": float(not plugin.breaker.is_closed),
                f"plugin.{plugin.name}.lag_events": float(runner.lag),
                f"plugin.{plugin.name}.lag_events_max": LAG_WARNING_EVENTS,
            }
            if isolation is not None:
                open_ = wire.gaps(isolation, plugin.own.network, plugin.own.subprocesses)
                facts |= {f"plugin.{plugin.name}.open_{step}": 1.0 for step in open_}
        return facts

    def _find_runnable(self, names: Sequence[str]) -> list[Plugin]:
        """Return plugins that can run, all or by name."""
        able = {
            runner.plugin.name: runner.plugin
            for runner in self._runners
            if not runner.plugin.broken
        }
        for name in names:
            if name not in able:
                raise wire.NoSuchPlugin(details={"plugin": name})
        return [able[name] for name in dict.fromkeys(names or able)]

    def _describe(
        self, runner: PluginProgress, stored: PluginCursorRow | None
    ) -> wire.PluginStatus:
        plugin, now = runner.plugin, self._clock.monotonic()
        worker = plugin.worker
        state: wire.State = "running" if worker is not None and worker.running else "idle"
        if plugin.broken:
            state = "broken"
        elif not plugin.breaker.is_closed:
            state = "paused"
        return wire.PluginStatus(
            name=plugin.name,
            type=plugin.own.type,
            source=_source(plugin.own),
            digest="" if plugin.source is None else plugin.source.digest,
            version="" if worker is None else worker.version,
            state=state,
            reason=plugin.broken or plugin.last_failure,
            required=plugin.own.required,
            breaker=plugin.breaker.state(now),
            pause_seconds=round(plugin.breaker.seconds_left(now), 1),
            cursor=runner.cursor,
            lag=runner.lag,
            pending=runner.pending,
            redo=_redo(stored),
            done=plugin.done,
            failed=plugin.failed,
            isolation=None if worker is None else worker.isolation,
        )


def _redo(stored: PluginCursorRow | None) -> int:
    if stored is None or stored.redo_cursor is None or stored.redo_until is None:
        return 0
    return stored.redo_until - stored.redo_cursor


def _source(own: PluginSettings) -> str:
    return f"builtin {own.builtin}" if own.module is None else own.module
