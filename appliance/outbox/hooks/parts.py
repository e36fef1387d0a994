"""Hooks put together: what app.py mounts, starts and stops."""

from collections.abc import Callable, Collection, Mapping

from appliance.kernel.auth import TokenBook
from appliance.kernel.clock import Clock
from appliance.kernel.datadir import DataDir
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.store import Store
from appliance.outbox.hooks.loops import GrantKeeper, Runner
from appliance.outbox.hooks.resources import routes
from appliance.outbox.hooks.service import Hooks
from appliance.outbox.hooks.settings import HookSettings
from appliance.outbox.identity.mode import in_ci
from appliance.outbox.inbox.service import Inbox
from appliance.web.route import Route


class Parts:
    def __init__(
        self,
        settings: HookSettings,
        inbox: Inbox,
        store: Store,
        datadir: DataDir,
        book: TokenBook,
        clock: Clock,
        log: Log,
        environment: Mapping[str, str],
        *,
        own: Callable[[str], Collection[str]],
        url: Callable[[], str],
    ) -> None:
        self.hooks = Hooks(
            settings,
            store,
            book,
            clock,
            log,
            datadir.workspace,
            environment,
            off_in_ci=in_ci(environment),
            own=own,
            url=url,
            announce=inbox.announce,
        )
        self._inbox = inbox
        self.loops: list[Loop] = []
        if self.hooks.enabled:
            inbox.listeners.append(self.hooks.hear)
            self.loops = [
                *(Runner(self.hooks, clock, log) for _ in range(settings.at_once_max)),
                GrantKeeper(self.hooks, clock, log),
            ]
            self.hooks.forget_running()

    def routes(self) -> list[Route]:
        return routes(self.hooks, self._inbox.mesh_of)

    def start_up(self) -> None:
        """The appliance serves: hooks of that event are called, for each mesh."""
        for mesh in self._inbox.meshes:
            self.hooks.start_up(mesh)
