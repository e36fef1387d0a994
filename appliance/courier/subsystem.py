"""The courier as a part of the appliance."""

from collections.abc import Callable

from appliance.courier import metrics, wire
from appliance.courier.access import SCOPED, USE
from appliance.courier.inserts import Sink
from appliance.courier.journal import Journal, remembers
from appliance.courier.live import LiveSocket
from appliance.courier.loops import JournalWriter, Tick
from appliance.courier.operator import Operator
from appliance.courier.resources import routes
from appliance.courier.service import Courier
from appliance.courier.session import Publisher, Subscriber
from appliance.courier.settings import CourierSettings
from appliance.courier.trigger import check
from appliance.kernel.auth import Principal, hash_token
from appliance.kernel.clock import Clock
from appliance.kernel.config import BadSettings, secret
from appliance.kernel.datadir import DataDir
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.route import Route, SocketRoute
from appliance.kernel.scopes import Scopes
from appliance.kernel.store import Store, WriterProcessOptions
from appliance.kernel.subsystem import Subsystem
from appliance.kernel.writer import StoreSettings
from appliance.web.socket import Socket, SocketSettings

Charge = Callable[[int], None]


class CourierSubsystem(Subsystem):
    """`store` is open only when something is durable, or was. While it is damaged, streams in
    memory are served."""

    name = "courier"

    def __init__(
        self,
        settings: CourierSettings,
        store: StoreSettings,
        sockets: SocketSettings,
        datadir: DataDir,
        clock: Clock,
        log: Log,
        boot_id: str,
        apart: Callable[[Callable[[], None]], WriterProcessOptions | None],
        sink: Sink | None = None,
    ) -> None:
        """`apart` ties a writer in a process of its own to this one; it is given what to call
        when that writer had to be started again. `sink` takes what triggers send as webhooks;
        without it no trigger may have one."""
        problems = check(settings.triggers, webhooks=sink is not None)
        if problems:
            raise BadSettings(f"settings: courier.triggers: {problems[0]}")
        path = datadir.database("courier")
        self.store: Store | None = None
        if settings.any_durable or remembers(path):
            self.store = Store("courier", path, store, clock, log, apart=apart(self._look_again))
        journal = None if self.store is None else Journal(self.store)
        self.courier = Courier(settings, clock, log, boot_id, journal, sink)
        self.operator = Operator(self.courier)
        self.loops: list[Loop] = [Tick(self.courier, self.operator)]
        if self.store is not None:
            self.loops.append(JournalWriter(self.courier))
        self.stores = () if self.store is None else (self.store,)
        self.scopes = Scopes(implied={USE: SCOPED}, free=free_scopes(settings))
        self._sockets = sockets

    def routes(self) -> list[Route]:
        auth = "yes" if self.courier.settings.tokens else "optional"
        return routes(self.courier, self.operator, metrics.exposition, auth)

    def sockets(self) -> list[SocketRoute]:
        return [
            SocketRoute(path, USE, serve, query, free_on_loopback=True)
            for path, serve, query in (
                ("/v1/subscribe", self._subscribe, wire.SubscribeQuery),
                ("/v1/publish", self._publish, wire.PublishQuery),
                ("/v1/live", self._live, wire.LiveQuery),
            )
        ]

    def facts(self) -> dict[str, float]:
        return {f"courier.{name}": float(fact) for name, fact in self.operator.facts().items()}

    def _look_again(self) -> None:
        self.courier.inserts.look_again()

    def drain(self) -> None:
        self.courier.end()

    def close(self, timeout_seconds: float) -> bool:
        """After the loops: the last changes, then the journal. False when time ran out."""
        self.courier.inserts.close()
        return self.store is None or self.store.close(timeout_seconds)

    def _subscribe(
        self, socket: Socket, who: Principal, _charge: Charge, query: wire.SubscribeQuery
    ) -> int:
        return Subscriber(socket, self.courier, who, query, self._sockets).run()

    def _publish(
        self, socket: Socket, who: Principal, charge: Charge, _query: wire.PublishQuery
    ) -> int:
        return Publisher(socket, self.courier, who, charge, self._sockets).run()

    def _live(self, socket: Socket, who: Principal, _charge: Charge, query: wire.LiveQuery) -> int:
        return LiveSocket(socket, self.courier, who, query, self._sockets).run()


def tokens(settings: CourierSettings) -> list[tuple[str, Principal]]:
    """The tokens of [[courier.tokens]], for the token book."""
    return [
        (
            hash_token(secret(one.token_file)),
            Principal(f"courier-{place}", one.name, frozenset(one.scopes)),
        )
        for place, one in enumerate(settings.tokens)
    ]


def free_scopes(settings: CourierSettings) -> frozenset[str]:
    """What needs no token on a loopback bind: the courier, until tokens are configured."""
    return frozenset() if settings.tokens else frozenset({USE})
