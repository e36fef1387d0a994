"""Builds each part of the appliance from the parts before it, with one function per part.

A subsystem declares its needs as Protocols; the classes that implement them for other subsystems
are in `integrations/`. A function imports what its part consists of, so a role that is off takes
no memory.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from appliance import __version__
from appliance.built import Built, require
from appliance.bus.settings import BusSettings
from appliance.courier.settings import CourierSettings
from appliance.host import Host
from appliance.hub.subsystem import HealthSubsystem, HubNeeds, HubSubsystem
from appliance.hub.webhooks.settings import WebhookSettings
from appliance.identity.mode import in_ci
from appliance.identity.settings import IdentitySettings
from appliance.inbox.settings import InboxSettings
from appliance.integrations.settings_rules import mail_of
from appliance.kernel.auth import Principal, hash_token
from appliance.kernel.config import secret
from appliance.kernel.process_identity import ProcessIdentity
from appliance.kernel.store import Store
from appliance.kernel.writer import StoreSettings
from appliance.mailbox.settings import NetworkSettings
from appliance.monitoring.disks import watched_folders
from appliance.monitoring.loops import LatestOutcomes
from appliance.monitoring.problems import list_findings
from appliance.operations.forecast import ForecastNeeds, ForecastSubsystem
from appliance.operations.notify import NoticeSender, NotifyNeeds, NotifySubsystem
from appliance.outbox.settings import MailSettings, OutboxSettings
from appliance.roles import IDENTITY, RolesSettings
from appliance.tokens.settings import AuthSettings
from appliance.tokens.subsystem import TokensNeeds, TokensSubsystem
from appliance.web.guard import Guard
from appliance.web.health import Readiness
from appliance.web.webhook_caller import WebhookCaller
from appliance.workspace import epochs
from doctor.rebuilds import Rebuilds
from doctor.settings_view import view
from doctor.subsystem import DoctorNeeds, DoctorSubsystem

if TYPE_CHECKING:
    from appliance.backup.subsystem import BackupSubsystem
    from appliance.broker.subsystem import BrokerSubsystem
    from appliance.bus.subsystem import BusSubsystem
    from appliance.hub.webhooks.service import Webhooks
    from appliance.hub.webhooks.subsystem import WebhooksSubsystem
    from appliance.identity.service import MemberIdentity
    from appliance.identity.subsystem import IdentitySubsystem
    from appliance.inbox.hooks.subsystem import HooksSubsystem
    from appliance.inbox.service import Inbox
    from appliance.inbox.subsystem import InboxSubsystem
    from appliance.integrations.loop_between import LoopBetween
    from appliance.mailbox.service import Mailbox
    from appliance.mcp.subsystem import McpSubsystem
    from appliance.outbox.subsystem import OutboxSubsystem
    from appliance.outbox.target import DeliveryTarget
    from appliance.outbox.webhook import WebhookTarget

# -- the process, the hub and the bus -------------------------------------------------------


def build_tokens(built: Built) -> TokensSubsystem:
    needs = TokensNeeds(fixed_tokens(built.host), built.oidc.people)
    return TokensSubsystem(built.host, needs)


def fixed_tokens(host: Host) -> list[tuple[str, Principal]]:
    """Return the tokens in the settings, by their hashes."""
    fixed: list[tuple[str, Principal]] = []
    if host.runs("courier"):
        from appliance.courier.subsystem import tokens

        fixed += tokens(host.section(CourierSettings))
    scrape_token_file = host.section(AuthSettings).scrape_token_file
    if scrape_token_file is not None:
        scraper = Principal("scraper", "scrape token", frozenset({"metrics:read"}))
        fixed.append((hash_token(secret(scrape_token_file, "auth.scrape_token_file")), scraper))
    return fixed


def build_process(built: Built) -> ProcessIdentity:
    host, epoch = built.host, built.tokens.epoch
    return ProcessIdentity(
        instance_id=host.instance_id,
        epoch=epoch,
        started_ms=host.clock.now_ms(),
        pid=os.getpid(),
        version=__version__,
        features=_list_features(host),
        epochs=epochs.first_ids(host.datadir, epoch),
        read_only=host.section(StoreSettings).read_only,
    )


def _list_features(host: Host) -> tuple[str, ...]:
    features: list[str] = []
    if host.runs("courier"):
        from appliance.courier import wire as courier_wire

        features += courier_wire.FEATURES
    if host.runs("outbox"):
        from appliance.outbox.service import features_of

        features += features_of(mail=bool(host.section(MailSettings).host))
    if host.runs("relay"):
        from appliance.relay import wire as relay_wire

        features += relay_wire.FEATURES
    return tuple(features)


def build_hub(built: Built) -> HubSubsystem:
    return HubSubsystem(built.host, HubNeeds(built.process, built.tokens.book))


def build_health(built: Built) -> HealthSubsystem | None:
    if built.hub is not None:
        return None
    return HealthSubsystem(built.host, HubNeeds(built.process, built.tokens.book))


def build_bus(built: Built) -> "BusSubsystem":
    from appliance.bus.subsystem import BusNeeds, BusSubsystem
    from appliance.integrations.bounds_bus import ClaimCounter
    from appliance.integrations.bus_export import last_in_segments

    segments = partial(last_in_segments, built.host)
    count_claim = None if built.hub is None else ClaimCounter(built.hub.hub).count
    return BusSubsystem(built.host, BusNeeds(built.tokens.book, segments, count_claim))


def build_bus_topic(built: Built) -> "LoopBetween | None":
    """Post worker state changes into a hub topic."""
    host, topic = built.host, built.host.section(BusSettings).hub_topic
    if built.hub is None or built.bus is None or not topic:
        return None
    from appliance.integrations.bus_hub import BusTopicPoster
    from appliance.integrations.loop_between import LoopBetween

    poster = BusTopicPoster(built.hub.store, built.bus.stores[0], topic, host.clock, host.log)
    return LoopBetween(poster, "hub")


# -- webhooks and mail ----------------------------------------------------------------------


def build_webhook_caller(built: Built) -> WebhookCaller:
    return WebhookCaller(built.host.section(WebhookSettings))


def build_registrations(built: Built) -> "Webhooks | None":
    host = built.host
    if built.hub is None or not host.runs("webhooks"):
        return None
    from appliance.hub.webhooks.service import Webhooks

    return Webhooks(built.hub.hub, host.section(WebhookSettings), host.clock, host.log)


def build_webhook_target(built: Built) -> "WebhookTarget":
    from appliance.integrations.webhooks_outbox import RegisteredWebhooks
    from appliance.outbox.webhook import WebhookTarget

    meshes = None
    if built.broker is not None and "broker" not in built.host.damaged:
        from appliance.broker.webhook_feeder import MeshWebhooks

        meshes = MeshWebhooks(built.broker.broker)
    registered = RegisteredWebhooks(built.registrations, meshes)
    return WebhookTarget(registered, require(built.webhook_caller), built.host.clock)


def build_mail_targets(built: Built) -> "tuple[DeliveryTarget, ...]":
    """Build the mail targets. A Message-ID contains the hub's id, or without a hub the epoch."""
    settings = mail_of(built.host)
    if settings is None:
        return ()
    from appliance.outbox.mail import CodeMailTarget, MailTarget

    origin = built.db_id or built.process.epoch
    mail = MailTarget(settings, origin)
    return (mail, CodeMailTarget(settings, origin)) if built.host.runs("relay") else (mail,)


def build_webhooks(built: Built) -> "WebhooksSubsystem":
    from appliance.hub.webhooks.subsystem import WebhooksNeeds, WebhooksSubsystem
    from appliance.integrations.webhooks_outbox import WebhookPost

    post = WebhookPost(require(built.outbox).outbox)
    return WebhooksSubsystem(built.host, WebhooksNeeds(require(built.registrations), post))


def build_mesh_webhooks(built: Built) -> "LoopBetween | None":
    """Send messages from the own broker's meshes to webhooks."""
    if built.broker is None or built.outbox is None or not calls_webhooks(built.host):
        return None
    from appliance.broker.webhook_feeder import MeshWebhookFeeder
    from appliance.integrations.loop_between import LoopBetween
    from appliance.integrations.webhooks_outbox import WebhookPost

    feeder = MeshWebhookFeeder(built.broker.broker, WebhookPost(built.outbox.outbox))
    return LoopBetween(feeder, "broker", "outbox")


def calls_webhooks(host: Host) -> bool:
    return host.runs("outbox") and "outbox" not in host.damaged


# -- meshes: the broker, and this appliance as a member -------------------------------------


def build_broker(built: Built) -> "BrokerSubsystem":
    from appliance.broker.subsystem import BrokerNeeds, BrokerSubsystem

    caller = require(built.webhook_caller)
    check = caller.check if calls_webhooks(built.host) else None
    return BrokerSubsystem(built.host, BrokerNeeds(check))


def build_keys(built: Built) -> "MemberIdentity | None":
    host = built.host
    if not host.runs(IDENTITY):
        return None
    from appliance.identity.service import MemberIdentity
    from appliance.inbox.brokers import brokers_of

    brokers = brokers_of(host.section(InboxSettings), host.section(OutboxSettings).brokers)
    return MemberIdentity(
        host.served, host.section(IdentitySettings), host.clock, host.log, os.environ,
        is_known_elsewhere=bool(brokers) or _has_network_agents(host),
    )  # fmt: skip


def _has_network_agents(host: Host) -> bool:
    return host.runs("network") and any(host.datadir.dir.glob("network/*/agent.json"))


def build_inbox_service(built: Built) -> "Inbox | None":
    host = built.host
    if not host.runs("inbox"):
        return None
    from appliance.inbox.brokers import brokers_of
    from appliance.inbox.subsystem import open_inbox

    brokers = brokers_of(host.section(InboxSettings), host.section(OutboxSettings).brokers)
    return open_inbox(host, require(built.keys), brokers)


def build_mailbox(built: Built) -> "Mailbox | None":
    """Build the network agents, which receive into the inbox."""
    host = built.host
    if built.inbox_service is None or not host.runs("network"):
        return None
    from appliance.integrations.mailbox_inbox import NetworkInbox
    from appliance.mailbox.service import Mailbox

    accept = NetworkInbox(built.inbox_service).accept
    folder, settings = host.datadir.dir / "network", host.section(NetworkSettings)
    return Mailbox(folder, settings, accept, host.clock, host.log)


def build_outbox(built: Built) -> "OutboxSubsystem":
    from appliance.inbox.brokers import brokers_of
    from appliance.integrations.outbox_broker import MeshSendPermission, OwnBroker
    from appliance.outbox.subsystem import OutboxNeeds, OutboxSubsystem

    host, keys = built.host, require(built.keys)
    brokers = brokers_of(host.section(InboxSettings), host.section(OutboxSettings).brokers)
    here = None if built.broker is None else built.broker.broker
    local = None if here is None else OwnBroker(here, keys, host.damaged.get("broker"))
    membership = MeshSendPermission(built.inbox_service, here, keys, brokers)
    targets: tuple[DeliveryTarget, ...] = (built.webhook_target, *built.mail_targets)
    if built.mailbox is not None:
        from appliance.integrations.mailbox_outbox import NetworkTarget

        targets = (*targets, NetworkTarget(built.mailbox, host.clock))
    subsystem = OutboxSubsystem(host, OutboxNeeds(local, keys.in_mesh, membership, targets))
    if here is not None:
        for mesh in here.directory.by_slug.keys() - brokers.keys():
            subsystem.outbox.set_epoch(mesh, here.epoch)
    return subsystem


def build_inbox(built: Built) -> "InboxSubsystem":
    from appliance.inbox.subsystem import InboxNeeds, InboxSubsystem

    outbox = None if built.outbox is None else built.outbox.outbox
    needs = InboxNeeds(require(built.inbox_service), built.tokens.book, outbox)
    return InboxSubsystem(built.host, needs)


def build_hooks(built: Built) -> "HooksSubsystem":
    from appliance.inbox.hooks.service import HooksNeeds
    from appliance.inbox.hooks.subsystem import HooksSubsystem
    from appliance.integrations.hooks_inbox import own_url
    from appliance.integrations.hooks_outbox import send_hook_message

    inbox = require(built.inbox_service)
    outbox = None if built.outbox is None else built.outbox.outbox
    needs = HooksNeeds(
        inbox, inbox.add_listener, inbox.store, built.tokens.book, in_ci(os.environ),
        inbox.own_names, partial(own_url, built.host),
        None if outbox is None else partial(send_hook_message, outbox),
    )  # fmt: skip
    return HooksSubsystem(built.host, needs)


def build_mesh_subscriber(built: Built) -> "LoopBetween | None":
    """Receive messages from the own broker's meshes."""
    if built.broker is None or built.inbox_service is None:
        return None
    from appliance.integrations.inbox_broker import LocalMeshSubscriber
    from appliance.integrations.loop_between import LoopBetween

    subscriber = LocalMeshSubscriber(built.broker, built.inbox_service, built.host.log)
    return LoopBetween(subscriber, "inbox", "broker")


def build_identity(built: Built) -> "IdentitySubsystem":
    from appliance.identity.subsystem import IdentityNeeds, IdentitySubsystem

    publish_key = None if built.inbox is None else built.inbox.offer_new_key
    return IdentitySubsystem(built.host, IdentityNeeds(require(built.keys), publish_key))


# -- operation ------------------------------------------------------------------------------


def build_backup(built: Built) -> "BackupSubsystem":
    from appliance.backup.subsystem import BackupNeeds, BackupSubsystem

    return BackupSubsystem(built.host, BackupNeeds(built.host.section(RolesSettings).stores))


def build_forecast(built: Built) -> ForecastSubsystem:
    stores = built.host.section(RolesSettings).stores
    return ForecastSubsystem(built.host, ForecastNeeds(watched_folders(built.host), stores))


def build_latest(_built: Built) -> LatestOutcomes:
    """Build the doctor's latest outcomes, which its loops write."""
    return {}


def build_notify(built: Built) -> NotifySubsystem:
    from appliance.integrations.notify_ask import observe
    from appliance.integrations.notify_hub import HubTopics, TopicNotices
    from appliance.integrations.notify_outbox import OutboxNotices, drop_former

    outbox, clock = None if built.outbox is None else built.outbox.outbox, built.host.clock
    webhook = OutboxNotices(outbox, built.webhook_target, clock)
    senders: dict[str, NoticeSender] = {"http": webhook, "https": webhook}
    for target in built.mail_targets[:1]:
        senders["mailto"] = OutboxNotices(outbox, target, clock)
    if built.hub is not None:
        senders["topic"] = TopicNotices(HubTopics(built.hub.hub, "notify"))
    asks = None if built.ask is None else built.ask.asks
    entries = None if built.entries is None else built.entries.entries
    bounds = None if built.bounds is None else built.bounds.bounds
    problems = partial(
        observe, partial(list_findings, built.latest), asks, entries, bounds, built.mailbox
    )
    former = None if outbox is None else partial(drop_former, outbox, built.host.log)
    needs = NotifyNeeds(senders, problems, built.webhook_target.ping, former)
    return NotifySubsystem(built.host, needs)


def build_doctor(built: Built) -> DoctorSubsystem:
    """Build the doctor, which repairs all earlier stores. Stores are closed after the doctor."""
    host = built.host
    opened = {store.name: store for part in built.subsystems for store in part.stores}
    enabled = frozenset(host.section(RolesSettings).stores)

    def open_store(name: str) -> Store:
        settings, path = host.section(StoreSettings), host.datadir.database(name)
        return Store(name, path, settings, host.clock, host.log)

    rebuilds = Rebuilds(opened, enabled, open_store, host.clock, host.log)
    settings = view(host.settings_file, os.environ, host.settings)
    return DoctorSubsystem(host, DoctorNeeds(rebuilds, settings, built.latest))


def build_mcp(
    built: Built, guard: Guard, readiness: Callable[[], Readiness]
) -> "McpSubsystem | None":
    """Build the tools for agents, which need the whole appliance's guard."""
    if built.hub is None or not built.host.runs("mcp"):
        return None
    from appliance.mcp.subsystem import McpNeeds, McpSubsystem
    from appliance.mcp.tools import HubTools

    hub_tools = HubTools(built.hub.hub, readiness, built.doctor.verdicts.of_names)
    tools = [
        replace(tool, group=subsystem.name)
        for subsystem in built.subsystems
        for tool in subsystem.tools()
    ]
    return McpSubsystem(built.host, McpNeeds(hub_tools, guard, tools))
