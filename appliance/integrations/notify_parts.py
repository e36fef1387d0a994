"""Connects messages to the operator with mail, webhooks, the hub and asks."""

from collections.abc import Callable, Sequence
from functools import partial

from appliance.ask.service import Asks
from appliance.ask.subsystem import AskSubsystem
from appliance.ask.wire import AsksQuery
from appliance.host import Host
from appliance.hub.subsystem import HubSubsystem
from appliance.integrations.notify_hub import HubTopics, TopicNotices
from appliance.integrations.notify_outbox import OutboxNotices, drop_former
from appliance.kernel.auth import ADMIN, Principal
from appliance.kernel.errors import ApplianceError
from appliance.kernel.subsystem import Subsystem
from appliance.notify.problems import Observed, OperatorProblem
from appliance.notify.service import NoticeSender
from appliance.notify.subsystem import NotifyNeeds
from appliance.outbox.service import Outbox
from appliance.outbox.target import MAIL, DeliveryTarget
from appliance.outbox.webhook import WEBHOOK, WebhookTarget

ASKS_MAX = 50
PRINCIPAL = Principal("appliance:notify", "appliance:notify", frozenset({ADMIN}))


def notify_needs(
    host: Host,
    parts: Sequence[Subsystem],
    outbox: Outbox | None,
    targets: Sequence[DeliveryTarget],
    findings: Callable[[], Observed],
) -> NotifyNeeds:
    """`targets`: those that the outbox delivers to; they deliver without it too. `findings`: those
    that the doctor has now."""
    schemes = {WEBHOOK: ("http", "https"), MAIL: ("mailto",)}
    senders: dict[str, NoticeSender] = {}
    for target in targets:
        for scheme in schemes.get(target.name, ()):
            senders[scheme] = OutboxNotices(outbox, target, host.clock)
    hub = next((part for part in parts if isinstance(part, HubSubsystem)), None)
    if hub is not None:
        senders["topic"] = TopicNotices(HubTopics(hub.hub, "notify"))
    ask = next((part for part in parts if isinstance(part, AskSubsystem)), None)
    observe = partial(_observe, findings, None if ask is None else ask.asks)
    pings = (target.ping for target in targets if isinstance(target, WebhookTarget))
    former = None if outbox is None else partial(drop_former, outbox, host.log)
    return NotifyNeeds(senders, observe, next(pings, None), former)


def _observe(findings: Callable[[], Observed], asks: Asks | None) -> Observed:
    observed = dict(findings())
    if asks is not None:
        try:
            waiting = asks.list(AsksQuery(state="waiting", limit=ASKS_MAX), PRINCIPAL).asks
        except ApplianceError:  # the store of the hub fails
            return observed
        observed["ask"] = [
            OperatorProblem(
                ask.id, "question", f"{ask.asker} asks: {ask.text}",
                f"agentlip ask answer {ask.id} ANSWER",
            )
            for ask in waiting
        ]  # fmt: skip
    return observed
