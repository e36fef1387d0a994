"""Connects the runner of jobs with other subsystems."""

from collections.abc import Iterator, Sequence
from functools import partial

from appliance.ask.subsystem import AskSubsystem
from appliance.courier.subsystem import CourierSubsystem
from appliance.host import Host
from appliance.hub.subsystem import HubSubsystem
from appliance.integrations.hooks_inbox import own_url
from appliance.integrations.jobs_ask import HubJobAsks
from appliance.integrations.jobs_courier import EnvelopeJobEvents
from appliance.integrations.jobs_export import segment_events
from appliance.integrations.jobs_logs import AFTER, LogJobEvents
from appliance.integrations.notify_hub import HubTopics
from appliance.jobs.loops import JobEvents
from appliance.jobs.subsystem import JobsNeeds
from appliance.kernel.auth import TokenBook
from appliance.kernel.subsystem import Subsystem


def jobs_needs(host: Host, book: TokenBook, parts: Sequence[Subsystem | None]) -> JobsNeeds:
    """`parts`: the subsystems that are built; more may follow."""
    ask = next((part for part in parts if isinstance(part, AskSubsystem)), None)
    asks = None if ask is None else HubJobAsks(ask.asks)
    hub = next((part for part in parts if isinstance(part, HubSubsystem)), None)
    post = None if hub is None else HubTopics(hub.hub, "jobs").post
    return JobsNeeds(book, partial(own_url, host), asks, post, list(_events(host, parts)), parts)


def _events(host: Host, parts: Sequence[Subsystem | None]) -> Iterator[JobEvents]:
    for part in parts:
        if isinstance(part, HubSubsystem):
            yield LogJobEvents(part.hub.store, part.hub.feed.on_publish)
        elif part is not None and part.name in AFTER:
            if isinstance(part, CourierSubsystem):
                yield EnvelopeJobEvents(part.courier, host.clock)
            yield from (LogJobEvents(store) for store in part.stores if store.name in AFTER)
    yield from segment_events(host)
