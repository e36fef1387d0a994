"""Builds the subsystems in the order in which they need each other, and hands each its others.

What one subsystem asks of another is a Protocol of its own; the classes that answer are in
`integrations/`. A new subsystem is one line in the tuple of `Composition`.
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
from appliance.hub.subsystem import HubSubsystem
from appliance.hub.webhooks.service import Webhooks
from appliance.hub.webhooks.subsystem import WebhooksSubsystem
from appliance.identity.mode import in_ci
from appliance.identity.service import Identity
from appliance.identity.subsystem import IdentitySubsystem
from appliance.inbox.settings import BrokerPlace
from appliance.inbox.subsystem import InboxSubsystem, brokers_of, open_inbox
from appliance.integrations.broker_outbox import MeshHooks
from appliance.integrations.courier_outbox import TriggerWebhooks
from appliance.integrations.hooks_inbox import OwnNames, OwnUrl
from appliance.integrations.hooks_outbox import HookSender
from appliance.integrations.inbox_broker import LocalMeshes, LocalMeshSubscriber
from appliance.integrations.inbox_outbox import SendStatus
from appliance.integrations.outbox_broker import MeshMembership, local_target
from appliance.integrations.webhooks_outbox import WebhookBook, WebhookPost
from appliance.kernel.auth import Principal, TokenBook, hash_token
from appliance.kernel.clock import Clock
from appliance.kernel.config import secret
from appliance.kernel.datadir import DataDir, WriterLock
from appliance.kernel.log import Log
from appliance.kernel.process_identity import ProcessIdentity
from appliance.kernel.store import Apart
from appliance.kernel.subsystem import Subsystem
from appliance.kernel.trouble import StoreSuspended
from appliance.outbox.mail import MailTarget
from appliance.outbox.service import features_of
from appliance.outbox.subsystem import OutboxSubsystem
from appliance.outbox.target import Target
from appliance.outbox.webhook import WebhookTarget
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

    def apart(self, restarted: Callable[[], None]) -> Apart:
        """For a store with a setting of its own about its writer."""
        return Apart(self.lock.descriptor, restarted, self.settings.log.level)

    def apart_by_setting(self, restarted: Callable[[], None]) -> Apart | None:
        return None if self.settings.store.writer == "thread" else self.apart(restarted)


def open_tokens(host: Host) -> TokensSubsystem:
    settings = host.settings
    fixed = courier.tokens(settings.courier)
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
        features=(*courier_wire.FEATURES, *sends),
    )


class Composition:
    """`subsystems` in the order in which they start; they close in reverse. What the process asks
    some of them itself is named beside them."""

    def __init__(self, host: Host) -> None:
        settings, clock, log = host.settings, host.clock, host.log
        self.tokens = open_tokens(host)
        self.identity = identity_of(host, self.tokens.epoch)
        self.hub = HubSubsystem(
            settings.hub, settings.store, settings.socket, host.datadir, clock, log,
            self.identity, self.tokens.book, host.apart_by_setting,
        )  # fmt: skip
        webhooks = Webhooks(self.hub.hub, settings.webhooks, clock, log)
        caller = WebhookTarget(WebhookBook(webhooks), settings.webhooks, settings.outbox, clock)
        broker = BrokerSubsystem(
            settings.broker, settings.store, settings.socket, host.datadir, clock, log,
            MeshHooks(caller), host.apart,
        )  # fmt: skip
        mail = (MailTarget(settings.mail, self.hub.hub.db_id),) if settings.mail.host else ()
        member = Mesh(host, self.tokens.book, broker, (caller, *mail))
        self.subsystems: tuple[Subsystem, ...] = (
            self.tokens,
            self.hub,
            broker,
            *member.subsystems,
            WebhooksSubsystem(webhooks, WebhookPost(member.outbox), clock, log),
            CourierSubsystem(
                settings.courier, settings.store, settings.socket, host.served, clock, log,
                host.instance_id, host.apart_by_setting,
                TriggerWebhooks(member.outbox) if settings.outbox.enabled else None,
            ),
            ExportSubsystem(
                settings.jobs, host.datadir, clock, log, self.hub.hub.newest_event,
                settings.store.page_bytes_max,
            ),
            PluginsSubsystem(
                settings.plugins, self.hub.hub, host.datadir.workspace, host.datadir.dir, clock, log
            ),
        )  # fmt: skip


class Mesh:
    """This appliance as a member of meshes: its keys, what it sends and what it receives."""

    def __init__(
        self, host: Host, book: TokenBook, broker: BrokerSubsystem, targets: tuple[Target, ...]
    ) -> None:
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
        inbox, store = open_inbox(
            settings.inbox, settings.store, host.served, clock, log, keys, brokers
        )
        sending = OutboxSubsystem(
            settings.outbox, settings.store, host.served, clock, log,
            local=local_target(broker.broker, keys, host.damaged.get("broker")),
            signer=keys.in_mesh, apart=host.apart(lambda: None), targets=targets,
            membership=MeshMembership(inbox, broker.broker, keys, brokers),
            read_settings=lambda: host.read_settings().outbox,
        )  # fmt: skip
        self.outbox = sending.outbox
        receiving = InboxSubsystem(
            inbox, store, clock, log, keys, book, brokers, SendStatus(self.outbox)
        )
        hooks = HooksSubsystem(
            settings.hooks, inbox, store, host.served, book, clock, log, os.environ,
            off_in_ci=in_ci(os.environ), own=OwnNames(receiving, keys),
            url=OwnUrl(settings.http.host, host.served), send=HookSender(self.outbox),
        )  # fmt: skip
        self.subsystems: tuple[Subsystem, ...] = (
            IdentitySubsystem(keys, receiving.tell_rotation, clock, log),
            sending,
            receiving,
            hooks,
            LocalMeshes(LocalMeshSubscriber(broker, receiving, keys, clock, log)),
        )
