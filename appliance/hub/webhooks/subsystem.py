"""The subsystem of the hub's webhooks."""

from appliance.hub.webhooks.loops import WebhookFeeder, WebhookOutbox
from appliance.hub.webhooks.resources import routes
from appliance.hub.webhooks.service import Webhooks
from appliance.kernel.clock import Clock
from appliance.kernel.log import Log
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Subsystem


class WebhooksSubsystem(Subsystem):
    """Registrations are stored in the hub's store; `post` delivers events."""

    name = "webhooks"
    paths = ("/api/v1/webhooks",)

    def __init__(self, webhooks: Webhooks, post: WebhookOutbox, clock: Clock, log: Log) -> None:
        self._webhooks = webhooks
        self.loops = (WebhookFeeder(webhooks, post, clock, log),)

    def routes(self) -> list[Route]:
        return routes(self._webhooks)
