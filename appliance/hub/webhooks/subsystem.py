"""Webhooks of the hub as a part of the appliance."""

from appliance.hub.webhooks.loops import Post, WebhookFeeder
from appliance.hub.webhooks.resources import routes
from appliance.hub.webhooks.service import Webhooks
from appliance.kernel.clock import Clock
from appliance.kernel.log import Log
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Subsystem


class WebhooksSubsystem(Subsystem):
    """Registrations are kept in the hub's store; `post` delivers."""

    name = "webhooks"

    def __init__(self, webhooks: Webhooks, post: Post, clock: Clock, log: Log) -> None:
        self._webhooks = webhooks
        self.loops = (WebhookFeeder(webhooks, post, clock, log),)

    def routes(self) -> list[Route]:
        return routes(self._webhooks)
