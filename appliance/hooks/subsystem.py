"""The hooks subsystem."""

import os
from collections.abc import Callable, Collection
from typing import Any, Protocol

import msgspec

from appliance.hooks.loops import AT_ONCE_MAX, HookRunner
from appliance.hooks.resources import routes
from appliance.hooks.service import HookService, SendHookMessage
from appliance.hooks.settings import HookSettings
from appliance.host import Host
from appliance.inbox.event import InboxEvent
from appliance.kernel.auth import Principal, TokenBook
from appliance.kernel.loop import Loop, Pruner
from appliance.kernel.route import Route
from appliance.kernel.store import Store
from appliance.kernel.subsystem import Role, Subsystem


class HookedInbox(Protocol):
    """What hooks need of the inbox."""

    @property
    def meshes(self) -> list[str]: ...
    def announce(self, name: str, mesh: str, **facts: Any) -> None: ...
    def mesh_of(self, mesh: str | None, principal: Principal, scope: str) -> str: ...


class HooksNeeds(msgspec.Struct, frozen=True):
    """`listen` takes a function that is called with each event. `own` returns this member's key and
    names in a mesh, `url` the URL of this appliance. Without `send` hooks can't send."""

    inbox: HookedInbox
    listen: Callable[[Callable[[InboxEvent], None]], None]
    store: Store
    book: TokenBook
    off_in_ci: bool
    own: Callable[[str], Collection[str]]
    url: Callable[[], str]
    send: SendHookMessage | None


class HooksSubsystem(Subsystem):
    """Runs are stored in the inbox's database."""

    name = "hooks"
    role = Role("commands that run on events of the inbox", ("inbox",))
    sections = {"hooks": HookSettings}
    paths = ("/v1/hooks",)
    needed_stores = frozenset({"inbox"})

    def __init__(self, host: Host, needs: HooksNeeds) -> None:
        settings, inbox, clock, log = host.section(HookSettings), needs.inbox, host.clock, host.log
        self.hooks = HookService(
            settings,
            needs.store,
            needs.book,
            clock,
            log,
            host.served.workspace,
            os.environ,
            off_in_ci=needs.off_in_ci,
            own=needs.own,
            url=needs.url,
            announce=inbox.announce,
            send=needs.send,
        )
        self._inbox = inbox
        self.loops: list[Loop] = []
        if self.hooks.enabled:
            needs.listen(self.hooks.on_event)
            self.loops = [
                *(HookRunner(self.hooks, clock, log) for _ in range(AT_ONCE_MAX)),
                Pruner("hook_grants", 30.0, self.hooks.prune_grants, clock, log),
            ]
            self.hooks.mark_lost()

    def routes(self) -> list[Route]:
        return routes(self.hooks, self._inbox.mesh_of)

    def start(self) -> None:
        """Run the on-startup hooks of each mesh."""
        for mesh in self._inbox.meshes:
            self.hooks.on_startup(mesh)
