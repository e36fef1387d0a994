"""The plugins' subsystem."""

import msgspec

from appliance.host import Host
from appliance.hub.plugins.loops import PluginRunner
from appliance.hub.plugins.plugin import Plugin
from appliance.hub.plugins.resources import routes
from appliance.hub.plugins.service import Plugins
from appliance.hub.plugins.settings import PluginsSettings
from appliance.hub.plugins.wire import STEPS
from appliance.hub.service import Hub
from appliance.kernel.errors import ApplianceError
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Role, Subsystem


class PluginsNeeds(msgspec.Struct, frozen=True):
    hub: Hub


class PluginsSubsystem(Subsystem):
    name = "plugins"
    role = Role("plugins that process hub messages", ("hub",))
    sections = {"plugins": PluginsSettings}
    facts_help = {
        "plugin.*.broken": "1 if the plugin can't be loaded",
        "plugin.*.lag_events": "Events between a plugin's cursor and the log's end",
        "plugin.*.lag_events_max": "Above this lag the doctor warns",
        "plugin.*.paused": "1 while a plugin's circuit breaker is not closed",
    } | {f"plugin.*.open_{step}": f"1 if nothing denies it: {step}" for step in (*STEPS, "root")}

    def __init__(self, host: Host, needs: PluginsNeeds) -> None:
        settings, hub, clock, log = host.section(PluginsSettings), needs.hub, host.clock, host.log
        self._log = log
        folder, data_dir = host.datadir.workspace, host.datadir.dir
        on = [own for own in settings.all if own.enabled]
        plugins = [Plugin(own, settings, folder, data_dir, clock, log) for own in on]
        self.loops = self.runners = [
            PluginRunner(plugin, hub.store, hub.feed, clock, log, hub.identity.epochs)
            for plugin in plugins
        ]
        self.plugins = Plugins(hub, self.runners, clock)
        for plugin in plugins:
            if plugin.own.required:
                plugin.prove()  # raises PluginUnfit if unable to run

    def routes(self) -> list[Route]:
        return routes(self.plugins)

    def facts(self) -> dict[str, float]:
        return self.plugins.facts()

    def close(self, timeout_seconds: float) -> bool:
        """Stop the processes and store the cursors; after the loops, before the hub's store."""
        for runner in self.runners:
            runner.plugin.stop()
            try:
                runner.flush()
            except ApplianceError as error:
                # Some messages are then processed again, without effect.
                self._log.warning(
                    "a cursor was not stored", plugin=runner.plugin.name, code=error.code
                )
        return True
