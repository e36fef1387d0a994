"""The broker as a part of the appliance."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from appliance.broker import wire
from appliance.broker.dispatch import Dispatch
from appliance.broker.hooks import HookDeliverer
from appliance.broker.link import Link
from appliance.broker.local import Callback, LocalLink, OnEvent
from appliance.broker.loops import (
    DedupeRetention,
    Deliverer,
    LeaseSweeper,
    OrphanCheck,
)
from appliance.broker.registry import Registry
from appliance.broker.resources import routes
from appliance.broker.service import Broker
from appliance.broker.settings import BrokerSettings
from appliance.broker.webhook_caller import Caller
from appliance.kernel.auth import Principal
from appliance.kernel.clock import Clock
from appliance.kernel.datadir import DataDir
from appliance.kernel.errors import Unavailable
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.pool import GreenletPool
from appliance.kernel.route import Route, SocketRoute
from appliance.kernel.store import Store, WriterProcessOptions
from appliance.kernel.subsystem import Subsystem
from appliance.kernel.writer import StoreSettings
from appliance.web.socket import Socket, SocketSettings


class BrokerSubsystem(Subsystem):
    name = "broker"
    needs = frozenset({"broker"})
    scopes = wire.SCOPES

    def __init__(
        self,
        settings: BrokerSettings,
        store: StoreSettings,
        sockets: SocketSettings,
        datadir: DataDir,
        clock: Clock,
        log: Log,
        hook_caller: Caller | None = None,
        apart: Callable[[Callable[[], None]], WriterProcessOptions] | None = None,
    ) -> None:
        """`hook_caller` calls webhooks; without one they are refused. `apart` ties a writer's
        process to this one, for settings that want one; it is given what looks again for
        everybody when that process was lost."""
        dispatch = Dispatch(settings.links_max)
        self.store = Store(
            "broker", datadir.database("broker"), store, clock, log, publish=dispatch.told,
            apart=apart(dispatch.look_again) if apart and settings.writer == "process" else None,
        )  # fmt: skip
        self.broker = Broker(self.store, dispatch, settings, clock, log, hook_caller)
        self.broker.open()
        self.registry = Registry(self.broker)
        self.retention = DedupeRetention(self.broker)
        self._crew = GreenletPool(settings.webhook_concurrency_max)
        self.hooks = HookDeliverer(self.broker, self._crew)
        self.stores = (self.store,)
        self.loops: list[Loop] = [
            Deliverer(self.broker),
            LeaseSweeper(self.broker),
            self.hooks,
            self.retention,
            OrphanCheck(self.broker, self.registry),
        ]
        self._sockets = sockets

    def routes(self) -> list[Route]:
        return routes(self.broker, self.registry)

    def sockets(self) -> list[SocketRoute]:
        """The first frame says who it is, so no scope is asked."""
        return [SocketRoute("/broker/v1/link", None, self._link)]

    def subscribe_local(
        self, mesh: str, member: str, callback: Callback, on_event: OnEvent | None = None
    ) -> LocalLink:
        """Deliveries for a receiver in this process, from now until its `stop`."""
        link = LocalLink(self.broker, mesh, member, callback, on_event)
        link.start()
        return link

    def close(self, timeout_seconds: float) -> bool:
        """After the loops: calls on their way may end and are written down. Those that don't
        are made again after the next start. False when time ran out."""
        if not self._crew.join(timeout_seconds / 2):
            self._crew.kill()
        with suppress(Unavailable):
            self.hooks.flush()
            self.broker.save_nonces()
        return self.store.close(timeout_seconds)

    def _link(
        self, socket: Socket, who: Principal, _charge: Callable[[int], None], _query: Any
    ) -> int:
        return Link(socket, self.broker, who, self._sockets).run()
