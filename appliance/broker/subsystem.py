"""Adds the broker to the appliance."""

from collections.abc import Callable
from typing import Any

import msgspec

from appliance.broker import wire
from appliance.broker.dispatch import Dispatch
from appliance.broker.loops import BrokerPruner, Deliverer, LeaseExpiry
from appliance.broker.member_socket import MemberSocket
from appliance.broker.registry import Registry
from appliance.broker.resources import routes
from appliance.broker.service import Broker
from appliance.broker.settings import BrokerSettings
from appliance.host import Host
from appliance.kernel.auth import Principal
from appliance.kernel.log_retention import LogPruner
from appliance.kernel.loop import Loop
from appliance.kernel.route import Route, SocketRoute
from appliance.kernel.subsystem import Role, Subsystem
from appliance.web.socket import Socket


class BrokerNeeds(msgspec.Struct, frozen=True):
    """The needs. `check_url` raises BadWebhookUrl for a webhook URL that is not allowed; without
    it, because nothing calls webhooks, there are none."""

    check_url: Callable[[str], None] | None = None


class BrokerSubsystem(Subsystem):
    name = "broker"
    role = Role("mesh broker, for members here and elsewhere")
    sections = {"broker": BrokerSettings}
    needed_stores = frozenset({"broker"})
    scopes = wire.SCOPES

    def __init__(self, host: Host, needs: BrokerNeeds) -> None:
        settings, clock, log = host.section(BrokerSettings), host.clock, host.log
        dispatch = Dispatch()
        self.store = host.open_store(
            "broker", publish=dispatch.on_commit, restarted=dispatch.wake_all
        )
        self.broker = Broker(self.store, dispatch, settings, clock, log)
        self.broker.open()
        self.registry = Registry(self.broker, needs.check_url)
        self.stores = (self.store,)
        self.loops: list[Loop] = [
            Deliverer(self.broker),
            LeaseExpiry(self.broker),
            BrokerPruner(self.broker, self.registry),
            LogPruner(self.store, self.broker.steady, clock, log),
        ]

    def routes(self) -> list[Route]:
        return routes(self.broker, self.registry)

    def sockets(self) -> list[SocketRoute]:
        """Return the sockets. The hello frame authenticates the member, so no scope is required."""
        return [SocketRoute("/broker/v1/link", None, self._serve_link)]

    def close(self, timeout_seconds: float) -> bool:
        self.broker.save_nonces()
        return self.store.close(timeout_seconds)

    def _serve_link(
        self, socket: Socket, who: Principal, _charge: Callable[[int], None], _query: Any
    ) -> int:
        return MemberSocket(socket, self.broker, who).run()
