"""The inbox as a part of the appliance."""

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from appliance.inbox import metrics, queries, wire
from appliance.inbox.link import STATES, Receiver
from appliance.inbox.loops import Sweeper
from appliance.inbox.remote import HttpBrokerClient
from appliance.inbox.resources import Facts, Sends, routes
from appliance.inbox.service import Inbox, Rotating
from appliance.inbox.settings import BrokerPlace, InboxSettings
from appliance.kernel.auth import TokenBook
from appliance.kernel.clock import Clock
from appliance.kernel.config import BadSettings
from appliance.kernel.datadir import DataDir
from appliance.kernel.errors import ApplianceError
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.route import Route
from appliance.kernel.store import Store
from appliance.kernel.subsystem import Subsystem
from appliance.kernel.writer import StoreSettings
from appliance.mesh.signing import MemberKeys, RotationOutcome, Signer

STORE = "inbox"


def open_inbox(
    settings: InboxSettings,
    store: StoreSettings,
    datadir: DataDir,
    clock: Clock,
    log: Log,
    keys: MemberKeys,
    brokers: Mapping[str, BrokerPlace],
) -> tuple[Inbox, Store]:
    """The verbs and their store; what connects it to others comes with InboxSubsystem."""
    inbox = Inbox(settings, clock, log, lambda: keys.public_hex, keys.is_own, brokers)
    # One reader: a look at the inbox is short, and a waiting one holds none.
    one_reader = msgspec.structs.replace(store, readers=1)
    file = Store(STORE, datadir.database(STORE), one_reader, clock, log, publish=inbox.publish)
    file.seed_ids(file.read(queries.last_id))
    inbox.open(file)
    return inbox, file


class InboxSubsystem(Subsystem):
    name = "inbox"
    needs = frozenset({STORE})
    scopes = wire.SCOPES

    def __init__(
        self,
        inbox: Inbox,
        store: Store,
        clock: Clock,
        log: Log,
        keys: MemberKeys,
        book: TokenBook,
        brokers: Mapping[str, BrokerPlace],
        sends: Sends,
    ) -> None:
        """`inbox` and `store` are those of `open_inbox`."""
        settings = inbox.settings
        self.inbox = inbox
        self.store = store
        self.stores = (store,)
        self.receivers = {
            mesh: Receiver(place, inbox, keys.in_mesh(mesh), clock, log, sends.adopt)
            for mesh, place in brokers.items()
        }
        for mesh, place in brokers.items():
            inbox.broker_clients[mesh] = HttpBrokerClient(
                place, keys.in_mesh(mesh), settings, clock, self.receivers[mesh].say
            )
        self.loops: list[Loop] = [
            Sweeper(store, settings, clock, log),
            *self.receivers.values(),
        ]
        self.local: dict[str, wire.LinkState] = {}
        self._book = book
        self._facts = Facts(self.links, self._broker_version, sends, clock.monotonic())
        self._bind_metrics()

    def routes(self) -> list[Route]:
        return routes(self.inbox, self._book, self._facts)

    def links(self) -> list[wire.LinkState]:
        """Of all meshes: sockets to elsewhere, and what app.py joined in this process."""
        own = [receiver.shown() for receiver in self.receivers.values()]
        return [*own, *self.local.values()]

    def tell_rotation(self, old: Signer, new: Signer) -> dict[str, RotationOutcome]:
        """Have every broker take the new key; what became of it, by mesh."""
        del old  # broker_clients sign with what their broker knows
        return {
            mesh: _rotation_outcome(broker_client, new)
            for mesh, broker_client in self.inbox.broker_clients.items()
            if isinstance(broker_client, Rotating)
        }

    def drain(self) -> None:
        self.inbox.feed.close()

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


def _rotation_outcome(broker_client: Rotating, new: Signer) -> RotationOutcome:
    try:
        broker_client.rotate(new)
    except wire.NoBroker:
        return "taken" if broker_client.knows(new) else "unknown"
    except ApplianceError:
        # After a lost answer the broker knows the new key for a member, and the old one not.
        return "taken" if broker_client.knows(new) else "refused"
    return "taken"
