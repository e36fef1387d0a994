"""Builds the appliance out of its parts, and starts and stops it. Wires, and does no more."""

import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from appliance import __version__, joints
from appliance.broker import parts as broker_parts
from appliance.courier import parts as courier_parts
from appliance.courier.access import USE
from appliance.hub import loops as hub_loops
from appliance.hub import model as hub_model
from appliance.hub import resources as hub_resources
from appliance.hub.plugins import parts as plugin_parts
from appliance.hub.requests import Requests
from appliance.hub.service import Hub
from appliance.hub.stream import Session
from appliance.hub.webhooks import resources as webhook_resources
from appliance.hub.webhooks.loops import WebhookFeeder
from appliance.hub.webhooks.service import Webhooks
from appliance.jobs import parts as jobs_parts
from appliance.kernel import epoch
from appliance.kernel.auth import Principal, TokenBook, hash_token
from appliance.kernel.clock import Clock
from appliance.kernel.config import secret
from appliance.kernel.datadir import DataDir, WriterLock
from appliance.kernel.feed import Feed
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop, LoopDelay
from appliance.kernel.store import Apart, Store
from appliance.kernel.trouble import StoreSuspended
from appliance.mcp import resources as mcp_resources
from appliance.mcp.tools import Bench
from appliance.outbox import parts as outbox_parts
from appliance.outbox.inbox.settings import BrokerPlace
from appliance.outbox.mail import MailTarget
from appliance.outbox.target import Target
from appliance.outbox.webhook import WebhookTarget
from appliance.receiving import Receiving
from appliance.settings import Settings
from appliance.tokens import resources as token_resources
from appliance.tokens.loops import TokenKeeper
from appliance.tokens.service import Tokens
from appliance.web import health, landing, openapi
from appliance.web.app import make_app
from appliance.web.guard import FREE_ON_LOOPBACK, Guard
from appliance.web.limits import RateLimiter
from appliance.web.route import Route
from appliance.web.socket import Socket
from appliance.web.suspended import suspended_routes, suspended_socket
from appliance.web.unsent import UnsentBudget
from appliance.wsgi import Entry, Upgrade
from doctor import live
from doctor.check import Context, Severity
from doctor.loops import Checkup
from doctor.run import is_ready, readiness

SOCKETS_CLOSE_SECONDS = 3.0
STORE_CLOSE_SECONDS = 3.0


class Identity:
    """Who this process is: drawn at its start, but for the epoch."""

    def __init__(self, instance_id: str, epoch_id: str, started_ms: int) -> None:
        self.instance_id = instance_id
        self.epoch = epoch_id
        self.started_ms = started_ms
        self.pid = os.getpid()
        self.version = __version__
        self.features: tuple[str, ...] = courier_parts.FEATURES
        """Of the courier, and of sends."""


class Appliance:
    """All parts of one process. `build` makes it; the writer lock must be held."""

    def __init__(
        self,
        settings: Settings,
        datadir: DataDir,
        lock: WriterLock,
        clock: Clock,
        log: Log,
        instance_id: str,
        *,
        read_settings: Callable[[], Settings] | None = None,
        served: DataDir | None = None,
        damaged: Mapping[str, StoreSuspended] = MappingProxyType({}),
    ) -> None:
        """`read_settings` reads them anew from where `settings` came from. `damaged` stores are
        suspended; `served` has empty files in their place."""
        self.damaged = damaged
        self.served = served or datadir
        self.lock = lock
        self.settings = settings
        self.datadir = datadir
        self.clock = clock
        self.log = log
        self.stopping = False
        self.book = TokenBook()
        # One reader, so that books come in order. Tokens can be revoked on a nearly full disk.
        auth = msgspec.structs.replace(settings.store, readers=1, free_bytes_min=0)
        self.auth_store = Store("auth", datadir.database("auth"), auth, clock, log)
        self.tokens = self._open_tokens()
        # With a full disk nothing can be written, and nothing has to be.
        found = self.auth_store.read(epoch.stored)
        epoch_id = found or self.auth_store.write(epoch.current)
        self.identity = Identity(instance_id, epoch_id, clock.now_ms())
        self.feed = Feed(bytes_max=settings.hub.live_bytes_max)
        self.store = Store(
            "hub",
            datadir.database("hub"),
            settings.store,
            clock,
            log,
            publish=self.feed.publish,
            database=hub_model.database,
            apart=self._apart(self._look_for_untold),
            catch_up=hub_loops.catch_up(settings.hub),
        )
        self.hub = Hub(self.store, self.feed, settings.hub, clock, self.identity, self.book)
        self.webhooks = Webhooks(self.hub, settings.webhooks, clock, log)
        sink = joints.webhook_sink(lambda: self.outbox.outbox) if settings.outbox.enabled else None
        self.courier = courier_parts.Parts(
            settings.courier, settings.store, settings.socket, self.served, clock, log, instance_id,
            self._apart, sink,
        )  # fmt: skip
        home = self._open_meshes(read_settings or (lambda: settings))
        self.identity.features += tuple(self.outbox.outbox.features)
        self.jobs = jobs_parts.Parts(
            settings.jobs, datadir, clock, log, self.hub.newest_event, settings.store.page_bytes_max
        )
        self.plugins = plugin_parts.Parts(
            settings.plugins, self.hub, datadir.workspace, datadir.dir, clock, log
        )
        self._suspend()
        self.loop_delay = LoopDelay(clock, log)
        self.loops = self._loops(home)
        implied = {**courier_parts.IMPLIED, **broker_parts.IMPLIED}
        free = courier_parts.free_scopes(settings.courier)
        self.guard = Guard(self.book, settings.http, clock, log, free, implied)
        self.limiter = RateLimiter(settings.limits, clock)
        self.unsent = UnsentBudget(settings.http.unsent_bytes_max, clock)
        self.entry = self._build_entry()
        self.plugins.prove()

    def _open_meshes(self, read_settings: Callable[[], Settings]) -> Loop:
        """What is received, the broker, what is sent; and the loop by which they meet here."""
        settings, datadir, clock, log = self.settings, self.served, self.clock, self.log
        self.received = Receiving(
            settings, datadir, clock, log, self.book,
            places=[
                BrokerPlace(one.mesh, one.url, one.ca_file, one.broker_id)
                for one in settings.outbox.brokers
            ],
            sends=self._sends, send_features=lambda: self.outbox.outbox.features,
            adopt=lambda mesh, days: self.outbox.outbox.adopt(mesh, days),
        )  # fmt: skip
        book = joints.WebhookBook(self.webhooks)
        hooks = WebhookTarget(book, settings.webhooks, settings.outbox, clock)
        self.broker = broker_parts.Parts(
            settings.broker, settings.store, settings.socket, datadir, clock, log,
            joints.MeshHooks(hooks), self._writer_apart,
        )  # fmt: skip
        member = self.received.member.identity
        self.outbox = outbox_parts.Parts(
            settings.outbox, settings.store, datadir, clock, log,
            local=joints.home_target(
                self.broker, lambda mesh: member.in_mesh(mesh).public_hex,
                self.damaged.get("broker"),
            ),
            signer=member.in_mesh, apart=self._writer_apart(lambda: None),
            targets=(hooks, *self._mail()),
        )  # fmt: skip
        self.outbox.outbox.refusal = joints.refusal_of(
            self.received.inbox.inbox, self.broker, member
        )
        self.outbox.outbox.on_revoked = joints.on_revoked(self.received.inbox.inbox, member)
        self.outbox.outbox.read_settings = lambda: read_settings().outbox
        self.received.hooks.hooks.send = joints.send_order(self.outbox.outbox)
        return joints.HomeMeshes(self.broker, self.received.inbox, member, clock, log)

    def _mail(self) -> tuple[Target, ...]:
        """What delivers mail, where a server for it is named."""
        mail = self.settings.mail
        return (MailTarget(mail, self.hub.db_id),) if mail.host else ()

    def _suspend(self) -> None:
        for store in self._stores():
            if store.name in self.damaged:
                store.suspend(self.damaged[store.name])

    def _unless(self, stores: tuple[str, ...], loops: Sequence[Loop]) -> Sequence[Loop]:
        """Those loops, if none of the stores they work on is suspended."""
        return () if any(store in self.damaged for store in stores) else loops

    def _loops(self, home: Loop) -> list[Loop]:
        settings, clock, log = self.settings, self.clock, self.log
        loops: list[Loop] = [
            self.loop_delay,
            hub_loops.Checkpointer(self.store, clock, log),
            hub_loops.Checkpointer(self.auth_store, clock, log),
            TokenKeeper(self.auth_store, self.book, settings.auth, clock, log),
            hub_loops.Indexer(self.store, self.feed, settings.hub, clock, log),
            hub_loops.KeySweeper(self.store, settings.hub, clock, log),
            *self.courier.loops,
            *self._unless(("inbox",), self.received.loops),
            hub_loops.Checkpointer(self.received.store, clock, log),
            *self._unless(("broker",), self.broker.loops),
            hub_loops.Checkpointer(self.broker.store, clock, log),
            *self._unless(("outbox",), self.outbox.loops),
            WebhookFeeder(self.webhooks, joints.WebhookPost(self.outbox.outbox), clock, log),
            *self._unless(("inbox", "broker"), [home]),
            hub_loops.Checkpointer(self.outbox.store, clock, log),
            *self.jobs.loops,
            *self.plugins.loops,
            Checkup(self.checkup, clock, log),
        ]
        if self.courier.store is not None:
            loops.append(hub_loops.Checkpointer(self.courier.store, clock, log))
        return loops

    def start(self) -> None:
        for loop in self.loops:
            loop.start()

    def end_streams(self) -> None:
        """Not ready any more; whoever waits for events is told to come again later."""
        self.stopping = True
        self.feed.close()
        self.courier.end()
        self.received.end()
        self.entry.close_sockets(SOCKETS_CLOSE_SECONDS)

    def stop(self) -> None:
        """Streams, loops, writer: each with a limit. The server has stopped accepting."""
        self.end_streams()
        for loop in reversed(self.loops):
            loop.stop()
        self.plugins.close()
        for store in (self.store, self.auth_store):
            if not store.close(STORE_CLOSE_SECONDS):
                self.log.error("the writer did not finish in time", store=store.name)
        for name, part in (
            ("courier", self.courier),
            ("inbox", self.received),
            ("broker", self.broker),
            ("outbox", self.outbox),
        ):
            if not part.close(STORE_CLOSE_SECONDS):
                self.log.error("the writer did not finish in time", store=name)

    def _open_tokens(self) -> Tokens:
        settings = self.settings.auth
        fixed = courier_parts.tokens(self.settings.courier)
        if settings.scrape_token_file is not None:
            scraper = Principal("scraper", "scrape token", frozenset({"metrics:read"}))
            fixed.append((hash_token(secret(settings.scrape_token_file)), scraper))
        return Tokens(
            self.auth_store, self.book, self.datadir, self.clock, settings.grace_seconds, fixed
        )

    def _build_entry(self) -> Entry:
        settings = self.settings
        routes = self._routes()
        falcon_app = make_app(
            routes,
            self.guard,
            self.limiter,
            settings=settings.http,
            log=self.log,
            clock=self.clock,
            instance_id=self.identity.instance_id,
            access=settings.log.access,
            unsent=self.unsent,
        )
        return Entry(
            falcon_app,
            self._sockets(),
            self.guard,
            self.limiter,
            settings.socket,
            self.clock,
            self.log,
            self.unsent,
        )

    def _routes(self) -> list[Route]:
        described = [
            *hub_resources.routes(self.hub),
            *token_resources.routes(self.tokens),
            *self.courier.routes(),
            *self._or_suspended("inbox", self.received.routes()),
            *self._or_suspended("broker", self.broker.routes()),
            *self._or_suspended("outbox", self.outbox.routes()),
            *self.jobs.routes(),
            *self.plugins.routes(),
            *webhook_resources.routes(self.webhooks),
            *mcp_resources.routes(
                Bench(self.hub, self._verdict), self.guard, self.settings.http.body_bytes_max
            ),
            *health.routes(self.guard, self._verdict),
        ]
        free = FREE_ON_LOOPBACK | courier_parts.free_scopes(self.settings.courier)
        described += openapi.routes(described, free)
        return [*described, *landing.routes(described, self.guard)]

    def _or_suspended(self, store: str, routes: list[Route]) -> list[Route]:
        """A damaged courier store stops durable streams only, so its routes stay."""
        error = self.damaged.get(store)
        return routes if error is None else suspended_routes(routes, error)

    def _apart(self, restarted: Callable[[], None]) -> Apart | None:
        return None if self.settings.store.writer == "thread" else self._writer_apart(restarted)

    def _writer_apart(self, restarted: Callable[[], None]) -> Apart:
        """For a store with a setting of its own about its writer."""
        return Apart(self.lock.descriptor, restarted, self.settings.log.level)

    def _look_for_untold(self) -> None:
        """The writer died: what it had committed and not told is in the log."""
        self.feed.jump(self.hub.newest_event())

    def _stores(self) -> list[Store]:
        stores = [
            self.store,
            self.auth_store,
            self.received.store,
            self.broker.store,
            self.outbox.store,
        ]
        return stores if self.courier.store is None else [*stores, self.courier.store]

    def checkup(self) -> Context:
        """What the doctor's checks see of this process."""
        facts = live.facts(
            {store.name: store.facts() for store in self._stores()},
            {"courier": self.courier.facts()},
            loop_delay_seconds=self.loop_delay.worst_seconds,
            lock_intact=self.lock.intact(),
            stopping=self.stopping,
        )
        facts |= self.plugins.facts()
        return Context(self.datadir, self.settings.doctor, self.clock, live=facts)

    def _verdict(self) -> health.Verdict:
        """`/-/ready` by the doctor's own table, so that the two can't disagree."""
        with self.checkup() as context:
            findings = readiness(context)
            details = {
                "instance_id": self.identity.instance_id,
                "findings": msgspec.to_builtins(findings),
                "facts": dict(context.live or {}),
            }
        failing = {found.check for found in findings if found.severity is Severity.CRITICAL}
        return health.Verdict(is_ready(findings), sorted(failing), details, sorted(self.damaged))

    def _sends(self) -> tuple[int, int]:
        """How many sends wait, and how many are in flight."""
        depth = self.outbox.outbox.state().depth
        return depth.get("pending", 0), depth.get("inflight", 0)

    def _sockets(self) -> dict[str, Upgrade]:
        sockets = {"/ws": Upgrade("hub:read", self._serve_hub, token_in_query=True)}
        for path, serve, query in self.courier.sockets():
            sockets[path] = Upgrade(USE, serve, query, near=True)
        for path, serve in self.broker.sockets():
            error = self.damaged.get("broker")
            sockets[path] = Upgrade(None, serve if error is None else suspended_socket(error))
        return sockets

    def _serve_hub(self, socket: Socket, principal: Principal, charge: Any, _query: Any) -> int:
        requests = Requests(self.hub, charge)
        return Session(socket, self.hub, principal, requests, self.settings.socket).run()
