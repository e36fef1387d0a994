"""Builds the subsystems in the order in which they need each other, and hands each its others.

What one subsystem asks of another is a Protocol of its own; the classes that answer are in
`integrations/`. A subsystem whose role is off ([roles]) is not built: its place here is None.
"""

import os
from collections.abc import Callable, Mapping

import msgspec

from appliance import __version__
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
from appliance.identity.service import Identity
from appliance.identity.subsystem import IdentitySubsystem
from appliance.inbox.service import Inbox
from appliance.inbox.settings import BrokerPlace
from appliance.inbox.subsystem import InboxSubsystem, brokers_of, open_inbox
from appliance.integrations.broker_outbox import MeshHooks
from appliance.integrations.courier_outbox import TriggerWebhooks
from appliance.integrations.hooks_inbox import OwnNames, OwnUrl
from appliance.integrations.hooks_outbox import HookSender
from appliance.integrations.inbox_broker import LocalMeshes, LocalMeshSubscriber
from appliance.integrations.inbox_outbox import NothingSent, SendStatus
from appliance.integrations.outbox_broker import MeshMembership, local_target
from appliance.integrations.webhooks_outbox import NoWebhooks, WebhookBook, WebhookPost
from appliance.kernel.auth import Principal, TokenBook, hash_token
from appliance.kernel.clock import Clock
from appliance.kernel.config import secret
from appliance.kernel.datadir import DataDir, WriterLock
from appliance.kernel.log import Log
from appliance.kernel.process_identity import ProcessIdentity
from appliance.kernel.store import WriterProcessOptions
from appliance.kernel.store_errors import StoreSuspended
from appliance.kernel.subsystem import Subsystem
from appliance.outbox.mail import MailTarget
from appliance.outbox.service import Outbox, features_of
from appliance.outbox.subsystem import OutboxSubsystem
from appliance.outbox.target import Target
from appliance.outbox.webhook import WebhookTarget
from appliance.roles import IDENTITY
from appliance.settings import Settings
from appliance.tokens.subsystem import TokensSubsystem


class Host(msgspec.Struct, frozen=True):
    """What all subsystems get of the process. `served` has empty files for damaged stores."""

    settings: Settings
    datadir: DataDir
    served: DataDir
    damaged: Mapping[str, StoreSuspended]
    lock: WriterLock
    clock: Clock
    log: Log
    instance_id: str
    read_settings: Callable[[], Settings]

    def runs(self, role: str) -> bool:
        return role not in self.settings.roles.off

    def apart(self, restarted: Callable[[], None]) -> WriterProcessOptions:
        """For a store with a setting of its own about its writer."""
        return WriterProcessOptions(self.lock.descriptor, restarted, self.settings.log.level)

    def apart_by_setting(self, restarted: Callable[[], None]) -> WriterProcessOptions | None:
        return None if self.settings.store.writer == "thread" else self.apart(restarted)


def open_tokens(host: Host) -> TokensSubsystem:
    settings = host.settings
    fixed = courier.tokens(settings.courier) if host.runs("courier") else []
    if settings.auth.scrape_token_file is not None:
        scraper = Principal("scraper", "scrape token", frozenset({"metrics:read"}))
        fixed.append((hash_token(secret(settings.auth.scrape_token_file)), scraper))
    return TokensSubsystem(settings.auth, settings.store, host.datadir, host.clock, host.log, fixed)


def identity_of(host: Host, epoch: str) -> ProcessIdentity:
    settings = host.settings
    sends = features_of(settings.outbox, mail=bool(settings.mail.host))
    return ProcessIdentity(
        instance_id=host.instance_id,
        epoch=epoch,
        started_ms=host.clock.now_ms(),
        pid=os.getpid(),
        version=__version__,
        features=(
            *(courier_wire.FEATURES if host.runs("courier") else ()),
            *(sends if host.runs("outbox") else ()),
        ),
    )


class Composition:
    """`subsystems` in the order in which they start; they close in reverse. What the process asks
    some of them itself is named beside them."""

    def __init__(self, host: Host) -> None:
        settings, clock, log = host.settings, host.clock, host.log
        self.tokens = open_tokens(host)
        self.identity = identity_of(host, self.tokens.epoch)
        hub = self._open_hub(host) if host.runs("hub") else None
        self.hub: Hub | None = None if hub is None else hub.hub
        webhooks = None
        if self.hub is not None and host.runs("webhooks"):
            webhooks = Webhooks(self.hub, settings.webhooks, clock, log)
        book = NoWebhooks() if webhooks is None else WebhookBook(webhooks)
        caller = WebhookTarget(book, settings.webhooks, settings.outbox, clock)
        broker = None
        if host.runs("broker"):
            broker = BrokerSubsystem(
                settings.broker, settings.store, settings.socket, host.served, clock, log,
                MeshHooks(caller), host.apart,
            )  # fmt: skip
        member = Mesh(host, self.tokens.book, broker, (caller, *self._mail(host)))
        parts: list[Subsystem | None] = [
            self.tokens,
            hub or HealthSubsystem(self.identity, clock),
            broker,
            *member.subsystems,
        ]
        if webhooks is not None and member.outbox is not None:
            parts.append(WebhooksSubsystem(webhooks, WebhookPost(member.outbox), clock, log))
        if host.runs("courier"):
            parts.append(self._open_courier(host, member.outbox))
        if self.hub is not None:
            parts += self._of_hub(host, self.hub)
        self.subsystems = tuple(part for part in parts if part is not None)

    @property
    def db_id(self) -> str:
        """Of the hub's database; "" without a hub."""
        return "" if self.hub is None else self.hub.db_id

    def _open_hub(self, host: Host) -> HubSubsystem:
        settings = host.settings
        return HubSubsystem(
            settings.hub, settings.store, settings.socket, host.datadir, host.clock, host.log,
            self.identity, self.tokens.book, host.apart_by_setting,
        )  # fmt: skip

    def _mail(self, host: Host) -> tuple[Target, ...]:
        """Message-IDs name the workspace: by its hub, or without one by the epoch."""
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
            host.instance_id, host.apart_by_setting, sink,
        )  # fmt: skip

    def _of_hub(self, host: Host, hub: Hub) -> list[Subsystem | None]:
        """What works on the hub's log and messages."""
        settings, datadir = host.settings, host.datadir
        export = plugins = None
        if host.runs("export"):
            export = ExportSubsystem(
                settings.jobs, datadir, host.clock, host.log, hub.newest_event,
                settings.store.page_bytes_max,
            )  # fmt: skip
        if host.runs("plugins"):
            plugins = PluginsSubsystem(
                settings.plugins, hub, datadir.workspace, datadir.dir, host.clock, host.log
            )
        return [export, plugins]


class Mesh:
    """This appliance as a member of meshes: its keys, what it sends and what it receives."""

    def __init__(
        self,
        host: Host,
        book: TokenBook,
        broker: BrokerSubsystem | None,
        targets: tuple[Target, ...],
    ) -> None:
        """`targets` is what the outbox delivers to beside brokers."""
        self.outbox: Outbox | None = None
        self.subsystems: tuple[Subsystem, ...] = ()
        if not host.runs(IDENTITY):
            return
        settings, clock, log = host.settings, host.clock, host.log
        brokers = brokers_of(
            settings.inbox,
            [
                BrokerPlace(one.mesh, one.url, one.ca_file, one.broker_id)
                for one in settings.outbox.brokers
            ],
        )
        keys = Identity.load(
            host.served, settings.identity, clock, log, os.environ, known_to_others=bool(brokers)
        )
        opened = None
        if host.runs("inbox"):
            opened = open_inbox(
                settings.inbox, settings.store, host.served, clock, log, keys, brokers
            )
        inbox = None if opened is None else opened[0]
        sending = None
        if host.runs("outbox"):
            sending = open_outbox(host, keys, inbox, broker, brokers, targets)
            self.outbox = sending.outbox
        received: tuple[Subsystem, ...] = ()
        tell = None
        if opened is not None:
            sends = NothingSent() if self.outbox is None else SendStatus(self.outbox)
            receiving = InboxSubsystem(*opened, clock, log, keys, book, brokers, sends)
            tell = receiving.tell_rotation
            received = (receiving, *self._of_inbox(host, book, broker, receiving, keys))
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
        receiving: InboxSubsystem,
        keys: Identity,
    ) -> list[Subsystem]:
        """What works on received messages, and what receives from the broker here."""
        settings, clock, log = host.settings, host.clock, host.log
        parts: list[Subsystem] = []
        if host.runs("hooks"):
            hooks = HooksSubsystem(
                settings.hooks, receiving.inbox, receiving.store, host.served, book, clock, log,
                os.environ, off_in_ci=in_ci(os.environ), own=OwnNames(receiving, keys),
                url=OwnUrl(settings.http.host, host.served),
                send=None if self.outbox is None else HookSender(self.outbox),
            )  # fmt: skip
            parts.append(hooks)
        if broker is not None:
            parts.append(LocalMeshes(LocalMeshSubscriber(broker, receiving, keys, clock, log)))
        return parts


def open_outbox(
    host: Host,
    keys: Identity,
    inbox: Inbox | None,
    broker: BrokerSubsystem | None,
    brokers: Mapping[str, BrokerPlace],
    targets: tuple[Target, ...],
) -> OutboxSubsystem:
    settings = host.settings
    here = None if broker is None else broker.broker
    return OutboxSubsystem(
        settings.outbox, settings.store, host.served, host.clock, host.log,
        local=None if here is None else local_target(here, keys, host.damaged.get("broker")),
        signer=keys.in_mesh, apart=host.apart(lambda: None), targets=targets,
        membership=MeshMembership(inbox, here, keys, brokers),
        read_settings=lambda: host.read_settings().outbox,
    )  # fmt: skip
