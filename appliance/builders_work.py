"""Builds the parts for work and people, as `builders.py` does for the others."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from appliance.backup.settings import BackupSettings
from appliance.built import Built, require
from appliance.bus.settings import BusSettings
from appliance.outbox.settings import MailSettings
from appliance.workspace.command_runner import CommandRunner

if TYPE_CHECKING:
    from appliance.courier.subsystem import CourierSubsystem
    from appliance.export.subsystem import ExportSubsystem
    from appliance.hub.a2a.subsystem import A2aSubsystem
    from appliance.hub.agents.subsystem import AgentsSubsystem
    from appliance.hub.ask.subsystem import AskSubsystem
    from appliance.hub.blobs.subsystem import BlobSubsystem
    from appliance.hub.bounds.subsystem import BoundsSubsystem
    from appliance.hub.catchup.subsystem import CatchUpSubsystem
    from appliance.hub.entries.subsystem import EntriesSubsystem
    from appliance.hub.incoming.service import EnvelopeSink
    from appliance.hub.incoming.subsystem import IncomingSubsystem
    from appliance.hub.plugins.subsystem import PluginsSubsystem
    from appliance.integrations.loop_between import LoopBetween
    from appliance.jobs.loops import JobEvents
    from appliance.jobs.subsystem import JobsSubsystem
    from appliance.mailbox.subsystem import MailboxSubsystem
    from appliance.relay.subsystem import RelaySubsystem


def build_courier(built: Built) -> "CourierSubsystem":
    from appliance.courier.subsystem import CourierNeeds, CourierSubsystem
    from appliance.integrations.courier_outbox import send_trigger_webhook

    outbox = built.outbox
    sink = None if outbox is None else partial(send_trigger_webhook, outbox.outbox)
    pauses = None if built.hub is None else built.hub.hub.pauses
    return CourierSubsystem(built.host, CourierNeeds(sink, pauses))


def build_incoming(built: Built) -> "IncomingSubsystem":
    from appliance.hub.incoming.subsystem import IncomingNeeds, IncomingSubsystem

    needs = IncomingNeeds(require(built.hub).hub, _envelope_sink(built))
    return IncomingSubsystem(built.host, needs)


def _envelope_sink(built: Built) -> "EnvelopeSink | None":
    """Return what stores envelopes; None while the courier is off."""
    if built.courier is None:
        return None
    from appliance.integrations.incoming_courier import enqueue_delivery

    return partial(enqueue_delivery, built.courier.courier)


def build_blobs(built: Built) -> "BlobSubsystem":
    from appliance.backup.backup_directory import BackupDirectory
    from appliance.hub.blobs.subsystem import BlobNeeds, BlobSubsystem

    host = built.host
    backups = BackupDirectory(host.datadir, host.section(BackupSettings), host.clock)
    return BlobSubsystem(host, BlobNeeds(require(built.hub).hub, backups.is_busy))


def build_plugins(built: Built) -> "PluginsSubsystem":
    from appliance.hub.plugins.subsystem import PluginsNeeds, PluginsSubsystem

    return PluginsSubsystem(built.host, PluginsNeeds(require(built.hub).hub))


def build_ask(built: Built) -> "AskSubsystem":
    from appliance.hub.ask.subsystem import AskNeeds, AskSubsystem
    from appliance.integrations.mail_outbox import OutboxMail
    from appliance.outbox.target import MAIL

    mail = None
    if built.outbox is not None and built.host.section(MailSettings).host:
        mail = OutboxMail(built.outbox.outbox, MAIL, "appliance:ask")
    return AskSubsystem(built.host, AskNeeds(require(built.hub).hub, mail))


def build_agents(built: Built) -> "AgentsSubsystem":
    from appliance.hub.agents.subsystem import AgentsNeeds, AgentsSubsystem

    return AgentsSubsystem(built.host, AgentsNeeds(require(built.hub).hub))


def build_bounds(built: Built) -> "BoundsSubsystem | None":
    if built.hub is None:
        return None
    from appliance.hub.bounds.subsystem import BoundsNeeds, BoundsSubsystem

    asks = None
    if built.ask is not None:
        from appliance.integrations.bounds_ask import HubTopicAsks

        asks = HubTopicAsks(built.ask.asks)
    return BoundsSubsystem(built.host, BoundsNeeds(built.hub.hub, asks))


def build_entries(built: Built) -> "EntriesSubsystem":
    from appliance.hub.entries.subsystem import EntriesNeeds, EntriesSubsystem

    return EntriesSubsystem(built.host, EntriesNeeds(require(built.hub).hub))


def build_catchup(built: Built) -> "CatchUpSubsystem":
    from appliance.hub.catchup.subsystem import CatchUpNeeds, CatchUpSubsystem
    from appliance.integrations.catchup_bus import BusClaims

    bus = built.bus
    claims = None if bus is None else BusClaims(bus.stores[0], built.host.clock)
    return CatchUpSubsystem(built.host, CatchUpNeeds(require(built.hub).hub, claims))


def build_a2a(built: Built) -> "A2aSubsystem":
    """Build A2A. The member key signs the cards, if there is one."""
    from appliance.hub.a2a.subsystem import A2aNeeds, A2aSubsystem
    from appliance.integrations.hooks_inbox import own_url

    signer = None if built.keys is None else built.keys.in_mesh("")
    asks = None if built.ask is None else built.ask.asks
    hub, stream = require(built.hub).hub, _envelope_sink(built)
    needs = A2aNeeds(hub, partial(own_url, built.host), signer, asks, stream)
    return A2aSubsystem(built.host, needs)


def build_review_asks(built: Built) -> "LoopBetween | None":
    """Ask people to decide the reviews on the worker bus."""
    host, settings = built.host, built.host.section(BusSettings)
    if built.ask is None or built.bus is None or not settings.ask_reviews:
        return None
    from appliance.hub.ask.reviews import ReviewAsks
    from appliance.integrations.ask_bus import BusReviews
    from appliance.integrations.loop_between import LoopBetween

    runner = CommandRunner(host.datadir, "bus", settings, host.commands)
    reviews = BusReviews(built.bus.stores[0], runner)
    return LoopBetween(ReviewAsks(built.ask.asks, reviews, host.clock, host.log), "hub", "bus")


def build_network(built: Built) -> "MailboxSubsystem":
    from appliance.integrations.mailbox_ask import HubContactAsks
    from appliance.mailbox.subsystem import MailboxNeeds, MailboxSubsystem

    asks = None if built.ask is None else HubContactAsks(built.ask.asks)
    return MailboxSubsystem(built.host, MailboxNeeds(require(built.mailbox), asks))


def build_relay(built: Built) -> "RelaySubsystem":
    from appliance.integrations.mail_outbox import OutboxMail
    from appliance.integrations.relay_ask import HubApprovalAsks
    from appliance.outbox.target import CODE_MAIL
    from appliance.relay.subsystem import RelayNeeds, RelaySubsystem

    codes = built.outbox if built.host.section(MailSettings).host else None
    needs = RelayNeeds(
        None if codes is None else OutboxMail(codes.outbox, CODE_MAIL, "appliance:relay"),
        None if built.ask is None else HubApprovalAsks(built.ask.asks, built.host.clock),
    )
    return RelaySubsystem(built.host, needs)


def build_jobs(built: Built) -> "JobsSubsystem":
    from appliance.integrations.hooks_inbox import own_url
    from appliance.integrations.jobs_ask import HubJobAsks
    from appliance.integrations.notify_hub import HubTopics
    from appliance.jobs.subsystem import JobsNeeds, JobsSubsystem

    post = None if built.hub is None else HubTopics(built.hub.hub, "jobs").post
    needs = JobsNeeds(
        built.tokens.book,
        partial(own_url, built.host),
        None if built.ask is None else HubJobAsks(built.ask.asks),
        post,
        job_events(built),
        [loop for subsystem in built.subsystems for loop in subsystem.loops],
    )
    return JobsSubsystem(built.host, needs)


def job_events(built: Built) -> "Sequence[JobEvents]":
    """Return the logs and folders whose changes can start jobs."""
    from appliance.integrations.jobs_courier import EnvelopeJobEvents
    from appliance.integrations.jobs_export import segment_events
    from appliance.integrations.jobs_logs import LogJobEvents

    events: list[JobEvents] = []
    if built.hub is not None:
        events.append(LogJobEvents(built.hub.store, built.hub.feed.on_publish))
    if built.outbox is not None:
        events.append(LogJobEvents(built.outbox.store))
    if built.courier is not None:
        events.append(EnvelopeJobEvents(built.courier.courier, built.host.clock))
        events += [LogJobEvents(store) for store in built.courier.stores]
    return [*events, *segment_events(built.host)]


def build_export(built: Built) -> "ExportSubsystem":
    from appliance.export.subsystem import ExportSubsystem

    return ExportSubsystem(built.host)
