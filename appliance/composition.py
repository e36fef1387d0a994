"""Builds the subsystems in the order of their dependencies, and connects them.

A subsystem declares what it needs of others as Protocols of its own; the classes that implement
them are in `integrations/`. A subsystem whose role is off ([roles]) is not built.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from appliance import __version__
from appliance.ask.reviews import ReviewAsks
from appliance.ask.subsystem import AskNeeds, AskSubsystem
from appliance.audit.subsystem import AuditSubsystem
from appliance.backup.subsystem import BackupNeeds, BackupSubsystem
from appliance.broker.subsystem import BrokerNeeds, BrokerSubsystem
from appliance.broker.webhook_feeder import MeshWebhookFeeder, MeshWebhooks
from appliance.bus.settings import BusSettings
from appliance.bus.subsystem import BusNeeds, BusSubsystem
from appliance.courier import subsystem as courier
from appliance.courier import wire as courier_wire
from appliance.courier.settings import CourierSettings
from appliance.courier.subsystem import CourierNeeds, CourierSubsystem
from appliance.export.subsystem import ExportSubsystem
from appliance.hooks.service import HooksNeeds
from appliance.hooks.subsystem import HooksSubsystem
from appliance.host import Host
from appliance.hub.plugins.subsystem import PluginsNeeds, PluginsSubsystem
from appliance.hub.service import Hub
from appliance.hub.subsystem import HealthSubsystem, HubNeeds, HubSubsystem
from appliance.hub.webhooks.service import Webhooks
from appliance.hub.webhooks.settings import WebhookSettings
from appliance.hub.webhooks.subsystem import WebhooksNeeds, WebhooksSubsystem
from appliance.identity.mode import in_ci
from appliance.identity.service import MemberIdentity
from appliance.identity.settings import IdentitySettings
from appliance.identity.subsystem import IdentityNeeds, IdentitySubsystem
from appliance.inbox.brokers import brokers_of
from appliance.inbox.service import Inbox
from appliance.inbox.settings import InboxSettings
from appliance.inbox.subsystem import InboxNeeds, InboxSubsystem, open_inbox
from appliance.integrations.ask_bus import BusReviews
from appliance.integrations.bus_export import last_in_segments
from appliance.integrations.bus_hub import BusTopicPoster
from appliance.integrations.courier_outbox import send_trigger_webhook
from appliance.integrations.hooks_inbox import own_url
from appliance.integrations.hooks_outbox import send_hook_message
from appliance.integrations.inbox_broker import LocalMeshSubscriber
from appliance.integrations.jobs_parts import jobs_needs
from appliance.integrations.loop_between import LoopBetween
from appliance.integrations.mail_outbox import OutboxMail
from appliance.integrations.mailbox_inbox import NetworkInbox
from appliance.integrations.mailbox_outbox import NetworkTarget
from appliance.integrations.notify_parts import notify_needs
from appliance.integrations.outbox_broker import MeshSendPermission, OwnBroker
from appliance.integrations.relay_ask import HubApprovalAsks
from appliance.integrations.settings_rules import mail_of
from appliance.integrations.webhooks_outbox import RegisteredWebhooks, WebhookPost
from appliance.jobs.subsystem import JobsSubsystem
from appliance.kernel.auth import Principal, TokenBook, hash_token
from appliance.kernel.config import secret
from appliance.kernel.process_identity import ProcessIdentity
from appliance.kernel.store import Store
from appliance.kernel.subsystem import Subsystem
from appliance.kernel.writer import StoreSettings
from appliance.logs.subsystem import LogsSubsystem
from appliance.mailbox.service import Mailbox
from appliance.mailbox.settings import NetworkSettings
from appliance.mailbox.subsystem import MailboxNeeds, MailboxSubsystem
from appliance.maintenance.subsystem import MaintenanceSubsystem
from appliance.mcp.subsystem import McpNeeds, McpSubsystem
from appliance.mcp.tools import HubTools
from appliance.mesh.broker_endpoint import BrokerEndpoint
from appliance.monitoring.disks import forecast_of
from appliance.monitoring.problems import list_findings
from appliance.notify.subsystem import NotifySubsystem
from appliance.outbox.mail import CodeMailTarget, MailTarget
from appliance.outbox.service import Outbox, features_of
from appliance.outbox.settings import MailSettings, OutboxSettings
from appliance.outbox.subsystem import OutboxNeeds, OutboxSubsystem
from appliance.outbox.target import CODE_MAIL, MAIL, DeliveryTarget
from appliance.outbox.webhook import WebhookTarget
from appliance.rates.subsystem import RatesSubsystem
from appliance.relay import wire as relay_wire
from appliance.relay.subsystem import RelayNeeds, RelaySubsystem
from appliance.roles import IDENTITY, RolesSettings
from appliance.tokens.settings import AuthSettings
from appliance.tokens.subsystem import TokensNeeds, TokensSubsystem
from appliance.ui.subsystem import UiSubsystem
from appliance.web.guard import Guard
from appliance.web.health import Readiness
from appliance.web.webhook_caller import WebhookCaller
from appliance.workspace import epochs
from appliance.workspace.command_runner import CommandRunner
from doctor.rebuilds import Rebuilds
from doctor.settings_view import view
from doctor.subsystem import DoctorNeeds, DoctorSubsystem


def fixed_tokens(host: Host) -> list[tuple[str, Principal]]:
    """The tokens of settings."""
    fixed = courier.tokens(host.section(CourierSettings)) if host.runs("courier") else []
    scrape_token_file = host.section(AuthSettings).scrape_token_file
    if scrape_token_file is not None:
        scraper = Principal("scraper", "scrape token", frozenset({"metrics:read"}))
        fixed.append((hash_token(secret(scrape_token_file)), scraper))
    return fixed


def identity_of(host: Host, epoch: str) -> ProcessIdentity:
    mail = bool(host.section(MailSettings).host)
    features = features_of(mail=mail)
    return ProcessIdentity(
        instance_id=host.instance_id,
        epoch=epoch,
        started_ms=host.clock.now_ms(),
        pid=os.getpid(),
        version=__version__,
        features=(
            *(courier_wire.FEATURES if host.runs("courier") else ()),
            *(features if host.runs("outbox") else ()),
            *(relay_wire.FEATURES if host.runs("relay") else ()),
        ),
        epochs=epochs.first_ids(host.datadir, epoch),
        read_only=host.section(StoreSettings).read_only,
    )


def doctor_of(host: Host, parts: Sequence[Subsystem]) -> DoctorSubsystem:
    """The doctor, which repairs the stores of the other subsystems. It is closed before them."""
    opened = {store.name: store for part in parts for store in part.stores}
    enabled = frozenset(host.section(RolesSettings).stores)

    def open_store(name: str) -> Store:
        settings, path = host.section(StoreSettings), host.datadir.database(name)
        return Store(name, path, settings, host.clock, host.log)

    rebuilds = Rebuilds(opened, enabled, open_store, host.clock, host.log)
    settings = view(host.settings_file, os.environ, host.settings)
    return DoctorSubsystem(host, DoctorNeeds(rebuilds, settings))


def asks_of(
    host: Host, hub: Hub, outbox: Outbox | None, bus: BusSubsystem | None
) -> list[Subsystem]:
    mail = None
    if outbox is not None and host.section(MailSettings).host:
        mail = OutboxMail(outbox, MAIL, "appliance:ask")
    ask = AskSubsystem(host, AskNeeds(hub, mail))
    settings = host.section(BusSettings)
    if bus is None or not settings.ask_reviews:
        return [ask]
    runner = CommandRunner(host.datadir, "bus", settings, host.commands)
    reviews = BusReviews(bus.stores[0], runner)
    loop = ReviewAsks(ask.asks, reviews, host.clock, host.log)
    return [ask, LoopBetween(loop, "hub", "bus")]


def relay_needs(host: Host, outbox: Outbox | None, parts: Sequence[Subsystem | None]) -> RelayNeeds:
    """The mail for codes, and the questions for admins, as far as the parts before it allow."""
    codes = outbox if host.section(MailSettings).host else None
    ask = next((part for part in parts if isinstance(part, AskSubsystem)), None)
    return RelayNeeds(
        None if codes is None else OutboxMail(codes, CODE_MAIL, "appliance:relay"),
        None if ask is None else HubApprovalAsks(ask.asks, host.clock),
    )


class Composition:
    """`subsystems` in the order in which they start; they close in reverse order. The other
    attributes are what the process needs of some of them."""

    def __init__(self, host: Host) -> None:
        self.audit = AuditSubsystem(host)
        self.tokens = TokensSubsystem(host, TokensNeeds(fixed_tokens(host)))
        self.identity = identity_of(host, self.tokens.epoch)
        hub_needs = HubNeeds(self.identity, self.tokens.book)
        hub = HubSubsystem(host, hub_needs) if host.runs("hub") else None
        self.hub: Hub | None = None if hub is None else hub.hub
        webhooks = None
        if self.hub is not None and host.runs("webhooks"):
            webhooks = Webhooks(self.hub, host.section(WebhookSettings), host.clock, host.log)
        caller = WebhookCaller(host.section(WebhookSettings))
        calls_webhooks = host.runs("outbox") and "outbox" not in host.damaged
        broker = None
        if host.runs("broker"):
            broker_needs = BrokerNeeds(caller.check if calls_webhooks else None)
            broker = BrokerSubsystem(host, broker_needs)
        meshes = MeshWebhooks(broker.broker) if broker and "broker" not in host.damaged else None
        registered = RegisteredWebhooks(webhooks, meshes)
        targets = (WebhookTarget(registered, caller, host.clock), *self._mail(host))
        member, outbox = member_of(host, self.tokens.book, broker, targets)
        bus = None
        if host.runs("bus"):
            bus = BusSubsystem(host, BusNeeds(self.tokens.book, partial(last_in_segments, host)))
        subsystems: list[Subsystem | None] = [
            self.tokens,
            hub or HealthSubsystem(host, hub_needs),
            bus,
            broker,
            *member,
        ]
        if outbox is not None:
            post = WebhookPost(outbox)
            if webhooks is not None:
                subsystems.append(WebhooksSubsystem(host, WebhooksNeeds(webhooks, post)))
            if broker is not None and calls_webhooks:
                feeder = MeshWebhookFeeder(broker.broker, post)
                subsystems.append(LoopBetween(feeder, "broker", "outbox"))
        if host.runs("courier"):
            sink = None if outbox is None else partial(send_trigger_webhook, outbox)
            subsystems.append(CourierSubsystem(host, CourierNeeds(sink)))
        if self.hub is not None and host.runs("export"):
            subsystems.append(ExportSubsystem(host))
        topic = host.section(BusSettings).hub_topic
        if self.hub is not None and bus is not None and topic:
            poster = BusTopicPoster(self.hub.store, bus.stores[0], topic, host.clock, host.log)
            subsystems.append(LoopBetween(poster, "hub"))
        if self.hub is not None and host.runs("plugins"):
            subsystems.append(PluginsSubsystem(host, PluginsNeeds(self.hub)))
        if self.hub is not None and host.runs("ask"):
            subsystems += asks_of(host, self.hub, outbox, bus)
        if host.runs("jobs"):
            subsystems.append(JobsSubsystem(host, jobs_needs(host, self.tokens.book, subsystems)))
        if host.runs("relay"):
            subsystems.append(RelaySubsystem(host, relay_needs(host, outbox, subsystems)))
        if host.runs("backup"):
            stores = host.section(RolesSettings).stores
            subsystems.append(BackupSubsystem(host, BackupNeeds(stores)))
        self.maintenance = MaintenanceSubsystem(host)
        subsystems += (
            RatesSubsystem(host), UiSubsystem(), self.audit, self.maintenance, forecast_of(host),
            LogsSubsystem(host),
        )  # fmt: skip
        parts = [part for part in subsystems if part is not None]
        self.doctor = doctor_of(host, parts)
        findings = partial(list_findings, self.doctor.latest)
        needs = notify_needs(host, parts, outbox, targets, findings)
        self.subsystems = (*parts, self.doctor, NotifySubsystem(host, needs))

    def mcp(
        self, host: Host, guard: Guard, readiness: Callable[[], Readiness]
    ) -> tuple[Subsystem, ...]:
        """The tools for agents. They need the guard and the readiness of the whole appliance, so
        they are built last."""
        if self.hub is None or not host.runs("mcp"):
            return ()
        hub_tools = HubTools(self.hub, readiness, self.doctor.verdicts.of_names)
        tools = [tool for subsystem in self.subsystems for tool in subsystem.tools()]
        return (McpSubsystem(host, McpNeeds(hub_tools, guard, tools)),)

    @property
    def db_id(self) -> str:
        """The id of the hub's database; "" without a hub."""
        return "" if self.hub is None else self.hub.db_id

    def _mail(self, host: Host) -> tuple[DeliveryTarget, ...]:
        """The target for mail. Message-IDs contain the hub's id, or without a hub the epoch."""
        settings = mail_of(host)
        if settings is None:
            return ()
        origin = self.db_id or self.identity.epoch
        mail = MailTarget(settings, origin)
        return (mail, CodeMailTarget(settings, origin)) if host.runs("relay") else (mail,)


def member_of(
    host: Host,
    book: TokenBook,
    broker: BrokerSubsystem | None,
    targets: tuple[DeliveryTarget, ...],
) -> tuple[list[Subsystem], Outbox | None]:
    """This appliance as a member of meshes: its keys, its outbox, its inbox and what works on
    received messages. `targets`: what the outbox delivers to, beside brokers."""
    if not host.runs(IDENTITY):
        return [], None
    brokers = brokers_of(host.section(InboxSettings), host.section(OutboxSettings).brokers)
    keys = MemberIdentity(
        host.served, host.section(IdentitySettings), host.clock, host.log, os.environ,
        has_remote_brokers=bool(brokers),
    )  # fmt: skip
    opened = open_inbox(host, keys, brokers) if host.runs("inbox") else None
    mailbox = None if opened is None else mailbox_of(host, opened)
    if mailbox is not None:
        targets = (*targets, NetworkTarget(mailbox, host.clock))
    subsystems: list[Subsystem] = []
    outbox: Outbox | None = None
    publish_key = None
    if host.runs("outbox"):
        sending = open_outbox(host, keys, opened, broker, brokers, targets)
        outbox = sending.outbox
        subsystems.append(sending)
    if opened is not None:
        inbox = InboxSubsystem(host, InboxNeeds(opened, book, outbox))
        publish_key = inbox.offer_new_key
        subsystems.append(inbox)
        if host.runs("hooks"):
            needs = HooksNeeds(
                opened, opened.add_listener, opened.store, book, in_ci(os.environ),
                opened.own_names, partial(own_url, host),
                None if outbox is None else partial(send_hook_message, outbox),
            )  # fmt: skip
            subsystems.append(HooksSubsystem(host, needs))
        if broker is not None:
            subscriber = LocalMeshSubscriber(broker, opened, host.log)
            subsystems.append(LoopBetween(subscriber, "inbox", "broker"))
    if mailbox is not None:
        subsystems.append(MailboxSubsystem(host, MailboxNeeds(mailbox)))
    identity = IdentitySubsystem(host, IdentityNeeds(keys, publish_key))
    return [identity, *subsystems], outbox


def mailbox_of(host: Host, inbox: Inbox) -> Mailbox | None:
    """The agents of the network, which receive into the inbox."""
    if not host.runs("network"):
        return None
    take = NetworkInbox(inbox).take
    folder, settings = host.datadir.dir / "network", host.section(NetworkSettings)
    return Mailbox(folder, settings, take, host.clock, host.log)


def open_outbox(
    host: Host,
    keys: MemberIdentity,
    inbox: Inbox | None,
    broker: BrokerSubsystem | None,
    brokers: Mapping[str, BrokerEndpoint],
    targets: tuple[DeliveryTarget, ...],
) -> OutboxSubsystem:
    here = None if broker is None else broker.broker
    local = None if here is None else OwnBroker(here, keys, host.damaged.get("broker"))
    membership = MeshSendPermission(inbox, here, keys, brokers)
    subsystem = OutboxSubsystem(host, OutboxNeeds(local, keys.in_mesh, membership, targets))
    if here is not None:
        for mesh in here.directory.by_slug.keys() - brokers.keys():
            subsystem.outbox.set_epoch(mesh, here.epoch)
    return subsystem
