"""Adds the hub's webhooks to the appliance."""

import msgspec

from appliance.host import Host
from appliance.hub.webhooks.loops import WebhookFeeder
from appliance.hub.webhooks.resources import routes
from appliance.hub.webhooks.service import OutgoingEvent, Webhooks
from appliance.hub.webhooks.settings import WebhookSettings
from appliance.kernel.registered_webhook import WebhookOutbox
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Role, Subsystem


class WebhooksNeeds(msgspec.Struct, frozen=True):
    """`post` delivers events."""

    webhooks: Webhooks
    post: WebhookOutbox[OutgoingEvent]


class WebhooksSubsystem(Subsystem):
    """Registrations are stored in the hub's store."""

    name = "webhooks"
    role = Role("hub event delivery to URLs", ("hub", "outbox"))
    sections = {"webhooks": WebhookSettings}

    def __init__(self, host: Host, needs: WebhooksNeeds) -> None:
        self._webhooks = needs.webhooks
        self.loops = (WebhookFeeder(needs.webhooks, needs.post, host.clock, host.log),)

    def routes(self) -> list[Route]:
        return routes(self._webhooks)
