"""Builds the subsystems in the order of their dependencies, and connects them.

A subsystem declares what it needs of others as Protocols of its own; the classes that implement
them are in `integrations/`. A subsystem whose role is off ([roles]) is not built.
"""

import os
from collections.abc import Callable, Mapping, Sequence

import msgspec

from appliance import __version__
from appliance.backup.subsystem import BackupSubsystem
from appliance.broker.subsystem import BrokerSubsystem
from appliance.courier import subsystem as courier
from appliance.courier import wire as courier_wire
from appliance.courier.subsystem import CourierSubsystem
from appliance.export.subsystem import ExportSubsystem
from appliance.hooks.subsystem import HooksSubsystem
from appliance.hub.plugins.subsystem import PluginsSubsystem
from appliance.hub.service import Hub
from appliance.hub.subsystem import HealthSubsystem, HubSubsystem
from appliance.hub.webhooks.service import Webhooks
from appliance.hub.webhooks.subsystem import WebhooksSubsystem
from appliance.identity.mode import in_ci
from appliance.identity.service import MemberIdentity
from appliance.identity.subsystem import IdentitySubsystem
from appliance.inbox.service import Inbox
from appliance.inbox.settings import BrokerEndpoint
from appliance.inbox.subsystem import InboxSubsystem, brokers_of, open_inbox
from appliance.integrations.courier_outbox import TriggerWebhooks
from appliance.integrations.hooks_inbox import OwnNames, OwnUrl
from appliance.integrations.hooks_outbox import HookSender
from appliance.integrations.inbox_broker import LocalMeshes, LocalMeshSubscriber
from appliance.integrations.inbox_outbox import NoOutboxStatus, OutboxSendStatus
from appliance.integrations.outbox_broker import MeshSendPermission, local_target
from appliance.integrations.webhooks_outbox import (
    HubWebhookDirectory,
    WebhookPost,
    WebhooksSwitchedOff,
)
from appliance.jobs.subsystem import JobsSubsystem
from appliance.kernel.auth import Principal, TokenBook, hash_token
from appliance.kernel.clock import Clock
from appliance.kernel.config import secret
from appliance.kernel.log import Log
from appliance.kernel.process_identity import ProcessIdentity
from appliance.kernel.store import Store
from appliance.kernel.store_errors import StoreSuspended
from appliance.kernel.subsystem import Subsystem
from appliance.kernel.writerprocess import WriterProcess
from appliance.mcp.subsystem import McpSubsystem
from appliance.mcp.tools import ToolContext
from appliance.mesh.instance import instance_here
from appliance.outbox.mail import MailTarget
from appliance.outbox.service import Outbox, features_of
from appliance.outbox.subsystem import OutboxSubsystem
from appliance.outbox.target import DeliveryTarget
from appliance.outbox.webhook import WebhookTarget
from appliance.roles import IDENTITY, RolePaths
from appliance.settings import Settings
from appliance.tokens.subsystem import TokensSubsystem
from appliance.web.guard import Guard
from appliance.web.health import ReadinessResult
from appliance.web.webhook_caller import WebhookCaller
from appliance.workspace import epochs
from appliance.workspace.datadir import DataDir, WriterLock
from doctor.rebuilds import Rebuilds
from doctor.subsystem import DoctorSubsystem

ROLE_PATHS = RolePaths(
    {
        subsystem.name: subsystem.paths
        for subsystem in (
            BackupSubsystem, BrokerSubsystem, CourierSubsystem, ExportSubsystem, HooksSubsystem,
            HubSubsystem, IdentitySubsystem, InboxSubsystem, JobsSubsystem, McpSubsystem,
            OutboxSubsystem, PluginsSubsystem, WebhooksSubsystem,
        )
    }
)  # fmt: skip
"""The paths of every role, also of those that are off."""


class Host(msgspec.Struct, frozen=True):
    """What all subsystems get from the process. `served` has empty files for damaged stores."""

    settings: Settings
    datadir: DataDir
    served: DataDir
    damaged: Mapping[str, StoreSuspended]
    lock: WriterLock
    clock: Clock
    log: Log
    instance_id: str
    read_settings: Callable[[], Settings]
    writers: WriterProcess | None  # None: no store is written

    def runs(self, role: str) -> bool:
        return role not in self.settings.roles.off


def open_tokens(host: Host) -> TokensSubsystem:
    settings = host.settings
    fixed = courier.tokens(settings.courier) if host.runs("courier") else []
    if settings.auth.scrape_token_file is not None:
        scraper = Principal("scraper", "scrape token", frozenset({"metrics:read"}))
        fixed.append((hash_token(secret(settings.auth.scrape_token_file)), scraper))
    return TokensSubsystem(
        settings.auth, settings.store, host.datadir, host.clock, host.log, fixed, host.writers
    )


def identity_of(host: Host, epoch: str) -> ProcessIdentity:
    settings = host.settings
    features = features_of(settings.outbox, mail=bool(settings.mail.host))
    return ProcessIdentity(
        instance_id=host.instance_id,
        epoch=epoch,
        started_ms=host.clock.now_ms(),
        pid=os.getpid(),
        version=__version__,
        features=(
            *(courier_wire.FEATURES if host.runs("courier") else ()),
            *(features if host.runs("outbox") else ()),
        ),
        epochs=epochs.first_ids(host.datadir, epoch),
    )


def doctor_of(host: Host, parts: Sequence[Subsystem]) -> DoctorSubsystem:
    """The doctor, which repairs the stores of the other subsystems. It is closed before them."""
    settings, datadir, clock, log = host.settings, host.datadir, host.clock, host.log
    opened = {store.name: store for part in parts for store in part.stores}
    enabled = frozenset(settings.roles.stores)

    def open_store(name: str) -> Store:
        return Store(name, datadir.database(name), settings.store, clock, log)

    rebuilds = Rebuilds(opened, enabled, open_store, clock, log)
    return DoctorSubsystem(settings.doctor, datadir, rebuilds, clock)


class Composition:
    """`subsystems` in the order in which they start; they close in reverse order. The other
    attributes are what the process needs of some of them."""

    def __init__(self, host: Host) -> None:
        settings, clock, log = host.settings, host.clock, host.log
        self.tokens = open_tokens(host)
        self.identity = identity_of(host, self.tokens.epoch)
        hub = self._open_hub(host) if host.runs("hub") else None
        self.hub: Hub | None = None if hub is None else hub.hub
        webhooks = None
        if self.hub is not None and host.runs("webhooks"):
            webhooks = Webhooks(self.hub, settings.webhooks, clock, log)
        book = WebhooksSwitchedOff() if webhooks is None else HubWebhookDirectory(webhooks)
        limits = settings.outbox
        caller = WebhookCaller(settings.webhooks, limits.connect_seconds, limits.reply_seconds)
        broker = None
        if host.runs("broker"):
            broker = BrokerSubsystem(
                settings.broker, settings.store, settings.socket, host.served, clock, log,
                caller, host.writers,
            )  # fmt: skip
        targets = (WebhookTarget(book, caller, clock), *self._mail(host))
        member = MeshMember(host, self.tokens.book, broker, targets)
        subsystems: list[Subsystem | None] = [
            self.tokens,
            hub or HealthSubsystem(self.identity, clock),
            broker,
            *member.subsystems,
        ]
        if webhooks is not None and member.outbox is not None:
            subsystems.append(WebhooksSubsystem(webhooks, WebhookPost(member.outbox), clock, log))
        if host.runs("courier"):
            subsystems.append(self._open_courier(host, member.outbox))
        if self.hub is not None:
            subsystems += self._of_hub(host, self.hub)
        if host.runs("jobs"):
            subsystems.append(JobsSubsystem(settings.jobs, host.datadir, log))
        if host.runs("backup"):
            subsystems.append(
                BackupSubsystem(settings.backup, host.datadir, settings.roles.stores, clock, log)
            )
        parts = [part for part in subsystems if part is not None]
        self._doctor = doctor_of(host, parts)
        self.subsystems = (*parts, self._doctor)

    def mcp(
        self, host: Host, guard: Guard, readiness: Callable[[], ReadinessResult]
    ) -> tuple[Subsystem, ...]:
        """The tools for agents. They need the guard and the readiness of the whole appliance, so
        they are built last."""
        if self.hub is None or not host.runs("mcp"):
            return ()
        tools = ToolContext(self.hub, readiness, self._doctor.verdicts.encoded)
        return (McpSubsystem(tools, guard, host.settings.http.body_bytes_max),)

    @property
    def db_id(self) -> str:
        """The id of the hub's database; "" without a hub."""
        return "" if self.hub is None else self.hub.db_id

    def _open_hub(self, host: Host) -> HubSubsystem:
        settings = host.settings
        return HubSubsystem(
            settings.hub, settings.store, settings.socket, host.datadir, host.clock, host.log,
            self.identity, self.tokens.book, host.writers,
        )  # fmt: skip

    def _mail(self, host: Host) -> tuple[DeliveryTarget, ...]:
        """The target for mail. Message-IDs contain the hub's id, or without a hub the epoch."""
        if not host.settings.mail.host or not host.runs("outbox"):
            return ()
        return (MailTarget(host.settings.mail, self.db_id or self.identity.epoch),)

    def _open_courier(self, host: Host, outbox: Outbox | None) -> CourierSubsystem:
        settings = host.settings
        sink = None
        if outbox is not None and settings.outbox.enabled:
            sink = TriggerWebhooks(outbox)
        return CourierSubsystem(
            settings.courier, settings.store, settings.socket, host.served, host.clock, host.log,
            host.instance_id, sink,
        )  # fmt: skip

    def _of_hub(self, host: Host, hub: Hub) -> list[Subsystem | None]:
        """The subsystems that work on the hub's log and messages."""
        settings, datadir = host.settings, host.datadir
        export = plugins = None
        if host.runs("export"):
            export = ExportSubsystem(
                settings.export, datadir, host.clock, host.log, hub.newest_event,
                settings.store.page_bytes_max,
            )  # fmt: skip
        if host.runs("plugins"):
            plugins = PluginsSubsystem(
                settings.plugins, hub, datadir.workspace, datadir.dir, host.clock, host.log
            )
        return [export, plugins]


class MeshMember:
    """This appliance as a member of meshes: its keys, its outbox and its inbox."""

    def __init__(
        self,
        host: Host,
        book: TokenBook,
        broker: BrokerSubsystem | None,
        targets: tuple[DeliveryTarget, ...],
    ) -> None:
        """`targets`: what the outbox delivers to, beside brokers."""
        self.outbox: Outbox | None = None
        self.subsystems: tuple[Subsystem, ...] = ()
        if not host.runs(IDENTITY):
            return
        settings, clock, log = host.settings, host.clock, host.log
        brokers = brokers_of(
            settings.inbox,
            [
                BrokerEndpoint(broker.mesh, broker.url, broker.ca_file, broker.broker_id)
                for broker in settings.outbox.brokers
            ],
        )
        keys = MemberIdentity.load(
            host.served, settings.identity, clock, log, os.environ, has_remote_brokers=bool(brokers)
        )
        opened = None
        if host.runs("inbox"):
            opened = open_inbox(
                settings.inbox,
                settings.store,
                host.served,
                clock,
                log,
                keys,
                brokers,
                host.writers,
            )
        inbox = None if opened is None else opened[0]
        sending = None
        if host.runs("outbox"):
            sending = open_outbox(host, keys, inbox, broker, brokers, targets)
            self.outbox = sending.outbox
        received: tuple[Subsystem, ...] = ()
        tell = None
        if opened is not None:
            features = NoOutboxStatus() if self.outbox is None else OutboxSendStatus(self.outbox)
            instance = instance_here(host.datadir.workspace)
            inbox_subsystem = InboxSubsystem(
                *opened, clock, log, keys, book, brokers, features, instance
            )
            tell = inbox_subsystem.offer_new_key
            received = (inbox_subsystem, *self._of_inbox(host, book, broker, inbox_subsystem, keys))
        self.subsystems = (
            IdentitySubsystem(keys, tell, clock, log),
            *(() if sending is None else (sending,)),
            *received,
        )

    def _of_inbox(
        self,
        host: Host,
        book: TokenBook,
        broker: BrokerSubsystem | None,
        inbox_subsystem: InboxSubsystem,
        keys: MemberIdentity,
    ) -> list[Subsystem]:
        """The subsystems that work on received messages, and the subscriber to the local broker."""
        settings, clock, log = host.settings, host.clock, host.log
        subsystems: list[Subsystem] = []
        if host.runs("hooks"):
            hooks = HooksSubsystem(
                settings.hooks, inbox_subsystem.inbox, inbox_subsystem.store, host.served, book,
                clock, log, os.environ, off_in_ci=in_ci(os.environ),
                own=OwnNames(inbox_subsystem, keys), url=OwnUrl(settings.http.host, host.served),
                send=None if self.outbox is None else HookSender(self.outbox),
            )  # fmt: skip
            subsystems.append(hooks)
        if broker is not None:
            subsystems.append(
                LocalMeshes(LocalMeshSubscriber(broker, inbox_subsystem, keys, clock, log))
            )
        return subsystems


def open_outbox(
    host: Host,
    keys: MemberIdentity,
    inbox: Inbox | None,
    broker: BrokerSubsystem | None,
    brokers: Mapping[str, BrokerEndpoint],
    targets: tuple[DeliveryTarget, ...],
) -> OutboxSubsystem:
    settings = host.settings
    here = None if broker is None else broker.broker
    subsystem = OutboxSubsystem(
        settings.outbox, settings.store, host.served, host.clock, host.log,
        local=None if here is None else local_target(here, keys, host.damaged.get("broker")),
        signer=keys.in_mesh, writers=host.writers, targets=targets,
        membership=MeshSendPermission(inbox, here, keys, brokers),
        read_settings=lambda: host.read_settings().outbox,
    )  # fmt: skip
    if here is not None:
        for mesh in here.directory.by_slug.keys() - brokers.keys():
            subsystem.outbox.set_epoch(mesh, here.epoch)
    return subsystem
