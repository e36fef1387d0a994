"""The inbox put together: what app.py mounts, starts and stops."""

from collections.abc import Callable, Sequence
from functools import partial

from appliance.kernel.auth import TokenBook
from appliance.kernel.clock import Clock
from appliance.kernel.config import BadSettings
from appliance.kernel.datadir import DataDir
from appliance.kernel.errors import ApplianceError
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.store import Store
from appliance.kernel.writer import StoreSettings
from appliance.outbox.identity.keys import Keys
from appliance.outbox.identity.service import Identity, Told
from appliance.outbox.inbox import metrics, queries, wire
from appliance.outbox.inbox.link import STATES, Receiver
from appliance.outbox.inbox.loops import Sweeper
from appliance.outbox.inbox.remote import Remote
from appliance.outbox.inbox.resources import Facts, routes
from appliance.outbox.inbox.service import Inbox, Rotating
from appliance.outbox.inbox.settings import BrokerPlace, InboxSettings
from appliance.web.route import Route

STORE = "inbox"


class Parts:
    """`places`: brokers that are sent to, so received from as well; by mesh.

    `sends` tells how many sends wait and how many are in flight, `send_features` what can be done
    with sends; `adopt` gets the days for which a broker knows ids.
    """

    def __init__(
        self,
        settings: InboxSettings,
        store: StoreSettings,
        datadir: DataDir,
        clock: Clock,
        log: Log,
        identity: Identity,
        book: TokenBook,
        *,
        places: Sequence[BrokerPlace] = (),
        sends: Callable[[], tuple[int, int]] = lambda: (0, 0),
        send_features: Callable[[], list[str]] = list,
        adopt: Callable[[str, int | None], None] = lambda _mesh, _days: None,
    ) -> None:
        self.identity = identity
        brokers = brokers_of(settings, places)
        self.inbox = Inbox(
            settings, clock, log, lambda: identity.public_hex, identity.is_own, brokers
        )
        self.store = Store(
            STORE, datadir.database(STORE), store, clock, log, publish=self.inbox.publish
        )
        self.store.seed_ids(self.store.read(queries.last_id))
        self.inbox.open(self.store)
        self.receivers = {
            mesh: Receiver(place, self.inbox, identity.in_mesh(mesh), clock, log, adopt)
            for mesh, place in brokers.items()
        }
        for mesh, place in brokers.items():
            self.inbox.desks[mesh] = Remote(
                place, identity.in_mesh(mesh), settings, clock, self.receivers[mesh].say
            )
        self.loops: list[Loop] = [
            Sweeper(self.store, settings, clock, log),
            *self.receivers.values(),
        ]
        self.local: dict[str, wire.LinkState] = {}
        self._book = book
        self._facts = Facts(
            self.links, self._broker_version, sends, send_features, clock.monotonic()
        )
        self._bind_metrics()

    def routes(self) -> list[Route]:
        return routes(self.inbox, self._book, self._facts)

    def links(self) -> list[wire.LinkState]:
        """Of all meshes: sockets to elsewhere, and what app.py joined in this process."""
        own = [receiver.shown() for receiver in self.receivers.values()]
        return [*own, *self.local.values()]

    def tell_rotation(self, old: Keys, new: Keys) -> dict[str, Told]:
        """Have every broker take the new key; what became of it, by mesh."""
        del old  # desks sign with what their broker knows
        return {
            mesh: _told(desk, new)
            for mesh, desk in self.inbox.desks.items()
            if isinstance(desk, Rotating)
        }

    def end(self) -> None:
        """Whoever waits is answered now."""
        self.inbox.feed.close()

    def close(self, timeout_seconds: float) -> bool:
        return self.store.close(timeout_seconds)

    def _broker_version(self, mesh: str) -> str | None:
        receiver = self.receivers.get(mesh)
        return None if receiver is None else receiver.broker_version

    def _bind_metrics(self) -> None:
        receivers = list(self.receivers.values())

        def count(state: str) -> int:
            return sum(one.state == state for one in receivers)

        metrics.connected.set_function(partial(count, "connected"))
        for state in STATES:
            metrics.links.labels(state).set_function(partial(count, state))


def brokers_of(settings: InboxSettings, places: Sequence[BrokerPlace]) -> dict[str, BrokerPlace]:
    """One for each mesh; a mesh with two different ones is a mistake."""
    found: dict[str, BrokerPlace] = {}
    for place in (*places, *settings.brokers):
        other = found.setdefault(place.mesh, place)
        if other != place:
            raise BadSettings(f"settings: inbox.brokers: {place.mesh} has two brokers")
    return found


def _told(desk: Rotating, new: Keys) -> Told:
    try:
        desk.rotate(new)
    except wire.NoBroker:
        return "taken" if desk.knows(new) else "unknown"
    except ApplianceError:
        # After a lost answer the broker knows the new key for a member, and the old one not.
        return "taken" if desk.knows(new) else "refused"
    return "taken"
