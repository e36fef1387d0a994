"""Plugins on HTTP: status and reprocessing for `hub:admin`, enrichments for every reader."""

from appliance.hub.access import READ
from appliance.hub.plugins import wire
from appliance.hub.plugins.service import Plugins
from appliance.hub.wire import ADMIN
from appliance.kernel.route import Operation, Route
from appliance.web.responders import Responders, reply_to_caller, reply_with


def routes(plugins: Plugins) -> list[Route]:
    return [
        Route("/api/v1/plugins", Responders(get=reply_with(plugins.list_all)), {
            "GET": Operation(ADMIN, reply=wire.PluginList,
                             summary="List plugins with their state"),
        }),
        Route("/api/v1/plugins/re-enrich", Responders(post=reply_with(plugins.re_enrich, 202)), {
            "POST": Operation(ADMIN, body=wire.ReEnrich, reply=wire.ReEnrichTaken, status=202,
                              errors=(wire.NoSuchPlugin,), example={"since": 0},
                              summary="Reprocess the event log with plugins, from an event on",
                              audited=True),
        }),
        Route("/api/v1/messages/{message_id}/enrichments", Responders(
            get=reply_to_caller(plugins.enrichments),
        ), {
            "GET": Operation(READ, reply=wire.EnrichmentList,
                             summary="List enrichments for a message's current text",
                             by_channel=True),
        }),
    ]  # fmt: skip
