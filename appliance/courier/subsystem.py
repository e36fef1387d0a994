"""Adds the courier to the appliance."""

from collections.abc import Callable, Sequence

import msgspec

from appliance.courier import wire
from appliance.courier.access import SCOPED, USE
from appliance.courier.admin import CourierAdmin
from appliance.courier.enqueue import WebhookSink
from appliance.courier.journal import Journal, has_envelopes
from appliance.courier.live_view import LiveViewSocket
from appliance.courier.loops import JournalWriter, Tick
from appliance.courier.resources import routes
from appliance.courier.service import Courier
from appliance.courier.settings import CourierSettings
from appliance.courier.sockets import ConsumerSocket, ProducerSocket
from appliance.courier.tools import tools
from appliance.host import Host
from appliance.kernel.auth import Principal, hash_token
from appliance.kernel.config import secret
from appliance.kernel.log_retention import LogPruner
from appliance.kernel.loop import Loop
from appliance.kernel.pause_book import PauseBook
from appliance.kernel.route import Route, SocketRoute
from appliance.kernel.scopes import Scopes
from appliance.kernel.steady_clock import SteadyClock
from appliance.kernel.store import Store
from appliance.kernel.subsystem import Role, Subsystem
from appliance.kernel.tool import Tool
from appliance.web.socket import Socket

Charge = Callable[[int], None]


class CourierNeeds(msgspec.Struct, frozen=True):
    """The needs. `webhooks` accepts trigger webhooks; without it triggers can't have webhook
    actions. `pauses`: names that get no envelopes."""

    webhooks: WebhookSink | None = None
    pauses: PauseBook | None = None


class CourierSubsystem(Subsystem):
    """The courier. `store` is open only if a stream is declared durable, the journal contains
    envelopes, or memory streams' outcomes are logged. While it is damaged, streams in memory are
    still served.
    """

    name = "courier"
    role = Role("envelope streams between programs")
    sections = {"courier": CourierSettings}
    facts_help = {
        "courier.full": "Streams that are nearly full",
        "courier.memory_envelopes": "Envelopes in memory only, which a crash loses",
        "courier.memory_parked": "Streams in memory that have envelopes and no consumer",
    }  # its metrics have the rest, with more labels

    def __init__(self, host: Host, needs: CourierNeeds) -> None:
        """Build the courier. A thread in this process writes the journal: waking another process
        twice costs a single durable envelope a third of its CPU time."""
        settings, clock, log = host.section(CourierSettings), host.clock, host.log
        path = host.served.database("courier")
        self.store: Store | None = None
        durable = settings.any_durable or has_envelopes(path)
        if durable or path.exists():
            self.store = host.open_store("courier", writers=None)
        journal = None
        if self.store is not None:
            journal = Journal(self.store, SteadyClock(self.store, clock, log))
        self.courier = Courier(settings, clock, log, host.instance_id, journal, needs.webhooks)
        self.admin = CourierAdmin(self.courier)
        self._pauses = needs.pauses or PauseBook()
        self.loops: list[Loop] = [Tick(self.courier)]
        if self.store is not None and journal is not None:
            retention = LogPruner(self.store, journal.steady, clock, log)
            self.loops += [JournalWriter(self.courier, durable=durable), retention]
        self.stores = () if self.store is None else (self.store,)
        self.scopes = Scopes(implied={USE: SCOPED}, free=free_scopes(settings))

    def routes(self) -> list[Route]:
        auth = "yes" if self.courier.settings.tokens else "optional"
        return routes(self.courier, self.admin, auth)

    def sockets(self) -> list[SocketRoute]:
        return [
            SocketRoute(
                path,
                USE,
                serve,
                query,
                free_on_loopback=True,
                charges_writes=charges_writes,
                consumes=path == "/v1/subscribe",
            )
            for path, serve, query, charges_writes in (
                ("/v1/subscribe", self._subscribe, wire.SubscribeQuery, False),
                ("/v1/publish", self._publish, wire.PublishQuery, True),
                ("/v1/live", self._live, wire.LiveQuery, True),
            )
        ]

    def tools(self) -> Sequence[Tool]:
        return tools(self.courier)

    def facts(self) -> dict[str, float]:
        return {f"courier.{name}": float(fact) for name, fact in self.admin.facts().items()}

    def drain(self) -> None:
        self.courier.stop_waiting()

    def close(self, timeout_seconds: float) -> bool:
        """Write the last changes and close the journal. Called after the loops have stopped. False
        after a timeout."""
        self.courier.pipeline.close()
        return self.store is None or self.store.close(timeout_seconds)

    def _subscribe(
        self, socket: Socket, who: Principal, _charge: Charge, query: wire.SubscribeQuery
    ) -> int:
        return ConsumerSocket(socket, self.courier, who, query, self._pauses).run()

    def _publish(
        self, socket: Socket, who: Principal, charge: Charge, _query: wire.PublishQuery
    ) -> int:
        return ProducerSocket(socket, self.courier, who, charge).run()

    def _live(self, socket: Socket, who: Principal, _charge: Charge, query: wire.LiveQuery) -> int:
        return LiveViewSocket(socket, self.courier, who, query).run()


def tokens(settings: CourierSettings) -> list[tuple[str, Principal]]:
    """Return the tokens in [[courier.tokens]], for the token book."""
    return [
        (
            hash_token(secret(token.token_file, "courier.tokens.token_file")),
            Principal(f"courier-{index}", token.name, frozenset(token.scopes)),
        )
        for index, token in enumerate(settings.tokens)
    ]


def free_scopes(settings: CourierSettings) -> frozenset[str]:
    """Return scopes that need no token on a loopback bind: the courier's, until tokens are
    configured."""
    return frozenset() if settings.tokens else frozenset({USE})
