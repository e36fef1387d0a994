"""The outbox subsystem."""

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from appliance.host import Host
from appliance.kernel.clock import Clock
from appliance.kernel.errors import Unavailable
from appliance.kernel.log_retention import LogPruner
from appliance.kernel.loop import Loop
from appliance.kernel.pool import GreenletPool
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Role, Subsystem
from appliance.kernel.tool import Tool
from appliance.mesh.signing import Signer
from appliance.outbox import metrics, queries, wire, writes
from appliance.outbox.admin import OutboxAdmin
from appliance.outbox.broker_http import HttpBrokerTarget
from appliance.outbox.loops import BrokerComparison, Drain, OutboxPruner, Watch
from appliance.outbox.resources import routes
from appliance.outbox.routes import DELIVERIES_MAX
from appliance.outbox.sender import Sender
from appliance.outbox.service import BROKER, Membership, Outbox
from appliance.outbox.settings import MailSettings, OutboxSettings
from appliance.outbox.target import BrokersByMesh, DeliveryTarget
from appliance.outbox.tools import tools

RESTARTED = "the appliance was restarted during the delivery"


class OutboxNeeds(msgspec.Struct, frozen=True):
    """The needs. `local` is this appliance's broker; `targets` are the targets besides brokers."""

    local: DeliveryTarget | None
    signer: Callable[[str], Signer]
    membership: Membership
    targets: tuple[DeliveryTarget, ...]


class OutboxSubsystem(Subsystem):
    name = "outbox"
    role = Role("sends to meshes, webhooks and mail, stored until delivered")
    sections = {"outbox": OutboxSettings, "mail": MailSettings}
    needed_stores = frozenset({"outbox"})
    scopes = wire.SCOPES

    def __init__(self, host: Host, needs: OutboxNeeds) -> None:
        settings, clock, log = host.section(OutboxSettings), host.clock, host.log
        self._log = log
        brokers = BrokersByMesh(_remote_brokers(settings, needs.signer, clock), needs.local)
        registry: dict[str, DeliveryTarget] = {BROKER: brokers}
        registry |= {target.name: target for target in needs.targets}
        self.store = host.open_store("outbox")
        self.outbox = Outbox(
            self.store,
            settings,
            registry,
            clock,
            log,
            membership=needs.membership,
            read_settings=partial(host.read_section, OutboxSettings),
        )
        self.stores = (self.store,)
        self.admin = OutboxAdmin(self.outbox)
        self._pool = GreenletPool(DELIVERIES_MAX)
        self.sender = Sender(self.outbox, self._pool, clock, log)
        drain = Drain(self.outbox, self.sender)
        watch = Watch(self.outbox)
        retention = LogPruner(self.store, self.outbox.steady, clock, log)
        self.loops: list[Loop] = [
            drain, OutboxPruner(self.outbox), BrokerComparison(self.outbox), watch, retention,
        ]  # fmt: skip
        self._begin(watch, clock)

    def routes(self) -> list[Route]:
        return routes(self.outbox, self.admin)

    def tools(self) -> Sequence[Tool]:
        return tools(self.outbox, self.admin)

    def close(self, timeout_seconds: float) -> bool:
        """Wait for running deliveries, then close the store. False if time ran out. Interrupted
        deliveries stay in flight in the file and are repeated after the next start."""
        ended = self._pool.join(timeout_seconds / 2)
        if not ended:
            self._pool.kill(block=False)
        for target in self.outbox.targets.values():
            target.close()
        return self.store.close(timeout_seconds)

    def _begin(self, watch: Watch, clock: Clock) -> None:
        """Make sends pending that a crash left in flight. A failing store is only logged."""
        try:
            last_id = self.store.read(queries.last_id)
            self.store.seed_ids(last_id)
            self.outbox.open()
            delay_ms = self.outbox.settings.retry.initial_ms
            released = self.store.write(writes.reset_inflight, delay_ms, RESTARTED, ())
            watch.run_once(clock.now_ms())
        except Unavailable as error:
            self._log.error("the outbox database can't be read or written", error)
            return
        if released:
            metrics.restarts.inc(released)
            self._log.info("sends in flight at the last stop are pending again", count=released)


def _remote_brokers(
    settings: OutboxSettings, signer: Callable[[str], Signer], clock: Clock
) -> dict[str, HttpBrokerTarget]:
    remote: dict[str, HttpBrokerTarget] = {}
    for broker in settings.brokers:
        remote[broker.mesh] = HttpBrokerTarget(
            broker.url, signer(broker.mesh), clock, broker.ca_file, broker.broker_id
        )
    return remote
