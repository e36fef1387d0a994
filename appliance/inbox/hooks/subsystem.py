"""Hooks as a subsystem."""

import os

from appliance.host import Host
from appliance.inbox.event import of_fact
from appliance.inbox.hooks.loops import AT_ONCE_MAX, HookRunner
from appliance.inbox.hooks.queries import has_runs
from appliance.inbox.hooks.resources import routes
from appliance.inbox.hooks.service import HookService, HooksNeeds
from appliance.inbox.hooks.settings import HookSettings
from appliance.inbox.hooks.writes import mark_lost
from appliance.kernel.loop import Loop
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Role, Subsystem


class HooksSubsystem(Subsystem):
    """The hooks. Their runs are stored in the inbox's database."""

    name = "hooks"
    role = Role("commands that run on inbox events", ("inbox",))
    sections = {"hooks": HookSettings}
    needed_stores = frozenset({"inbox"})

    def __init__(self, host: Host, needs: HooksNeeds) -> None:
        settings, inbox, clock, log = host.section(HookSettings), needs.inbox, host.clock, host.log
        self.hooks = HookService(
            settings, needs, clock, log, host.served.workspace, os.environ, host.commands
        )
        self._inbox = inbox
        self.loops: list[Loop] = []
        if self.hooks.enabled:
            needs.listen(self.hooks.on_event)
            needs.inbox.hooks_of = self.hooks.hooks_of
            self.loops = [HookRunner(self.hooks, clock, log) for _ in range(AT_ONCE_MAX)]
        # The former process's runs; without hooks nobody runs the waiting ones.
        former = "running" if self.hooks.enabled else "waiting"
        if needs.store.read(has_runs, former):  # a start must not write if the disk is full
            needs.store.write(mark_lost, former)

    def routes(self) -> list[Route]:
        return routes(self.hooks, self._inbox.mesh_of)

    def start(self) -> None:
        """Run each mesh's on-startup hooks."""
        for mesh in self._inbox.meshes if self.hooks.enabled else ():
            self.hooks.on_event(of_fact("startup", mesh, 0))
