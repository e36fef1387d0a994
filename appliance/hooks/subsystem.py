"""Hooks as a part of the appliance."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from appliance.hooks.loops import GrantKeeper, Runner
from appliance.hooks.resources import routes
from appliance.hooks.service import Hooks, SendOrder
from appliance.hooks.settings import HookSettings
from appliance.inbox.event import Event
from appliance.kernel.auth import Principal, TokenBook
from appliance.kernel.clock import Clock
from appliance.kernel.datadir import DataDir
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.route import Route
from appliance.kernel.store import Store
from appliance.kernel.subsystem import Subsystem


class Events(Protocol):
    """The inbox, as hooks hear of it and answer."""

    listeners: list[Callable[[Event], None]]

    @property
    def meshes(self) -> list[str]: ...
    def announce(self, name: str, mesh: str, **facts: Any) -> None: ...
    def mesh_of(self, asked: str | None, who: Principal, scope: str) -> str: ...


class HooksSubsystem(Subsystem):
    """Runs are written into the inbox's store."""

    name = "hooks"
    needs = frozenset({"inbox"})

    def __init__(
        self,
        settings: HookSettings,
        inbox: Events,
        store: Store,
        datadir: DataDir,
        book: TokenBook,
        clock: Clock,
        log: Log,
        environment: Mapping[str, str],
        *,
        off_in_ci: bool,
        own: Callable[[str], Collection[str]],
        url: Callable[[], str],
        send: SendOrder | None,
    ) -> None:
        """`own` tells our key and names in a mesh, `url` where this appliance answers; without
        `send` no hook may send."""
        self.hooks = Hooks(
            settings,
            store,
            book,
            clock,
            log,
            datadir.workspace,
            environment,
            off_in_ci=off_in_ci,
            own=own,
            url=url,
            announce=inbox.announce,
            send=send,
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

    def start(self) -> None:
        """Hooks of that event are called, for each mesh."""
        for mesh in self._inbox.meshes:
            self.hooks.start_up(mesh)
