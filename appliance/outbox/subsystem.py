"""The outbox as a part of the appliance."""

from collections.abc import Callable

from appliance.kernel.clock import Clock
from appliance.kernel.config import BadSettings
from appliance.kernel.datadir import DataDir
from appliance.kernel.errors import Unavailable
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.pool import GreenletPool
from appliance.kernel.route import Route
from appliance.kernel.store import Store, WriterProcessOptions
from appliance.kernel.subsystem import Subsystem
from appliance.kernel.writer import StoreSettings
from appliance.mesh.signing import Signer
from appliance.outbox import metrics, queries, wire, writes
from appliance.outbox.brokerhttp import HttpTarget
from appliance.outbox.loops import Drain, Sweep, Watch
from appliance.outbox.operator import Operator
from appliance.outbox.resources import routes
from appliance.outbox.sender import Sender, chance
from appliance.outbox.service import BROKER, NO_MEMBERSHIP, Membership, Outbox
from appliance.outbox.settings import OutboxSettings
from appliance.outbox.target import ByMesh, Closing, LocalTarget, Target

RESTARTED = "the appliance was restarted while it was delivered"


class OutboxSubsystem(Subsystem):
    """`local` is the broker of this appliance, `targets` what delivers beside brokers."""

    name = "outbox"
    needs = frozenset({"outbox"})
    scopes = wire.SCOPES

    def __init__(
        self,
        settings: OutboxSettings,
        store: StoreSettings,
        datadir: DataDir,
        clock: Clock,
        log: Log,
        *,
        local: LocalTarget | None = None,
        signer: Callable[[str], Signer] | None = None,
        targets: tuple[Target, ...] = (),
        apart: WriterProcessOptions | None = None,
        membership: Membership = NO_MEMBERSHIP,
        read_settings: Callable[[], OutboxSettings] | None = None,
    ) -> None:
        self._log = log
        brokers = ByMesh(_remote(settings, signer, clock), local)
        registry: dict[str, Target] = {BROKER: brokers}
        registry |= {target.name: target for target in targets}
        self.store = Store(
            "outbox",
            datadir.database("outbox"),
            store,
            clock,
            log,
            apart=apart if settings.writer == "process" else None,
        )
        self.outbox = Outbox(
            self.store,
            settings,
            registry,
            clock,
            log,
            membership=membership,
            read_settings=read_settings,
        )
        self.stores = (self.store,)
        self.operator = Operator(self.outbox)
        self._crew = GreenletPool(settings.concurrency_max)
        self.sender = Sender(self.outbox, self._crew, clock, log, chance)
        drain = Drain(self.outbox, self.sender)
        watch = Watch(self.outbox, self.sender.open_routes)
        self.sender.nudge = drain.nudge
        self.outbox.nudge = lambda route: drain.nudge() if self.sender.wants(route) else None
        self.loops: list[Loop] = [drain, watch, Sweep(self.outbox)] if settings.enabled else [watch]
        self._begin(watch, clock)

    def routes(self) -> list[Route]:
        return routes(self.outbox, self.operator)

    def close(self, timeout_seconds: float) -> bool:
        """After the loops: what is on its way may end, then the store. False when time ran out.
        What does not end is in flight in the file, and goes again after the next start."""
        ended = self._crew.join(timeout_seconds / 2)
        if not ended:
            self._crew.kill()
        for target in self.outbox.targets.values():
            if isinstance(target, Closing):
                target.close()
        return self.store.close(timeout_seconds)

    def _begin(self, watch: Watch, clock: Clock) -> None:
        """What a crash left in flight goes back; a store in trouble keeps nobody from starting."""
        try:
            last = self.store.read(queries.last_id)
            self.store.seed_ids(last)
            self.outbox.jumps.resume()
            pause_ms = self.outbox.settings.backoff_first_ms
            found = self.store.write(writes.reset_inflight, pause_ms, RESTARTED)
            watch.run_once(clock.now_ms())
        except Unavailable as error:
            self._log.error("the outbox can't be read or written", error)
            return
        if found:
            metrics.restarts.inc(found)
            self._log.info("sends that were in flight are tried again", count=found)


def _remote(
    settings: OutboxSettings, signer: Callable[[str], Signer] | None, clock: Clock
) -> dict[str, HttpTarget]:
    remote: dict[str, HttpTarget] = {}
    for broker in settings.brokers:
        if broker.mesh in remote:
            raise BadSettings(f"settings: outbox.brokers: {broker.mesh} has two brokers")
        remote[broker.mesh] = HttpTarget(
            broker.url,
            None if signer is None else signer(broker.mesh),
            clock,
            settings,
            broker.ca_file,
            broker.broker_id,
        )
    return remote
